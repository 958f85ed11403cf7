"""The agents of a server in the daemon: how they end, and who may have them once it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.rpc import MAX_MESSAGE
from acp_wire.tasks import beside, tick
from acp_wire.transports.streams import memory_pair
from acphold.live.agents.interface import AgentListener, HubAgent
from acphold.live.server import bounds
from acphold.live.server.pool import FrontStderr, PreparedAgent
from acphold.live.server.principals import THIS_USER
from acphold.live.server.server_agents import ServerAgents
from acphold.live.server.service import Service
from acphold.machine.addresses import NODE_TOKEN
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE
from tests.hub.shared import InMemory, PuppetAgent, Shared, shared

LINGER = 0.05


class SlowToEnd(PuppetAgent):
    """An agent that ends when it is allowed to."""

    def __init__(self, listener: AgentListener) -> None:
        super().__init__(listener)
        self.ending = asyncio.Event()
        self.may_end = asyncio.Event()

    async def aclose(self) -> None:
        self.ending.set()
        await self.may_end.wait()


@asynccontextmanager
async def served_in(
    house: Shared, made: list[SlowToEnd], linger: float = LINGER
) -> AsyncIterator[ServerAgents]:
    """One agent of a server, which ends when it is idle; each start is noted in `made`."""

    def make(listener: AgentListener, _: object) -> HubAgent:
        made.append(SlowToEnd(listener))
        return made[-1]

    service = Service(make_agent=make, options=ServeOptions())
    stderr = FrontStderr()
    served = ServerAgents(
        house.hub, {"a": PreparedAgent(service, linger)}, str, None, stderr=stderr
    )
    try:
        yield served
    finally:
        for each in made:
            each.may_end.set()
        await served.aclose()
        stderr.close()


@asynccontextmanager
async def client_of(served: ServerAgents) -> AsyncIterator[InMemory]:
    """A client of that agent, introduced."""
    near, far = memory_pair()
    client = InMemory(near)
    attending = served.attend("a", far, THIS_USER, MAX_MESSAGE)
    async with beside(attending, "attend") as attended, beside(client.read(), "read"):
        await client.introduce(None, {})
        yield client
        await client.leave()
        await attended


async def test_agents_that_a_server_left_are_for_the_next_one_until_they_are_over(
    journal: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), shared(journal) as house, served_in(house, []) as served:
        assert not served.is_free
        served.take_leave()
        assert served.is_free
        await served.wait_until_over()
        assert not served.is_free  # whoever comes now gets new ones


async def test_agents_of_a_server_that_has_gone_are_over_once_the_last_of_them_has_ended(
    journal: Path,
) -> None:
    made: list[SlowToEnd] = []
    async with (
        asyncio.timeout(DEADLINE),
        shared(journal) as house,
        served_in(house, made) as served,
        beside(served.wait_until_over(), "over") as over,
    ):
        async with client_of(served):
            served.take_leave()
        await made[0].ending.wait()
        assert not over.done()
        made[0].may_end.set()
        await over


@pytest.mark.parametrize("is_node", [False, True])
async def test_an_idle_agent_ends_sooner_once_its_server_has_gone(
    journal: Path, monkeypatch: pytest.MonkeyPatch, *, is_node: bool
) -> None:
    monkeypatch.setattr(bounds, "SERVER_AWAY_SECONDS", 1000 if is_node else 0.05)
    monkeypatch.setattr(bounds, "NODE_AWAY_SECONDS", 0.05 if is_node else 1000)
    monkeypatch.setattr(bounds, "IDLE_CHECK_SECONDS", 0.02)
    if is_node:
        monkeypatch.setenv(NODE_TOKEN, "acphold_x")
    made: list[SlowToEnd] = []
    async with (
        asyncio.timeout(DEADLINE),
        shared(journal) as house,
        served_in(house, made, linger=1000) as served,
    ):
        async with client_of(served):
            pass
        for _ in range(10):
            await tick(bounds.IDLE_CHECK_SECONDS)
        assert not made[0].ending.is_set()  # while the server is there
        monkeypatch.setattr(bounds, "IDLE_CHECK_SECONDS", 1000)
        await tick(0.02)  # behind the last check
        served.take_leave()
        await made[0].ending.wait()


async def test_a_client_that_comes_while_an_idle_agent_ends_gets_another(journal: Path) -> None:
    made: list[SlowToEnd] = []
    async with (
        asyncio.timeout(DEADLINE),
        shared(journal) as house,
        served_in(house, made) as served,
    ):
        async with client_of(served):
            pass
        await made[0].ending.wait()
        async with client_of(served):
            assert [each.generation for each in made] == [1, 1]
