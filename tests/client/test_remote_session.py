"""A session: cancelling, modes, options, its state, its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acp_wire.schema import AgentMessageChunk, SessionConfigBoolean, SessionConfigSelect
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import AgentBusyError, ConnectionLostError, RemoteError
from tests.client.far_agent import ALL, FarAgent, Refusal, in_session, talking

MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}


def select(current: str, **more: Any) -> dict[str, Any]:
    """An option with two values."""
    values = [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}]
    option = {"id": "m", "name": "Mode", "type": "select", "currentValue": current}
    return {**option, "options": values, **more}


# -- cancelling -----------------------------------------------------------------------------


async def test_cancelling_marks_tools_at_once_and_takes_what_still_comes() -> None:
    far, started = FarAgent(), asyncio.Event()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.update("s1", "tool_call", toolCallId="a", title="A", status="in_progress")
        agent.update("s1", "tool_call", toolCallId="b", title="B")
        started.set()
        await agent.cancelled.wait()
        agent.update("s1", "tool_call_update", toolCallId="a", status="failed")
        agent.say("s1", "stopped")
        return {"stopReason": "cancelled"}

    async with in_session(far) as session:
        turn = session.prompt("go")
        await started.wait()
        await anext(turn)
        await anext(turn)
        session.cancel()
        assert statuses(session.state) == {"a": "cancelled", "b": "cancelled"}
        rest = [update async for update in turn]
        assert len(rest) == 2
        assert turn.stop_reason == "cancelled"
        assert statuses(session.state) == {"a": "failed", "b": "cancelled"}
        assert turn.text == "stopped"


def statuses(state: Any) -> dict[str, str]:
    """Of all tool calls, by id."""
    return {tool.tool_call_id: tool.status for tool in state.timeline if isinstance(tool, ToolCall)}


async def test_an_agent_that_does_not_answer_a_cancelled_turn_is_not_waited_for() -> None:
    far, go_on = FarAgent(), asyncio.Event()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await go_on.wait()
        agent.say("s1", "late")
        return {"stopReason": "end_turn"}

    async with talking(far, cancel_grace=0.05) as agent:
        session = await agent.new_session("/tmp")
        live = session.updates()
        turn = session.prompt("go")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        again = session.prompt("again")
        with pytest.raises(AgentBusyError, match="waits"):
            session.prompt("and again")
        session.cancel()
        assert (await again).stop_reason == "cancelled"
        again = session.prompt("again")
        await agent.new_session("/tmp")
        assert far.methods().count("session/prompt") == 1  # the agent would lose the second one
        far.acts.clear()
        go_on.set()
        assert isinstance(await anext(live), AgentMessageChunk)
        assert (await again).text == "heard again"
        assert turn.text == ""


async def test_cancelling_without_a_turn_is_told_to_the_agent_all_the_same() -> None:
    far = FarAgent()
    async with in_session(far) as session:
        session.cancel()  # a turn of another client, it may be
        await far.until("session/cancel")
        assert far.params("session/cancel") == {"sessionId": "s1"}
        assert (await session.prompt("hello")).text == "heard hello"


# -- modes and options ----------------------------------------------------------------------


async def test_a_mode_is_set_and_stands_without_another_word_of_the_agent() -> None:
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessionId": "s1", "modes": MODES}

    @far.on("session/set_mode")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        if params["modeId"] == "root":
            raise Refusal(-32602, "no such mode")
        return {}

    async with in_session(far) as session:
        assert session.mode == "ask"
        assert [mode.id for mode in session.modes] == ["ask", "code"]
        await session.set_mode("code")
        assert session.mode == "code"
        with pytest.raises(RemoteError, match="no such mode"):
            await session.set_mode("root")
        assert session.mode == "code"
        far.update("s1", "current_mode_update", currentModeId="ask")
        await session.prompt("hello")
        assert session.mode == "ask"


async def test_where_the_mode_is_an_option_too_the_option_is_set() -> None:
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        options = [select("ask", category="mode")]
        return {"sessionId": "s1", "modes": MODES, "configOptions": options}

    @far.on("session/set_config_option")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"configOptions": [select(params["value"], category="mode")]}

    async with in_session(far) as session:
        await session.set_mode("code")
        [option] = session.config_options
        assert option.current_value == "code"
    assert "session/set_mode" not in far.methods()
    assert far.params("session/set_config_option") == {
        "sessionId": "s1",
        "configId": "m",
        "value": "code",
    }


async def test_options_are_those_of_known_types_as_they_stand_last() -> None:
    far = FarAgent()
    flag = {"id": "f", "name": "Fast", "type": "boolean", "currentValue": False}
    odd = {"id": "o", "name": "Odd", "type": "slider", "currentValue": 3}

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        options = [select("ask", category="from the future"), odd, flag, {"id": "broken"}]
        return {"sessionId": "s1", "configOptions": options}

    @far.on("session/set_config_option")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"configOptions": [{**flag, "currentValue": params["value"]}]}

    async with in_session(far) as session:
        mode, fast = session.config_options
        assert isinstance(mode, SessionConfigSelect)
        assert isinstance(fast, SessionConfigBoolean)
        [fast] = await session.set_option("f", True)
        assert fast.current_value is True
        assert far.params("session/set_config_option")["type"] == "boolean"
        far.update("s1", "config_option_update", configOptions=[select("code")])
        await session.prompt("hello")
        [mode] = session.config_options
        assert mode.current_value == "code"
    session_part = far.params("initialize")["clientCapabilities"]["session"]
    assert session_part["configOptions"] == {"boolean": {}}


# -- its state ------------------------------------------------------------------------------


async def test_the_state_has_plan_commands_usage_and_title() -> None:
    far = FarAgent()
    entry = {"content": "Look", "priority": "high", "status": "pending"}
    async with in_session(far) as session:
        empty = (session.plan, session.commands, session.usage, session.title)
        assert empty == ((), (), None, None)
        far.update("s1", "plan", entries=[entry, {**entry, "content": "Leap"}])
        far.update("s1", "plan", entries=[{**entry, "status": "completed"}])
        far.update(
            "s1",
            "available_commands_update",
            availableCommands=[{"name": "web", "description": "Search", "input": {"hint": "q"}}],
        )
        far.update("s1", "usage_update", used=10, size=100, cost={"amount": 0.5, "currency": "EUR"})
        far.update("s1", "session_info_update", title="A talk")
        await session.prompt("hello")
        assert [(entry.content, entry.status) for entry in session.plan] == [("Look", "completed")]
        assert [command.name for command in session.commands] == ["web"]
        assert session.usage is not None
        assert (session.usage.used, session.usage.size) == (10, 100)
        assert session.title == "A talk"


async def test_each_reader_of_a_session_gets_every_update() -> None:
    async with in_session(FarAgent()) as session:
        one, two = session.updates(), session.updates()
        turn = session.prompt("hello")
        updates = [update async for update in turn]
        assert [await anext(one)] == [await anext(two)] == updates


async def test_what_was_kept_for_a_reader_who_never_came_is_dropped_when_it_is_much() -> None:
    far = FarAgent()
    async with in_session(far) as session:
        for _ in range(300):
            far.say("s1", "x" * 1000)
            await far.drain()
        await session.prompt("hello")
        late = session.updates()
        far.say("s1", "now")
        update = await anext(late)
        assert isinstance(update, AgentMessageChunk)
        assert getattr(update.content, "text", "") == "now"


# -- its end --------------------------------------------------------------------------------


async def test_closing_ends_the_turn_and_the_readers() -> None:
    far = FarAgent(ALL)

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    async with in_session(far) as session:
        live = session.updates()
        turn = session.prompt("go")
        await session.close()
        assert (await turn).stop_reason == "cancelled"
        assert [update async for update in live] == []
        assert [update async for update in session.updates()] == []
        with pytest.raises(ConnectionLostError, match="was closed"):
            await session.prompt("again")
    assert far.methods()[-1] == "session/close"
