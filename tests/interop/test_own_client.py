"""The library's client with real agents of others, as they are: nothing of acphold in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import acphold
from acphold.conversation.history.timeline import ToolCall
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import REAL_AGENTS, RealAgent

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

each_agent = pytest.mark.parametrize("agent", REAL_AGENTS, ids=lambda agent: agent.name)


def connected(agent: RealAgent, place: Place, model: ModelEndpoint, **options: Any) -> Any:
    """The agent, talked to by the library."""
    env = agent.prepare(place.home, model.url)
    return acphold.connect(*agent.command(), cwd=place.work, env=env, **options)


@each_agent
async def test_a_turn_with_a_tool_and_permission(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    file = place.work / "in.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    async with connected(agent, place, model, permission="allow", files=True) as remote:
        session = await remote.new_session()
        for tool in agent.tools:
            target = place.work / "out.txt" if tool == "write" else file
            turn = await session.prompt(f"The word is GULL. USE_TOOL:{tool} FILE={target} CMD=pwd")
            assert turn.stop_reason == "end_turn"
            calls = [item for item in turn.items if isinstance(item, ToolCall)]
            assert calls
        assert (await session.prompt("hello")).text


@each_agent
async def test_a_turn_is_cancelled_and_the_session_goes_on(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    async with connected(agent, place, model) as remote:
        session = await remote.new_session()
        turn = session.prompt("SLOW now")
        async with asyncio.timeout(60):
            async for _ in turn:
                if "tick3 " in turn.text:
                    session.cancel()
        assert turn.stop_reason == "cancelled"


@each_agent
async def test_sessions_are_listed_and_loaded_where_the_agent_says_so(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    async with connected(agent, place, model) as remote:
        session = await remote.new_session()
        await session.prompt("The word is PELICAN.")
        if remote.capabilities.session_capabilities.list is None:
            with pytest.raises(acphold.CapabilityError):
                [info async for info in remote.sessions()]
        can_load = remote.capabilities.load_session
    if can_load:
        async with connected(agent, place, model) as remote:
            loaded = await remote.load_session(session.id)
            assert any("PELICAN" in str(update) for update in loaded.replay)
            assert (await loaded.prompt("hello again")).stop_reason == "end_turn"
