"""A connection over the restarts of its agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

import pytest

from acp_wire.rpc import Peer, Transport
from acp_wire.schema import AgentMessageChunk
from acp_wire.transports.streams import memory_pair
from acphold.client import Options, RemoteAgent, connect, connected_to
from acphold.client.uplink import Endpoint
from acphold.conversation.history.timeline import Message
from acphold.errors import (
    AcpError,
    AgentExitedError,
    AgentStartError,
    CapabilityError,
    ConnectionLostError,
    RemoteError,
)
from tests.client.far_agent import ALL, DEADLINE, FarAgent, Refusal
from tests.editor import scripted_agent


class Lives(Endpoint):
    """A far end that is another agent each time it is opened; None is one that cannot start."""

    name = "far"
    cwd: str | None = "/tmp"
    is_repeatable = True
    is_acphold = False

    def __init__(self, *agents: FarAgent | None) -> None:
        self._left = list(agents)
        self._running: asyncio.Task[None] | None = None
        self._transport: Transport | None = None

    async def open(self) -> Transport:
        agent = self._left.pop(0)
        if agent is None:
            raise AgentStartError("far cannot be started")
        self._transport, theirs = memory_pair()
        self._running = asyncio.create_task(agent.run(theirs))
        return self._transport

    async def follow(self, peer: Peer, pump: asyncio.Task[None]) -> None:
        await asyncio.wait([pump])

    async def how_it_ended(self) -> AcpError:
        return AgentExitedError("far ended (signal SIGKILL)", "signal SIGKILL", "")

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._transport is not None:
            await self._transport.aclose()


@asynccontextmanager
async def living(
    *agents: FarAgent | None, **options: Unpack[Options]
) -> AsyncIterator[RemoteAgent]:
    """A client of one agent after the other, with a deadline."""
    try:
        async with asyncio.timeout(DEADLINE), connected_to(Lives(*agents), **options) as remote:
            yield remote
    finally:
        for agent in agents:
            if agent is not None:
                await agent.end()


def dying(capabilities: dict[str, Any] | None = None) -> FarAgent:
    """An agent that goes in the middle of its first turn."""
    far = FarAgent(ALL if capabilities is None else capabilities)

    @far.on("session/prompt")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "half")
        await agent.leave()
        await asyncio.Event().wait()

    return far


async def test_a_lost_agent_is_started_again_and_its_sessions_are_loaded() -> None:
    second = FarAgent(ALL)

    @second.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "only what the agent kept", kind="user_message_chunk")
        return {}

    async with living(dying(), second, reconnect=True) as agent:
        session = await agent.new_session("/tmp/work", additional_directories=["/tmp/more"])
        with pytest.raises(AgentExitedError, match="signal SIGKILL"):
            await session.prompt("one")
        turn = await session.prompt("two")
        assert turn.text == "heard two"
        texts = [item.text for item in session.state.timeline if isinstance(item, Message)]
        assert texts == ["one", "half", "two", "heard two"]  # everything seen before stays
        assert len(session.replay) == 1
        assert not agent.is_lost
    assert second.methods() == ["initialize", "session/load", "session/prompt"]
    assert second.params("session/load") == {
        "sessionId": "s1",
        "cwd": "/tmp/work",
        "mcpServers": [],
        "additionalDirectories": ["/tmp/more"],
    }


async def test_the_queue_of_one_that_came_back_counts_also_if_its_journal_went_backwards() -> None:
    first, second = dying(), FarAgent(ALL)

    def tell(agent: FarAgent, held: str, seq: int) -> None:
        params = {"sessionId": "s1", "queue": {"held": held}, "seq": seq}
        agent.send(method="_acphold/queue", params=params)

    @second.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        tell(agent, "older", 3)
        return {}

    async with living(first, second, reconnect=True) as agent:
        session = await agent.new_session("/tmp")
        tell(first, "newer", 9)
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        assert session.queue.state.held == "newer"
        await session.prompt("two")
        assert session.queue.state.held == "older"


async def test_where_acphold_keeps_the_session_its_replay_is_all_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lives, "is_acphold", True)
    second = FarAgent(ALL)

    @second.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "one", kind="user_message_chunk")
        agent.say("s1", "half and what came while nobody was there")
        return {}

    async with living(dying(), second, reconnect=True) as agent:
        session = await agent.new_session("/tmp")
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        await session.prompt("two")
        texts = [item.text for item in session.state.timeline if isinstance(item, Message)]
        assert texts == ["one", "half and what came while nobody was there", "two", "heard two"]


async def test_an_agent_that_cannot_load_is_asked_to_resume() -> None:
    capabilities: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
    second = FarAgent(capabilities)
    async with living(dying(capabilities), second, reconnect=True) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        assert (await session.prompt("two")).text == "heard two"
    assert second.methods()[:2] == ["initialize", "session/resume"]


@pytest.mark.parametrize(
    ("capabilities", "error"), [({}, CapabilityError), ({"loadSession": True}, RemoteError)]
)
async def test_a_session_that_cannot_be_opened_again_is_lost_and_others_are_not(
    capabilities: dict[str, Any], error: type[AcpError]
) -> None:
    second = FarAgent(capabilities)

    @second.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        raise Refusal(-32002, "not found")

    async with living(dying(capabilities), second, reconnect=True) as agent:
        session = await agent.new_session()
        live = session.updates()
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        with pytest.raises(error):
            await session.prompt("two")
        assert isinstance(await anext(live), AgentMessageChunk)
        with pytest.raises(error):
            await anext(live)
        fresh = await agent.new_session()
        assert (await fresh.prompt("three")).text == "heard three"


async def test_a_session_that_was_lost_is_not_asked_for_at_the_next_restart() -> None:
    capabilities = {"loadSession": True}
    second, third = dying(capabilities), FarAgent(capabilities)

    @second.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        raise Refusal(-32002, "not found")

    async with living(dying(capabilities), second, third, reconnect=True) as agent:
        await agent.new_session()
        lost = await agent.new_session()
        for error in (AgentExitedError, RemoteError):
            with pytest.raises(error):
                await lost.prompt("one")
        fresh = await agent.new_session()
        with pytest.raises(AgentExitedError):
            await fresh.prompt("two")
        assert (await fresh.prompt("three")).text == "heard three"
    assert third.methods().count("session/load") == 1


async def test_an_agent_that_cannot_be_started_again_is_tried_again_the_next_time() -> None:
    async with living(dying(), None, FarAgent(ALL), reconnect=True) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        with pytest.raises(AgentStartError):
            await session.prompt("two")
        assert (await session.prompt("three")).text == "heard three"


async def test_those_who_ask_at_the_same_time_get_one_new_agent() -> None:
    async with living(dying(), second := FarAgent(ALL), reconnect=True) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        turn = session.prompt("two")
        await asyncio.gather(turn, agent.new_session(), agent.new_session())
        assert turn.text == "heard two"
    assert second.methods().count("initialize") == 1


async def test_a_prompt_that_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    async with living(dying(), second := FarAgent(ALL), reconnect=True) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError):
            await session.prompt("one")
        turn = session.prompt("two")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        assert (await session.prompt("three")).text == "heard three"
    assert second.methods().count("session/prompt") == 1


async def test_a_program_that_was_killed_is_started_again(tmp_path: Path) -> None:
    command = scripted_agent(store=str(tmp_path / "store"), capabilities={"loadSession": True})
    async with asyncio.timeout(DEADLINE), connect(*command, reconnect=True) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError, match="signal SIGKILL"):
            await session.prompt('[{"say": "half"}, {"kill": 9}]')
        assert (await session.prompt('[{"say": "again"}]')).text == "again"


async def test_requests_after_the_block_say_that_the_connection_is_closed() -> None:
    async with living(FarAgent(ALL), reconnect=True) as agent:
        session = await agent.new_session()
        live = session.updates()
    with pytest.raises(ConnectionLostError, match="was closed"):
        await agent.new_session()
    with pytest.raises(ConnectionLostError, match="was closed"):
        await session.prompt("hello")
    with pytest.raises(ConnectionLostError, match="was closed"):
        await anext(live)
