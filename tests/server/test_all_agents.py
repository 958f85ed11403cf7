"""A client of all agents at one that takes long; the agents are played."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from acp_wire.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.tasks import beside
from acp_wire.transports.streams import memory_pair
from acphold.live.agents.capabilities import ALL_AGENTS
from acphold.live.server.all_agents import attend_all
from acphold.live.server.far_line import FarLine
from acphold.live.server.principals import THIS_USER, Principal

DEADLINE = 30.0
LIMIT = 0.05


class Quiet:
    """A receiver that is told nothing of interest."""

    async def on_request(self, request: Request) -> bytes:
        raise AssertionError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


class SlowAgent(Quiet):
    """It starts for three times as long as another process would be waited for."""

    async def on_request(self, request: Request) -> bytes:
        if request.method == "initialize":
            await asyncio.sleep(3 * LIMIT)
            return b"{}"
        return b'{"sessionId":"s"}'


class Agents:
    """One agent (all_agents.Agents)."""

    names: Sequence[str] = ("slow",)
    folder = None

    async def attend_one(self, name: str, transport: Transport, principal: Principal) -> None:
        async with connected(Peer(transport, SlowAgent(), name="client")) as pump:
            await asyncio.wait({pump})

    async def agent_of(self, session_id: str) -> str | None:
        return "slow"

    async def agent_in_journal(self, session_id: str, principal: Principal) -> str | None:
        return None

    async def may_prompt(self, session_id: str, principal: Principal) -> bool:
        return True

    async def page(self, principal: Principal, params: bytes) -> bytes:
        return b'{"sessions":[]}'


async def test_an_agent_may_take_as_long_as_it_likes_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = FarLine.__init__.__kwdefaults__
    assert usual is not None
    monkeypatch.setitem(usual, "seconds", LIMIT)
    near, far = memory_pair()
    client = Peer(near, Quiet(), name="all agents", is_agent=True)
    attending = attend_all(Agents(), "slow", far, MAX_MESSAGE, THIS_USER)
    async with asyncio.timeout(DEADLINE), beside(attending, "attend"), connected(client):
        can = b'{"clientCapabilities":{"_meta":{"%b":true}}}' % ALL_AGENTS.encode()
        await client.call_raw("initialize", b'{"protocolVersion":1,%b' % can[1:])
        made = await client.call_raw("session/new", b'{"cwd":"/","mcpServers":[]}')
        assert b'"sessionId":"s"' in made
