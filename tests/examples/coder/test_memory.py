"""The coding agent's model remembers across restarts, kills and interrupted turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.errors import RemoteError
from acphold.testing import connect
from tests.examples.coder.scripted import Script, call

CUT_OFF = "tool: The tool call was interrupted before a result was produced."


async def test_a_turn_that_is_killed_in_a_tool_remembers_the_call(tmp_path: Path) -> None:
    script = Script(["Run.", call("shell", command="sleep 100")], "ok")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path)
        session.prompt("go")
        await session.until(
            lambda told: [made.status for made in told.tool_calls] == ["in_progress"]
        )
        await client.restart(kill=True)
        session = await client.load_session(session.id)
        await session.prompt("well?")
    assert script.given() == [
        "user: go",
        "model: Run.",
        'call: shell {"command":"sleep 100"}',
        CUT_OFF,
        "user: well?",
    ]


async def test_each_message_is_kept_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    script = Script("answer", [call("read", path="a.txt")], "answer", "answer")
    agent = script.agent()
    async with connect(agent) as client:
        session = await client.new_session(tmp_path)
        for prompt in ("FIRST", "second", "third"):
            await session.prompt(prompt)
        kept = agent.session(session.id).store["messages"]
    kinds = [message["kind"] for message in kept]
    assert kinds == ["request", "response"] * 4
    assert str(kept).count("FIRST") == 1
    assert not any("instructions" in message for message in kept)


async def test_a_memory_that_cannot_be_read_is_reported_and_can_be_cleared() -> None:
    script = Script("one", "two")
    agent = script.agent()
    async with connect(agent) as client:
        session = await client.new_session()
        await session.prompt("first")
        agent.session(session.id).store["messages"] = [{"kind": "of a later release"}]
        with pytest.raises(RemoteError, match="the memory is unreadable, /clear it"):
            await session.prompt("second")
        await session.prompt("/clear")
        assert (await session.prompt("third")).text == "two"


async def test_a_character_that_came_in_two_halves_is_whole_again() -> None:
    script = Script(["so \ud83d", "\ude00 and \ud83d"], "ok")
    async with connect(script.agent()) as client:
        session = await client.new_session()
        assert (await session.prompt("smile")).stop_reason == "end_turn"
        await session.prompt("on")
    assert script.given() == ["user: smile", "model: so \U0001f600 and \ufffd", "user: on"]
