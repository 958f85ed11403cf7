"""`serve` ends and starts again: queued prompts go on by themselves where they were told to."""

from __future__ import annotations

import asyncio
import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import acphold
from tests.cli.test_queue import queue
from tests.editor import DEADLINE, received, scripted_agent
from tests.watched_processes import until
from tests.web.conftest import Served, serving

pytestmark = pytest.mark.slow


def said(log: Path) -> list[str]:
    """The prompts that the agent received, in order."""
    texts = [message["params"]["prompt"][-1]["text"] for message in received(log, "session/prompt")]
    return [json.loads(text)[0]["say"] for text in texts]


def step(word: str, *more: dict[str, Any]) -> str:
    return json.dumps([{"say": word}, *more])


async def a_session(served: Served, log: Path, name: str, *, restarts: bool) -> str:
    """One with a turn that never ends, and two queued prompts."""
    async with served.session(cwd=log.parent) as session:
        session.prompt(step(f"{name} 1", {"until": str(log.parent / "never")}))
        await until(lambda: f"{name} 1" in said(log))
        for number in (2, 3):
            await session.queue.add(step(f"{name} {number}"))
        await session.queue.set(restarts=restarts)
        return session.id


@pytest.mark.parametrize("crash", [True, False])
async def test_only_sessions_that_were_told_to_go_on_by_themselves_once_and_in_order(
    tmp_path: Path, crash: bool
) -> None:
    log = tmp_path / "log"
    store = tmp_path / "store"
    can = {"loadSession": True}
    agent = scripted_agent(log=str(log), store=str(store), capabilities=can)
    with serving(tmp_path, agent=tuple(agent)) as served:
        names = [f"s{number}" for number in range(6)]
        for name in names:
            await a_session(served, log, name, restarts=True)
        holds = await a_session(served, log, "held", restarts=False)
        if not crash:
            served.process.terminate()
            served.process.wait(timeout=DEADLINE * 2)
        await asyncio.to_thread(served.start_again)
        await until(lambda: all(f"{name} 3" in said(log) for name in names))
        journal = Path(served.env["ACPHOLD_JOURNAL"])
        lines = await asyncio.to_thread(queue, journal, holds)
        assert "2 queued prompts" in lines[0]
        for name in names:
            mine = [word for word in said(log) if word.startswith(f"{name} ")]
            assert mine == [f"{name} {number}" for number in (1, 2, 3)]
        assert not {"held 2", "held 3"} & {*said(log)}


async def test_in_a_restored_journal_nothing_goes_on_until_somebody_says_so(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    agent = scripted_agent(log=str(log), capabilities={"loadSession": True})
    with serving(tmp_path, agent=tuple(agent)) as served:
        session_id = await a_session(served, log, "told", restarts=True)
        served.run("journal", "backup", str(tmp_path / "backup.db"))
        served.kill()
        served.run("journal", "restore", str(tmp_path / "backup.db"))
        await asyncio.to_thread(served.start_again)
        assert "2 planned elsewhere" in served.run("list")
        assert "2 queued prompts, paused: planned elsewhere" in served.run("show", session_id)
        async with acphold.connect(served.url, token=served.token()) as there:
            session = await there.load_session(session_id, cwd=tmp_path)
            queue = session.queue.state
            assert (queue.held, queue.restarts, len(queue.waiting)) == ("elsewhere", False, 2)
            assert said(log) == ["told 1"]
            await session.queue.go()
            await until(lambda: said(log) == ["told 1", "told 2", "told 3"])


async def test_an_agent_that_does_not_start_stops_no_other_and_is_told_of(tmp_path: Path) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    good = scripted_agent(log=str(log), capabilities={"loadSession": True})
    program = f"[ -e {broken} ] && exit 3; exec {' '.join(map(shlex.quote, good))}"
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f'[agents.bad]\ncommand = {json.dumps(["sh", "-c", program])}\nname = "bad"\n'
        f'[agents.good]\ncommand = {json.dumps(good)}\nname = "good"\n'
    )
    variables = {"ACPHOLD_SETTINGS": str(settings)}
    told = tmp_path / "told"
    with serving(tmp_path, f"--log-file={told}", agent=(), variables=variables) as served:
        made = {}
        for name in ("bad", "good"):
            at = f"{served.url}/acp/{name}"
            async with acphold.connect(at, token=served.token()) as agent:
                session = await agent.new_session(cwd=tmp_path)
                await session.prompt(step(f"{name} 0"))
                await session.queue.hold()
                await session.queue.add(step(f"{name} 1"))
                await session.queue.set(restarts=True)
                made[name] = session.id
        broken.touch()
        served.kill()
        journal = Path(served.env["ACPHOLD_JOURNAL"])
        for session_id in made.values():  # as if nobody had held it: no process has them
            await asyncio.to_thread(let_go, journal, session_id)
        await asyncio.to_thread(served.start_again)
        await until(lambda: "good 1" in said(log))
        await until(lambda: "its prompts stay queued" in told.read_text())
        assert f"session {made['bad']}: its prompts stay queued" in told.read_text()
        assert "bad 1" not in said(log)
        lines = await asyncio.to_thread(queue, journal, made["bad"])
        assert "1 queued prompt" in lines[0]
        broken.unlink()
        await asyncio.to_thread(served.start_again)
        await until(lambda: "bad 1" in said(log))
        assert said(log).count("good 1") == 1


async def test_a_session_that_cannot_be_read_stops_no_other_and_is_told_of(tmp_path: Path) -> None:
    log, told = tmp_path / "log", tmp_path / "told"
    agent = scripted_agent(log=str(log), capabilities={"loadSession": True})
    with serving(tmp_path, f"--log-file={told}", agent=tuple(agent)) as served:
        made = {
            name: await a_session(served, log, name, restarts=True)
            for name in ("whole", "damaged", "whole too")
        }
        served.kill()
        with closing(sqlite3.connect(served.env["ACPHOLD_JOURNAL"], isolation_level=None)) as file:
            file.execute(
                "INSERT INTO summaries (session, summary) "
                "SELECT number, x'' FROM sessions WHERE session_id = ?",
                (made["damaged"],),
            )
        await asyncio.to_thread(served.start_again)
        await until(lambda: {"whole 3", "whole too 3"} <= {*said(log)})
        assert f"session {made['damaged']}: its queue cannot be read" in told.read_text()
        assert "damaged 2" not in said(log)


def let_go(journal: Path, session_id: str) -> None:
    """Say go in a session that no process has."""
    from acphold.conversation.history.prompt_queue import QueueChange
    from acphold.journal.intentions import change_queue
    from acphold.journal.stores import open_journal

    async def change() -> None:
        opened = open_journal(journal)
        try:
            await change_queue(opened, session_id, QueueChange("go"))
        finally:
            await opened.aclose()

    asyncio.run(change())
