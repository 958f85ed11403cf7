"""The editor leaves, or acphold is ended: the turn is cancelled, the journal closed, all gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from acphold.journal.stores import open_journal
from tests.conftest import Defaults
from tests.editor import DEADLINE, Editor, agent_pid, editor, introduced, scripted_agent
from tests.owners import lone_command
from tests.watched_processes import below, gone, methods, until, written_pid

Leave = Callable[[Editor], Awaitable[None]]


async def journalled(journal: Path, session: str) -> list[tuple[str, str]]:
    """Kind and bytes of every entry of a session."""
    opened = open_journal(journal, create=False)
    segments = await opened.read(session, 0)
    await opened.aclose()
    entries = [entry for segment in segments for entry in segment.entries()]
    return [(entry.kind, entry.raw.decode()) for entry in entries]


async def end_of_input(client: Editor) -> None:
    assert client.process.stdin is not None
    client.process.stdin.close()


async def broken_pipe(client: Editor) -> None:
    """The editor reads no more, and is noticed when there is something to tell it."""
    transport: Any = client.process._transport  # type: ignore[attr-defined]
    reading = transport.get_pipe_transport(1)
    reading.close()
    await until(lambda: reading._pipe is None)
    client.send({"id": 99, "method": "session/list", "params": {}})


async def both_ends(client: Editor) -> None:
    await broken_pipe(client)
    await end_of_input(client)


def signalled(number: signal.Signals) -> Leave:
    async def leave(client: Editor) -> None:
        os.kill(client.process.pid, number)

    return leave


ORDERLY: dict[str, Leave] = {
    "by EOF": end_of_input,
    "by a broken pipe": broken_pipe,
    "by EOF and a broken pipe": both_ends,
    "by SIGTERM": signalled(signal.SIGTERM),
    "by SIGINT": signalled(signal.SIGINT),
    "by SIGHUP": signalled(signal.SIGHUP),
}
ANY = {**ORDERLY, "by SIGKILL of acphold": signalled(signal.SIGKILL)}


@pytest.mark.parametrize("how", ORDERLY)
async def test_when_the_editor_leaves_the_turn_is_cancelled_and_the_journal_closed(
    journal: Path, tmp_path: Path, how: str
) -> None:
    log = tmp_path / "log"
    command = lone_command(scripted_agent(log=str(log)))
    async with introduced(command, journal=journal) as client:
        session = await client.new()
        client.begin_prompt(session, {"say": "working"}, {"until": "cancel"}, {"say": "stopped"})
        await client.until_text("working")
        agents = below(client.process.pid)
        await ORDERLY[how](client)
        assert await asyncio.wait_for(client.process.wait(), 10) == 0
        await gone(agents, 5)
        assert methods(log)[-1] == "session/cancel"
    # Closed: nothing is left of the write-ahead log, and the end of the turn is there.
    left = sorted(path.name for path in journal.parent.glob("journal.db*") if path.is_file())
    assert left in (["journal.db"], ["journal.db", "journal.db-reserve"])
    entries = await journalled(journal, session)
    assert any("stopped" in raw for _, raw in entries)
    assert entries[-1] == ("turn_end", '{"stopReason":"cancelled"}')
    async with introduced(command, journal=journal) as client:
        await client.load(session)
        assert client.text() == "workingstopped"


async def test_when_the_editor_leaves_a_deaf_agent_and_all_its_children_are_gone_within_seconds(
    tmp_path: Path,
) -> None:
    # However it leaves, all at the same time: each takes seconds of waiting.
    async with asyncio.TaskGroup() as tasks:
        for number, how in enumerate(ANY):
            (folder := tmp_path / str(number)).mkdir()
            tasks.create_task(leave_a_deaf_agent(folder, ANY[how]), name=how)


async def leave_a_deaf_agent(folder: Path, leave: Leave) -> None:
    command = lone_command(scripted_agent(deaf=True))
    async with introduced(command, journal=folder / "journal.db") as client:
        session = await client.new()
        ignoring = "trap '' TERM HUP INT; echo $$ > {}; while :; do sleep 1; done"
        files = [folder / name for name in ("child", "loud", "daemon")]
        client.begin_prompt(
            session,
            {"spawn": f"sh -c '{ignoring.format(files[0])}' & sleep 1000"},
            {"spawn loud": f"echo $$ > {files[1]}; exec sleep 1000"},
            {"spawn": f"setsid sh -c '{ignoring.format(files[2])}' & exit"},
            {"say": "working"},
            {"until": "cancel ignored"},
        )
        await client.until_text("working")
        children = {await written_pid(path) for path in files}
        everybody = below(client.process.pid) | children
        assert agent_pid(client) in everybody
        await leave(client)
        await gone(everybody, 12)
        await asyncio.wait_for(client.process.wait(), 10)


@pytest.mark.parametrize("how", ["by EOF", "by SIGTERM"])
async def test_prompts_that_had_not_begun_when_the_editor_left_are_kept_if_they_are_to(
    journal: Path, tmp_path: Path, defaults: Defaults, how: str
) -> None:
    defaults(keep_prompts=True)
    log = tmp_path / "log"
    command = lone_command(scripted_agent(log=str(log)))
    async with introduced(command, journal=journal) as client:
        session = await client.new()
        client.begin_prompt(session, {"say": "working"}, {"until": "cancel"})
        await client.until_text("working")
        client.begin_prompt(session, {"say": "later"})
        await client.call("session/list")
        await ORDERLY[how](client)
        await asyncio.wait_for(client.process.wait(), DEADLINE)
    opened = open_journal(journal, create=False)
    queue = (await opened.summary(session)).queue
    await opened.aclose()
    assert [prompt.words for prompt in queue.waiting] == ['[{"say": "later"}]']
    assert queue.held == "cancelled"
    assert methods(log).count("session/prompt") == 1


@pytest.mark.parametrize("how", ANY)
async def test_when_the_editor_leaves_before_it_has_said_anything_all_is_gone_too(
    journal: Path, how: str
) -> None:
    async with editor(lone_command(scripted_agent()), journal=journal) as client:
        await until(lambda: journal.exists())  # it serves; signals before are the system's matter
        everybody = below(client.process.pid)
        await ANY[how](client)
        await gone({client.process.pid, *everybody}, 10)


@pytest.mark.parametrize("steps", [[{"until": "cancel ignored"}], [{"flood": [10**9, 1000]}]])
async def test_when_the_editor_leaves_an_agent_that_does_not_heed_it_is_not_waited_for_long(
    journal: Path, steps: list[Any], defaults: Defaults
) -> None:
    defaults(cancel_grace=60)
    command = lone_command(scripted_agent())
    async with introduced(command, journal=journal) as client:
        sessions = [await client.new() for _ in range(3)]
        for session in sessions:
            client.begin_prompt(session, {"say": "working"}, *steps)
        await client.until(lambda: client.text().count("working") == 3)
        everybody = below(client.process.pid)
        await end_of_input(client)
        # A loaded machine takes its time to put a flood in order; the agent's grace is longer.
        await asyncio.wait_for(client.process.wait(), 45)
        await gone(everybody, 15)


async def test_when_the_editor_leaves_while_the_agent_starts_nothing_is_left(
    journal: Path,
) -> None:
    agent = scripted_agent(initialize="never", deaf=True)
    async with editor(lone_command(agent), journal=journal) as client:
        client.begin("initialize", {"protocolVersion": 1})
        everybody = await until(lambda: below(client.process.pid))
        await end_of_input(client)
        await asyncio.wait_for(client.process.wait(), 10)
        await gone(everybody, 5)


async def test_when_the_editor_leaves_while_a_question_is_open_nothing_is_left(
    journal: Path,
) -> None:
    async with editor(lone_command(scripted_agent()), journal=journal) as client:
        client.answers["session/request_permission"] = lambda _: asyncio.Event().wait()
        await client.initialize()
        session = await client.new()
        question = {"toolCall": {"toolCallId": "t"}, "options": []}
        client.begin_prompt(session, {"ask": ["session/request_permission", question]})
        await client.until(
            lambda: [m for m in client.messages if m.get("method") == "session/request_permission"]
        )
        everybody = below(client.process.pid)
        await end_of_input(client)
        assert await asyncio.wait_for(client.process.wait(), 10) == 0
        await gone(everybody, 5)


async def test_a_request_that_is_piped_in_is_answered_though_its_end_came_before_the_answer(
    journal: Path,
) -> None:
    slow = ["sh", "-c", 'sleep 1; exec "$@"', "sh", *scripted_agent()]
    async with editor(lone_command(slow), journal=journal) as client:
        answer = client.begin("initialize", {"protocolVersion": 1})
        await end_of_input(client)
        assert (await asyncio.wait_for(answer, 20))["protocolVersion"] == 1
        assert await asyncio.wait_for(client.process.wait(), 10) == 0
