"""The agent ends while it is needed, or while it is not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Editor, Refused, agent_pid, introduced, scripted_agent
from tests.owners import lone_command
from tests.watched_processes import gone, lives, methods, until, written_pid

TOOL = {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Build", "status": "pending"}
DONE = {"sessionUpdate": "tool_call", "toolCallId": "t2", "title": "Read", "status": "completed"}

MEMORIES: dict[str, dict[str, Any]] = {
    "without a memory": {},
    "that can load": {"loadSession": True},
    "that can resume": {"sessionCapabilities": {"resume": {}}},
}


async def died(client: Editor, session: str, *steps: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await client.prompt(session, *steps)
    return caught.value


def statuses(client: Editor) -> list[tuple[str, str]]:
    return [
        (update["toolCallId"], update["status"])
        for update in client.updates()
        if "toolCallId" in update
    ]


async def test_the_prompt_is_answered_with_exit_status_and_last_stderr_lines(
    client: Editor,
) -> None:
    session = await client.new()
    said = [{"stderr": f"line {number}"} for number in range(30)]
    error = await died(client, session, {"say": "before"}, *said, {"exit": 3})
    assert "exit status 3" in error.message
    assert "line 29" in error.message
    assert error.data["status"] == "exit status 3"
    assert error.data["stderr"].splitlines() == [f"line {number}" for number in range(20, 30)]
    assert client.text() == "before"
    assert await client.leave() == 0


async def test_open_tool_calls_are_closed_as_failed_live_and_in_the_replay(client: Editor) -> None:
    session = await client.new()
    await died(client, session, {"update": TOOL}, {"update": DONE}, {"exit": 3})
    assert statuses(client) == [("t1", "pending"), ("t2", "completed"), ("t1", "failed")]
    place = len(client.messages)
    await client.load(session)
    replayed = [
        message["params"]["update"]
        for message in client.messages[place:]
        if message.get("method") == "session/update"
    ]
    last = {u["toolCallId"]: u["status"] for u in replayed if "toolCallId" in u}
    assert last == {"t1": "failed", "t2": "completed"}


@pytest.mark.parametrize("memory", MEMORIES)
async def test_the_next_prompt_starts_the_agent_again_and_restores_the_session(
    journal: Path, tmp_path: Path, memory: str
) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    agent = scripted_agent(log=str(log), store=str(store), capabilities=MEMORIES[memory])
    async with introduced(lone_command(agent), journal=journal) as client:
        session = await client.talk({"say": "the word is plum"})
        for when in ("in a turn", "between turns"):
            first, before = agent_pid(client), len(methods(log))
            if when == "in a turn":
                await died(client, session, {"say": "half"}, {"exit": 1})
            else:
                os.kill(first, 9)
            await gone({first})
            place, said = len(client.messages), len(client.text())
            assert await client.prompt(session, "what is the word?") == {"stopReason": "end_turn"}
            assert agent_pid(client) != first
            since = [m for m in client.messages[place:] if m.get("method") == "session/update"]
            assert {m["params"]["sessionId"] for m in since} == {session}
            restored = methods(log)[methods(log).index("initialize", before) :]
            opening = {"that can load": "session/load", "that can resume": "session/resume"}
            if memory == "without a memory":
                assert restored == ["initialize", "session/new", "session/prompt"]
                assert "the word is plum" in client.text()[said:]
            else:
                assert restored == ["initialize", opening[memory], "session/prompt"]
                assert "plum" not in client.text()[said:]  # its own replay is kept from the client


@pytest.mark.parametrize("memory", ["that can load", "that can resume"])
async def test_an_agent_that_dies_while_restoring_is_started_again_and_goes_on_without_a_memory(
    journal: Path, tmp_path: Path, memory: str
) -> None:
    trap, log = tmp_path / "trap", tmp_path / "log"
    method = "session/load" if memory == "that can load" else "session/resume"
    agent = scripted_agent(
        log=str(log),
        store=str(tmp_path / "store"),
        capabilities=MEMORIES[memory],
        exit_on={method: str(trap)},
    )
    async with introduced(lone_command(agent), journal=journal) as client:
        session = await client.talk({"say": "the word is plum"})
        await died(client, session, {"exit": 1})
        trap.touch()
        assert await client.prompt(session, "what is the word?") == {"stopReason": "end_turn"}
        assert methods(log)[-5:] == [
            "initialize",
            method,
            "initialize",
            "session/new",
            "session/prompt",
        ]
        assert "the word is plum" in client.text()[len("the word is plum") :]


async def test_an_agent_that_dies_at_every_prompt_fails_each_of_them_and_never_the_connection(
    client: Editor,
) -> None:
    session = await client.new()
    for status in (4, 5, 6):
        error = await died(client, session, {"exit": status})
        assert error.data["status"] == f"exit status {status}"
    assert [info["sessionId"] for info in await client.sessions()] == [session]


async def test_an_agent_that_cannot_be_started_again_fails_the_prompt_and_not_the_history(
    journal: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    agent = scripted_agent(exit_on={"initialize": str(trap)})
    async with introduced(lone_command(agent), journal=journal) as client:
        session = await client.talk({"say": "kept"})
        await died(client, session, {"exit": 1})
        trap.touch()
        error = await died(client, session, "again")
        assert "initialize" in error.message
        assert "exit status 9" in error.message
        await client.load(session)
        assert client.text() == "keptkept"
        assert await client.prompt(session, {"say": "!"}) == {"stopReason": "end_turn"}


async def test_other_sessions_of_the_agent_fail_too_and_go_on_too(client: Editor) -> None:
    one, two = await client.new(), await client.new()
    waiting = client.begin_prompt(one, {"say": "waits"}, {"until": "cancel"})
    await client.until_text("waits")
    await died(client, two, {"exit": 8})
    with pytest.raises(Refused, match="exit status 8"):
        await waiting
    for session in (one, two):
        assert await client.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}


async def test_what_was_asked_of_the_client_is_taken_back(client: Editor) -> None:
    session = await client.new()
    client.answers.clear()
    permission = {"toolCall": {"toolCallId": "t"}, "options": []}
    client.answers["session/request_permission"] = lambda _: asyncio.Event().wait()
    turn = client.begin_prompt(session, {"ask": ["session/request_permission", permission]})
    asked = await client.until(
        lambda: [m for m in client.messages if m.get("method") == "session/request_permission"]
    )
    os.kill(agent_pid(client), 9)
    with pytest.raises(Refused, match="SIGKILL"):
        await turn
    await client.until(
        lambda: any(
            m.get("method") == "$/cancel_request" and m["params"]["requestId"] == asked[0]["id"]
            for m in client.messages
        )
    )


async def test_a_child_that_holds_the_stdout_of_a_dead_agent_does_not_keep_the_turn(
    journal: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    async with introduced(lone_command(scripted_agent()), journal=journal) as client:
        session = await client.new()
        loud = {"spawn loud": f"echo $$ > {pid_file}; exec sleep 1000"}
        turn = client.begin_prompt(session, loud, {"until": str(pid_file)}, {"exit": 3})
        child = await written_pid(pid_file)
        with pytest.raises(Refused, match="exit status 3"):
            await turn
        assert await client.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}
        await gone({child})
        assert await client.leave() == 0


async def test_an_agent_that_closes_its_stdout_is_ended_and_started_again(client: Editor) -> None:
    session = await client.new()
    first = agent_pid(client)
    error = await died(client, session, {"close": 1})
    assert "closed its stdout" in error.message
    assert lives(first)
    assert await client.prompt(session, {"say": "on"}) == {"stopReason": "end_turn"}
    await until(lambda: not lives(first))
