"""`kill -9` of either end of a move, at any moment: the same command then ends it, and at no time
do both machines own the session."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.command_line import Finished
from tests.cli.test_ssh import SSH, there, write  # noqa: F401 - a fixture
from tests.editor import DEADLINE
from tests.hub.moving import SOAKED, Machine, origin
from tests.raw_entries import CONVERSATION, ended, prompt, said
from tests.snapshots.conftest import files
from tests.watched_processes import gone
from tests.web.conftest import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROUNDS = max(3, SOAKED // 5)
"""Moves of which each end is killed; `make soak` has more."""

FAR_END = """\
#!/bin/sh
echo $$ > {noted}.new && mv {noted}.new {noted}
exec {python} -m acphold "$@"
"""


class Killer:
    """Runs moves, of which some are hit: a random one of the two processes is killed at a random
    moment of the time that a whole one takes."""

    def __init__(self, env: dict[str, str], far: Callable[[], int | None], seed: int) -> None:
        self.chance = random.Random(seed)
        self._env = env
        self._far = far
        self._span = 3.0

    @contextmanager
    def _started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "acphold", *words],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def whole(self, *words: str) -> Finished:
        """Run it to its end."""
        begun = time.monotonic()
        with self._started(*words) as process:
            out, err = process.communicate(timeout=DEADLINE)
            self._span = time.monotonic() - begun
            return Finished(process.returncode, out, err)

    def hit(self, *words: str) -> str:
        """Run it, and kill one of the two; return which one."""
        victim = self.chance.choice(("near", "far"))
        with self._started(*words) as process:
            time.sleep(self.chance.uniform(0.1, self._span))  # the moment is to be a random one
            number = process.pid if victim == "near" else self._far()
            if number is not None:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.communicate(timeout=DEADLINE)
        return victim


async def owners(machines: list[Machine]) -> list[bool]:
    return [await machine.owns("s-1") for machine in machines]


async def test_whichever_end_of_a_move_over_ssh_is_killed_it_ends_with_one_owner(
    tmp_path: Path,
    there: Path,  # noqa: F811 - the fixture
) -> None:
    project = origin(tmp_path)
    here, far = (
        Machine(tmp_path / "here", "here", project),
        Machine(there / ".local" / "share" / "acphold", "there", project),
    )
    noted = tmp_path / "pid"
    end = FAR_END.format(noted=noted, python=sys.executable)
    write(there / ".local" / "bin" / "acphold", end)

    def far_pid() -> int | None:
        return int(noted.read_text()) if noted.exists() else None

    env = {**os.environ, "ACPHOLD_JOURNAL": str(here.folder / "journal.db")}
    killer = Killer(env, far_pid, 7)
    for machine in (here, far):
        await machine.remember("known", *CONVERSATION)
    await here.remember("s-1", *CONVERSATION)
    giver, taker, folder = here, far, here.clone
    hits = {"near": 0, "far": 0}
    for number in range(ROUNDS):
        words = ("continue", "s-1", "--on", "me@there")
        if giver is far:
            words = ("continue", "--bring-from", "me@there", "s-1")
        (folder / "a.txt").write_text(f"{number} {killer.chance.random()}\n" * 1000)
        await giver.remember("s-1", prompt(f"{number}"), said("x" * 50_000), ended())
        await giver.keep("s-1", cwd=folder)
        for _ in range(killer.chance.randrange(1, 4)):
            noted.unlink(missing_ok=True)
            hits[await asyncio.to_thread(killer.hit, *words)] += 1
            if (far_end := far_pid()) is not None:
                await gone({far_end})
            assert sum(await owners([here, far])) <= 1, number
        done = await asyncio.to_thread(killer.whole, *words)
        assert await owners([giver, taker]) == [False, True], (number, done)
        assert await giver.told("s-1") == await taker.told("s-1")
        row = await taker.journal.session("s-1")
        assert files(Path(row.cwd)) == files(folder)
        giver, taker, folder = taker, giver, Path(row.cwd)
    assert all(hits.values()), hits
    for machine in (here, far):
        await machine.journal.aclose()


async def test_whichever_end_of_a_move_from_a_server_is_killed_it_ends_with_one_owner(
    tmp_path: Path,
) -> None:
    project = origin(tmp_path)
    giver, taker = (Machine(tmp_path / name, name, project) for name in ("here", "there"))
    await taker.remember("known", *CONVERSATION)
    with serving(giver.folder) as served:
        env = {
            **os.environ,
            "ACPHOLD_JOURNAL": str(taker.folder / "journal.db"),
            "ACPHOLD_TOKEN": served.token(
                "--scope", "watch", "--scope", "manage", "--scope", "files"
            ),
            "XDG_STATE_HOME": str(taker.folder / "state"),
        }
        killer = Killer(env, lambda: served.process.pid, 8)
        for number in range(ROUNDS):
            (giver.clone / "a.txt").write_text(f"{number}\n" * 1000)
            await giver.remember("s-1", *CONVERSATION, said("x" * 50_000), ended())
            await giver.keep("s-1")
            for _ in range(killer.chance.randrange(1, 4)):
                victim = await asyncio.to_thread(
                    killer.hit, "continue", "--bring-from", served.url, "s-1"
                )
                if victim == "far":
                    await asyncio.to_thread(served.start_again)
                assert sum(await owners([giver, taker])) <= 1, number
            words = ("continue", "--bring-from", served.url, "s-1")
            done = await asyncio.to_thread(killer.whole, *words)
            assert await owners([giver, taker]) == [False, True], (number, done)
            assert await giver.told("s-1") == await taker.told("s-1")
            row = await taker.journal.session("s-1")
            assert files(Path(row.cwd)) == files(giver.clone)
            for machine in (giver, taker):
                await machine.journal.delete("s-1")
    for machine in (giver, taker):
        await machine.journal.aclose()


KILLED = """
import os, signal
from acphold.live.hub import move_taker
def killed(*words):
    os.kill(os.getpid(), signal.SIGKILL)
def renamed(source, *words):
    killed() if ".laying-" in str(source) else rename(source, *words)
rename = os.rename
{patch}
from acphold.__main__ import main
main()
"""


@pytest.mark.parametrize("patch", ["os.rename = renamed", "move_taker.make_inside = killed"])
async def test_a_taker_that_is_killed_while_it_lays_files_out_leaves_nothing_in_the_way(
    tmp_path: Path,
    there: Path,  # noqa: F811 - the fixture
    patch: str,
) -> None:
    project = origin(tmp_path)
    far = Machine(there / ".local" / "share" / "acphold", "there", project)
    here = Machine(tmp_path / "here", "here", project)
    await here.remember("known", *CONVERSATION)
    await far.remember("s-1", *CONVERSATION)
    far.project.write("a.txt", "changed\n")
    await far.keep("s-1")
    env = {**os.environ, "ACPHOLD_JOURNAL": str(here.folder / "journal.db")}

    def run(*command: str) -> Finished:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    words = ("continue", "--bring-from", "me@there", "s-1")
    taken = await asyncio.to_thread(run, sys.executable, "-c", KILLED.format(patch=patch), *words)
    assert taken.code == -signal.SIGKILL, taken
    folder = here.folder / "clone-s1"
    assert [*folder.iterdir()]
    acphold = (sys.executable, "-m", "acphold")
    about = "".join(f"{folder}: a fork or a move was cut off".split())
    assert about in "".join((await asyncio.to_thread(run, *acphold, "doctor")).out.split())
    done = await asyncio.to_thread(run, *acphold, *words)
    assert await owners([far, here]) == [False, True], done
    assert (await here.journal.session("s-1")).cwd == str(folder)
    assert files(folder) == files(far.clone)
    assert not (here.folder / "clone-s1-2").exists()
    assert here.project.git("worktree", "list").count("\n") == 2
    assert about not in "".join((await asyncio.to_thread(run, *acphold, "doctor")).out.split())
    for machine in (here, far):
        await machine.journal.aclose()
