"""The servers of a daemon: each has its own clients, and what its agents write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from acp_wire.rpc import NotificationReceived, Peer, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import encode
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import beside
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.streams import memory_pair
from acphold.journal.access import SCOPES
from acphold.live.agents.interface import AgentListener
from acphold.live.server.daemon import Fronts
from acphold.live.server.pool import PreparedAgent
from acphold.live.server.relay_protocol import (
    AGENT_OF,
    REGISTER,
    AskedAgent,
    DeedTold,
    Registered,
    Registration,
    RelayedClient,
    SessionAsked,
    Stirred,
)
from acphold.live.server.service import Service
from acphold.machine.first_frame import SERVER, FirstFrame
from acphold.machine.place import place_of
from acphold.machine.unix import Front
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE
from tests.hub.shared import InMemory, PuppetAgent, shared
from tests.server.fronts import front_desks


class Server:
    """A server with one agent, whose front has come to a daemon."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.deeds: list[DeedTold] = []
        its_stdin, writing = os.pipe()
        reading, its_stdout = os.pipe()
        self.stderr, its_stderr = os.pipe()
        os.set_blocking(self.stderr, False)
        frame = FirstFrame("1", [], [], Surroundings({}, "/"), SERVER)
        self.front = Front(frame, its_stdin, its_stdout, its_stderr)
        self.front.place = place_of()
        self.peer = Peer(PipeTransport(reading, writing), self, name="daemon")

    async def on_request(self, request: Request) -> bytes:
        raise AssertionError(request.method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for told in batch:
            self.deeds += msgspec.json.decode(told.params, type=Stirred).deeds

    @asynccontextmanager
    async def at(self, desks: Fronts) -> AsyncIterator[Registered]:
        """It is there for the block."""
        asked = Registration((AskedAgent(self.agent, (self.agent,), ()),))
        async with beside(desks.attend(self.front), "attend") as attending:
            async with connected(self.peer):
                raw = await self.peer.call_raw(REGISTER, encode(asked), seconds=DEADLINE)
                yield msgspec.json.decode(raw, type=Registered)
            await attending
        self.front.close()
        await self.front.transport.aclose()
        os.close(self.stderr)


async def test_each_server_has_its_own_clients_and_what_its_agents_write(journal: Path) -> None:
    asked: list[str] = []

    @asynccontextmanager
    async def prepared(frame: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        def make(listener: AgentListener, _: object) -> PuppetAgent:
            asked.append(frame.words[0])
            return PuppetAgent(listener)

        os.write(stderr, f"this is {frame.words[0]}".encode())
        yield PreparedAgent(Service(make_agent=make, options=ServeOptions()), linger=600)

    servers = [Server("one"), Server("two")]
    async with asyncio.timeout(DEADLINE), shared(journal) as house, AsyncExitStack() as there:
        desks, kept = front_desks(house.hub, prepared)
        there.push_async_callback(kept.aclose)
        marks = [(await there.enter_async_context(each.at(desks))).mark for each in servers]
        for server, mark in zip(servers, marks, strict=True):
            assert os.read(server.stderr, 100).decode() == f"this is {server.agent}"
            near, far = memory_pair()
            client = InMemory(near)
            who = RelayedClient(mark, 1, server.agent, 1 << 20, "a", SCOPES, sees_all=True)
            relayed = desks.servers.attend_relayed(who, far)
            async with beside(relayed, "attend"), beside(client.read(), "read"):
                await client.introduce(None, {})
                await client.leave()
    assert asked == ["one", "two"]


async def test_deeds_come_in_their_own_time_and_order_however_many_there_are_at_once(
    journal: Path,
) -> None:
    @asynccontextmanager
    async def prepared(_: FirstFrame, stderr: int) -> AsyncIterator[PreparedAgent]:
        def make(listener: AgentListener, _: object) -> PuppetAgent:
            return PuppetAgent(listener)

        yield PreparedAgent(Service(make_agent=make, options=ServeOptions()), linger=600)

    server, times = Server("one"), iter(range(3000))
    async with asyncio.timeout(DEADLINE), shared(journal) as house, AsyncExitStack() as there:
        desks, kept = front_desks(house.hub, prepared)
        there.push_async_callback(kept.aclose)
        mark = (await there.enter_async_context(server.at(desks))).mark
        house.journal.now_ms = lambda: next(times)  # type: ignore[method-assign]
        tell = desks.servers.connected[mark]._tell_deed
        for number in range(3000):
            long = "\x01" * 1000
            tell(number, long, long, is_refused=False)
        await server.peer.call_raw(AGENT_OF, encode(SessionAsked("")), seconds=DEADLINE)
        assert [(it.client, it.at) for it in server.deeds] == [(n, n) for n in range(3000)]
