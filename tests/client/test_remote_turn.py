"""Prompts and their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from acp_wire.schema import AgentMessageChunk, TextContent, ToolCallStart
from acp_wire.schema.updates import UnknownUpdate
from acphold.errors import (
    AcpError,
    AgentBusyError,
    AgentTimeoutError,
    AuthRequiredError,
    ConnectionLostError,
    RemoteError,
)
from tests.client.far_agent import FarAgent, Refusal, in_session, talking


def texts(updates: list[Any]) -> list[str]:
    said = [update.content for update in updates if isinstance(update, AgentMessageChunk)]
    return [content.text for content in said if isinstance(content, TextContent)]


async def read(updates: AsyncIterator[Any]) -> tuple[list[Any], AcpError | None]:
    """All updates, and the error at the end, if any."""
    found: list[Any] = []
    try:
        async for update in updates:
            found.append(update)  # noqa: PERF401 — also what came before an error
    except AcpError as error:
        return found, error
    return found, None


async def test_a_prompt_is_an_iterator_of_typed_updates_with_a_stop_reason_at_the_end() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "one ")
        agent.update("s1", "tool_call", toolCallId="t", title="Read", kind="read")
        agent.say("s1", "two")
        return {"stopReason": "max_tokens"}

    async with in_session(far) as session:
        turn = session.prompt("go")
        assert turn.stop_reason is None
        updates = [update async for update in turn]
    first, call, second = updates
    assert first == AgentMessageChunk(content=TextContent(text="one "))
    assert isinstance(call, ToolCallStart)
    assert (call.title, call.kind) == ("Read", "read")
    assert isinstance(second, AgentMessageChunk)
    assert turn.stop_reason == "max_tokens"
    assert turn.text == "one two"


async def test_a_notice_stands_in_for_an_update_over_the_limit() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "one ")
        agent.say("s1", "x" * 20_000)
        agent.say("s1", "two")
        return {"stopReason": "end_turn"}

    async with in_session(far, max_message=10_000) as session:
        turn = session.prompt("go")
        first, notice, second = [update async for update in turn]
    assert texts([first, second]) == ["one ", "two"]
    assert "over the limit of 10000" in str(notice)
    assert turn.text == "one two"


async def test_every_update_before_the_answer_comes_before_the_end_and_none_after_it() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        for number in range(500):
            agent.say("s1", f"{number} ")
        agent.send(id=agent.got[-1]["id"], result={"stopReason": "end_turn"})
        agent.say("s1", "late")
        await asyncio.Event().wait()

    async with in_session(far) as session:
        live = session.updates()
        turn = session.prompt("go")
        updates = [update async for update in turn]
        assert texts(updates) == [f"{number} " for number in range(500)]
        seen = []
        async for update in live:
            seen.append(update)
            if texts([update]) == ["late"]:
                break
        assert len(seen) == 501  # behind the turn it is an update of the session all the same


async def test_what_the_agent_refuses_is_raised_after_its_last_update() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "I try")
        raise Refusal(-32603, "model overloaded")

    async with in_session(far) as session:
        updates, error = await read(session.prompt("go"))
        assert isinstance(error, RemoteError)
        assert str(error) == "model overloaded"
        assert texts(updates) == ["I try"]
        far.acts.clear()
        assert (await session.prompt("again")).text == "heard again"


async def test_a_sign_in_that_is_wanted_is_an_error_of_its_own_that_names_the_methods() -> None:
    far = FarAgent(authMethods=[{"id": "oauth", "name": "Sign in"}])

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        raise Refusal(-32000, "Authentication required")

    async with in_session(far) as session:
        with pytest.raises(AuthRequiredError, match="'oauth'"):
            await session.prompt("go")


async def test_a_second_prompt_is_not_sent_while_a_turn_runs() -> None:
    far = FarAgent()
    go_on = asyncio.Event()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await go_on.wait()
        return {"stopReason": "end_turn"}

    async with in_session(far) as session:
        turn = session.prompt("one")
        with pytest.raises(AgentBusyError, match="is running"):
            session.prompt("two")
        go_on.set()
        await turn
        await session.prompt("three")
        assert far.methods().count("session/prompt") == 2


async def test_an_update_that_breaks_the_schema_or_is_newer_is_handed_on_as_it_came() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.update("s1", "from_the_future", what=1)
        agent.update("s1", "tool_call", title="without an id")
        agent.line('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1"}}')
        agent.line("this is no JSON")
        return {"stopReason": "end_turn"}

    async with in_session(far) as session:
        newer, broken = [update async for update in session.prompt("go")]
        assert isinstance(newer, UnknownUpdate)
        assert newer.kind == "from_the_future"
        assert isinstance(broken, UnknownUpdate)
        assert broken.kind == "tool_call"


async def test_two_sessions_are_prompted_at_once_and_each_gets_its_own() -> None:
    far = FarAgent()
    both = asyncio.Barrier(2)

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await both.wait()
        for number in range(3):
            agent.say(params["sessionId"], f"{params['sessionId']}-{number} ")
            await asyncio.sleep(0)
        return {"stopReason": "end_turn"}

    async with talking(far) as agent:
        one, two = await agent.new_session("/tmp"), await agent.new_session("/tmp")
        first, second = await asyncio.gather(*[session.prompt("go") for session in (one, two)])
        assert first.text == "s1-0 s1-1 s1-2 "
        assert second.text == "s2-0 s2-1 s2-2 "


async def test_an_agent_that_leaves_in_a_turn_ends_it_with_an_error() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "half")
        await agent.leave()

    async with talking(far) as agent:
        session = await agent.new_session("/tmp")
        live = session.updates()
        updates, error = await read(session.prompt("go"))
        assert isinstance(error, ConnectionLostError)
        assert texts(updates) == ["half"]
        assert (await read(live))[1] is error
        assert agent.is_lost
        with pytest.raises(ConnectionLostError):
            await session.prompt("again")
        with pytest.raises(ConnectionLostError):
            await agent.new_session("/tmp")


# -- nobody waits for it any more --------------------------------------------------------------


async def until_cancelled(agent: FarAgent, params: dict[str, Any]) -> Any:
    agent.say("s1", "I think")
    await agent.cancelled.wait()
    agent.cancelled.clear()
    agent.say("s1", " no more")
    return {"stopReason": "cancelled"}


def one_that_thinks() -> FarAgent:
    """At its first prompt until it is cancelled."""
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        del agent.acts["session/prompt"]
        return await until_cancelled(agent, params)

    return far


async def test_whoever_is_cancelled_while_it_awaits_a_turn_cancels_the_turn() -> None:
    far = one_that_thinks()
    async with in_session(far) as session:
        turn = session.prompt("go")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await turn
        assert (turn.stop_reason, turn.text) == ("cancelled", "I think no more")
        assert (await session.prompt("again")).text == "heard again"
    assert far.methods().count("session/cancel") == 1


async def test_a_task_that_awaits_a_turn_can_be_cancelled_also_with_a_deaf_agent() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    async with in_session(far, cancel_grace=0.01, silence=0.05) as session:

        async def run() -> None:
            await session.prompt("go")

        task = asyncio.create_task(run())
        await far.until("session/prompt")
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        with pytest.raises(AgentBusyError, match="was cancelled, but the agent has not ended it"):
            await session.prompt("again")  # the agent would lose it
        session.cancel()
        assert far.methods().count("session/prompt") == 1


async def test_a_prompt_follows_a_cancelled_turn_without_a_wait_in_between() -> None:
    async with in_session(one_that_thinks()) as session:
        turn = session.prompt("go")
        session.cancel()
        again = session.prompt("again")
        assert (await again).text == "heard again"
        assert (turn.stop_reason, turn.text) == ("cancelled", "I think no more")


async def test_a_prompt_that_waits_for_a_cancelled_turn_can_be_cancelled_too() -> None:
    far = one_that_thinks()
    async with in_session(far) as session:
        turn, again = session.prompt("go"), None
        session.cancel()
        again = session.prompt("again")
        session.cancel()
        assert (await again).stop_reason == "cancelled"
        assert (await turn).stop_reason == "cancelled"
        assert (await session.prompt("third")).text == "heard third"
    assert far.methods().count("session/prompt") == 2


async def test_a_turn_that_takes_longer_than_it_may_is_cancelled_and_says_so() -> None:
    async with in_session(one_that_thinks()) as session:
        turn = session.prompt("go", timeout=0.01)
        updates, error = await read(turn)
        assert isinstance(error, AgentTimeoutError)
        assert (error.method, error.seconds) == ("session/prompt", 0.01)
        assert texts(updates) == ["I think", " no more"]
        assert turn.stop_reason == "cancelled"
        assert (await session.prompt("again", timeout=30)).text == "heard again"


async def test_a_turn_in_which_the_agent_is_silent_for_too_long_is_cancelled() -> None:
    async with in_session(one_that_thinks(), silence=0.05) as session:
        with pytest.raises(AgentTimeoutError):
            await session.prompt("go")
        assert (await session.prompt("again")).text == "heard again"


async def test_an_agent_that_waits_for_a_person_is_not_silent() -> None:
    far = FarAgent()

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        tool = {"toolCallId": "t", "title": "Read"}
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        await agent.ask(
            "session/request_permission", sessionId="s1", toolCall=tool, options=options
        )
        return {"stopReason": "end_turn"}

    async def decide(_: object) -> bool:
        await asyncio.sleep(0.2)  # as a person thinks
        return True

    async with in_session(far, silence=0.02, on_permission=decide) as session:
        assert (await session.prompt("go")).stop_reason == "end_turn"
