"""A disk that does not answer: the daemon stands, and still says why, and ends when it is told."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.test_shared_daemon import Home, home
from tests.watched_processes import lives, until

__all__ = ["home"]

pytestmark = pytest.mark.slow

STANDING = """
import os, sqlite3, time

connect = sqlite3.connect

def standing(*words, factory=sqlite3.Connection, **options):
    class Standing(factory):
        def execute(self, statement, *values):
            while not statement.startswith("SELECT") and os.path.exists({file!r}):
                time.sleep(0.02)
            return super().execute(statement, *values)

    return connect(*words, factory=Standing, **options)

sqlite3.connect = standing
"""
"""A `sitecustomize` by which nothing is written while this file is there."""


class Disk:
    """The disk of a home's journal, which can stop answering."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._stands = folder / "stands"
        (folder / "sitecustomize.py").write_text(STANDING.format(file=str(self._stands)))
        home.env["PYTHONPATH"] = str(folder)
        self._home = home

    def stop(self) -> None:
        """Stop answering the daemon, which runs by now; not those who only look."""
        del self._home.env["PYTHONPATH"]
        self._stands.touch()

    def go_on(self) -> None:
        self._stands.unlink()


@pytest.fixture
def disk(home: Home, tmp_path: Path) -> Disk:
    return Disk(home, tmp_path)


async def run(home: Home, *words: str) -> tuple[int, str]:
    done = await asyncio.to_thread(home.run, *words)
    return done.returncode, done.stdout + done.stderr


async def test_a_daemon_whose_disk_does_not_answer_still_says_what_runs_and_for_what_it_waits(
    home: Home, disk: Disk
) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        prompting = asyncio.create_task(one.prompt(session, {"say": "more"}))
        disk.stop()
        await asyncio.sleep(0)
        code, said = await run(home, "agent", "status")
        assert code == 1
        assert f"process {daemon}: daemon" in said
        assert re.search(f"does not answer: it waits for the disk of .*{home.journal.name}", said)
        code, said = await run(home, "agent", "status", "--json")
        process = json.loads(said.splitlines()[0])
        assert [it["sessionId"] for it in process["sessions"]] == [session]
        assert process["hangs"]
        code, said = await run(home, "inbox")
        assert code == 1
        assert "waits for the disk" in said
        await until(lambda: b"waits for the disk" in one.stderr)
        disk.go_on()
        await prompting
        await until(lambda: b"the daemon answers again" in one.stderr)
        assert one.text().endswith("more")
        assert (await run(home, "agent", "status"))[0] == 0


async def test_stop_ends_the_agents_of_a_daemon_whose_disk_does_not_answer_and_loses_nothing(
    home: Home, disk: Disk
) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        agents = [it.pid for it in psutil.Process(daemon).children(recursive=True)]
        assert agents
        prompting = asyncio.create_task(one.prompt(session, {"say": "lost"}))
        disk.stop()
        began = time.monotonic()
        code, said = await run(home, "agent", "stop", "--yes")
        assert code == 0, said
        assert "Ended " in said
        await until(lambda: not any(map(lives, [daemon, *agents])))
        assert time.monotonic() - began < 2 * 10  # of a busy machine
        await one.ended()
        prompting.cancel()
    disk.go_on()
    async with home.editor() as other:
        await other.load(session)
        assert other.text().startswith("kept")


async def test_a_cancel_acts_once_the_disk_answers_as_is_said(
    home: Home, disk: Disk, tmp_path: Path
) -> None:
    async with home.editor() as one, home.editor() as two:
        session, other = await one.talk({"say": "kept"}), await two.talk({"say": "theirs"})
        turn = one.begin_prompt(session, {"say": "begun"}, {"until": str(tmp_path / "never")})
        await one.until_text("keptbegun")
        disk.stop()
        writing = two.begin_prompt(other, {"say": "more"})
        await until(lambda: b"a cancel acts once it answers" in one.stderr)
        one.tell("session/cancel", {"sessionId": session})
        disk.go_on()
        assert await turn == {"stopReason": "cancelled"}
        await writing
