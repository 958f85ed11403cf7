"""Files and terminals: asked of a client that can, else served here, as the agent was told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.timeline import ToolCall
from acphold.errors import (
    ConnectionLostError,
    MethodNotFoundError,
    OutsideRootsError,
    UnknownTerminalError,
)
from acphold.journal.journal import state_of
from acphold.live.agents.interface import Updates
from tests.hub.shared import Onlooker, Shared, methods, shared

READ, WRITE = "fs/read_text_file", "fs/write_text_file"
READS: dict[str, Any] = {"fs": {"readTextFile": True}}
ALL: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}

DEADLINE = 30


def never(_: dict[str, Any]) -> Any:
    return asyncio.get_running_loop().create_future()


def lost(house: Shared, client: Onlooker) -> None:
    """The client's connection is lost; its turn goes on."""
    house.hub.detach(client.connection)


def asked(house: Shared, method: str, session: str, **params: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(house.agent.ask_client(method, sessionId=session, **params))


@pytest.mark.parametrize("can", [True, False])
async def test_a_file_is_asked_of_the_client_that_prompted_or_of_another_if_it_cannot(
    can: bool, house: Shared
) -> None:
    one, two = await house.client(**READS), await house.client(**(READS if can else {}))
    one.answers[READ] = lambda _: {"content": "one"}
    two.answers[READ] = lambda _: {"content": "two"}
    session = await one.new()
    await two.load(session)
    await house.begun(two, session, "read")
    answer = await house.agent.ask_client(READ, sessionId=session, path="/a")
    assert answer == {"content": "two" if can else "one"}
    assert READ not in methods(one if can else two)


async def test_a_file_that_is_asked_of_a_client_that_goes_is_asked_of_the_next(
    house: Shared,
) -> None:
    one, two = await house.client(**READS), await house.client(**READS)
    one.answers[READ] = never
    two.answers[READ] = lambda _: {"content": "two"}
    session = await house.at_work(one)
    await two.load(session)
    reading = asked(house, READ, session, path="/a")
    await one.until(lambda: READ in methods(one))
    lost(house, one)
    assert await reading == {"content": "two"}


async def test_files_are_served_inside_the_sessions_folders_while_nobody_is_there(
    tmp_path: Path, house: Shared
) -> None:
    (root := tmp_path / "project").mkdir()
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("no")
    client = await house.client(**ALL)
    session = await house.at_work(client, root)
    lost(house, client)
    ask = house.agent.ask_client
    some = await ask(READ, sessionId=session, path=f"{root}/a.txt", line=2, limit=1)
    assert some == {"content": "two\n"}
    await ask(WRITE, sessionId=session, path=f"{root}/new/b.txt", content="b")
    assert (root / "new" / "b.txt").read_text() == "b"
    with pytest.raises(OutsideRootsError):
        await ask(READ, sessionId=session, path=f"{tmp_path}/secret.txt")
    with pytest.raises(OutsideRootsError):
        await ask(WRITE, sessionId=session, path=f"{tmp_path}/new.txt", content="")


async def test_what_the_agent_was_told_stays_true_for_a_client_that_can_less(
    tmp_path: Path, house: Shared
) -> None:
    (tmp_path / "a.txt").write_text("here")
    one, two = await house.client(**READS), await house.client()
    session = await house.at_work(two, tmp_path)
    answer = await house.agent.ask_client(READ, sessionId=session, path=f"{tmp_path}/a.txt")
    assert answer == {"content": "here"}
    assert READ not in methods(one) + methods(two)


async def test_nothing_is_served_that_the_agent_was_not_told_of(
    journal: Path, tmp_path: Path
) -> None:
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        client = await house.client(**READS)
        session = await house.at_work(client, tmp_path)
        lost(house, client)
        ask = house.agent.ask_client
        with pytest.raises(MethodNotFoundError):
            await ask(WRITE, sessionId=session, path=f"{tmp_path}/a", content="")
        with pytest.raises(MethodNotFoundError):
            await ask("terminal/create", sessionId=session, command="ls")
        with pytest.raises(MethodNotFoundError):
            await ask("terminal/vendor", sessionId=session)
    assert not (tmp_path / "a").exists()


async def test_a_command_runs_here_while_nobody_is_there_and_what_it_shows_is_kept(
    tmp_path: Path, house: Shared
) -> None:
    client = await house.client(**ALL)
    session = await house.at_work(client, tmp_path)
    lost(house, client)
    ask = house.agent.ask_client
    command = {"command": "/bin/sh", "args": ["-c", "echo $PWD; exit 3"]}
    made = await ask("terminal/create", sessionId=session, **command)
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "echo",
        "content": [{"type": "terminal", **made}],
    }
    await house.agent.listener.hear(Updates(session, "update", [json.dumps(call).encode()]))
    ended = await ask("terminal/wait_for_exit", sessionId=session, **made)
    assert ended == {"exitCode": 3}
    shown = await ask("terminal/output", sessionId=session, **made)
    assert shown["output"] == f"{tmp_path}\n"
    assert await ask("terminal/release", sessionId=session, **made) == {}
    with pytest.raises(UnknownTerminalError):
        await ask("terminal/output", sessionId=session, **made)
    state = await state_of(house.journal, session)
    [item] = [item for item in state.timeline if isinstance(item, ToolCall)]
    assert str(tmp_path) in b"".join(item.content).decode()
    two = await house.client()
    await two.load(session, tmp_path)
    assert f"{tmp_path}\\n" in json.dumps(two.updates())


async def test_a_command_that_runs_here_is_killed_and_ends_with_the_session(
    tmp_path: Path, house: Shared
) -> None:
    client = await house.client(**ALL)
    session = await house.at_work(client, tmp_path)
    lost(house, client)
    ask = house.agent.ask_client
    sleep = {"command": "sleep", "args": ["600"]}
    one = await ask("terminal/create", sessionId=session, **sleep)
    two = await ask("terminal/create", sessionId=session, **sleep)
    waiting = asked(house, "terminal/wait_for_exit", session, **one)
    assert await ask("terminal/kill", sessionId=session, **one) == {}
    assert (await waiting)["signal"]
    other = asked(house, "terminal/wait_for_exit", session, **two)
    await asyncio.sleep(0)
    closer = await house.client()
    await closer.call("session/close", {"sessionId": session})
    assert (await other)["signal"]


async def test_when_the_client_of_a_terminal_goes_every_call_about_it_ends_at_once(
    house: Shared,
) -> None:
    one, two = await house.client(**ALL), await house.client(**ALL)
    one.answers["terminal/create"] = lambda _: {"terminalId": "t"}
    one.answers["terminal/wait_for_exit"] = never
    session = await house.at_work(one)
    await two.load(session)
    await house.agent.ask_client("terminal/create", sessionId=session, command="ls")
    waiting = asked(house, "terminal/wait_for_exit", session, terminalId="t")
    await one.until(lambda: "terminal/wait_for_exit" in methods(one))
    lost(house, one)
    with pytest.raises(UnknownTerminalError, match="is gone"):
        await waiting
    for name in ("output", "wait_for_exit", "kill"):
        with pytest.raises(UnknownTerminalError, match="is gone"):
            await asked(house, f"terminal/{name}", session, terminalId="t")
    assert await asked(house, "terminal/release", session, terminalId="t") == {}
    assert [method for method in methods(two) if method.startswith("terminal/")] == []


async def test_a_command_that_was_asked_of_a_client_that_goes_is_not_run_twice(
    house: Shared,
) -> None:
    one, two = await house.client(**ALL), await house.client(**ALL)
    one.answers["terminal/create"] = never
    session = await house.at_work(one)
    await two.load(session)
    making = asked(house, "terminal/create", session, command="ls")
    await one.until(lambda: "terminal/create" in methods(one))
    lost(house, one)
    with pytest.raises(ConnectionLostError):
        await making
    assert "terminal/create" not in methods(two)


async def test_folders_that_a_client_opens_the_session_with_count_from_then_on(
    tmp_path: Path, house: Shared
) -> None:
    (more := tmp_path / "more").mkdir()
    (more / "a.txt").write_text("more")
    (root := tmp_path / "root").mkdir()
    house.agent.can("additionalDirectories")
    client, session = await house.opened(root, **READS)
    lost(house, client)
    read = {"sessionId": session, "path": f"{more}/a.txt"}
    with pytest.raises(OutsideRootsError):
        await house.agent.ask_client(READ, **read)
    two = await house.client()
    await two.load(session, root, additionalDirectories=[str(more)])
    assert await house.agent.ask_client(READ, **read) == {"content": "more"}
