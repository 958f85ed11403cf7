"""A connection that is left in any way, at any moment, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, MutableMapping
from functools import partial
from pathlib import Path

import psutil
import pytest
from starlette.responses import StreamingResponse

import acphold
import acphold.testing
from acp_wire.rpc import Peer, Transport
from acp_wire.rpc.peer import connected
from acp_wire.rpc.requests import Request
from acp_wire.tasks import finish
from acp_wire.transports.streams import memory_pair
from acphold.client import connect_over, connected_to
from acphold.client.uplink import Endpoint
from acphold.errors import AcpError, ConnectionLostError
from acphold.mcp_servers.connections import load_sdk
from tests.editor import scripted_agent
from tests.leaving import (
    INSIDE,
    LEAVING,
    WAYS,
    Cut,
    Reached,
    Scenario,
    cancelled,
    cuts,
    left_behind,
)
from tests.library.conftest import mcp_server

pytestmark = pytest.mark.slow


class _Scripted:
    """An agent in memory that answers everything but prompts, and these once they are cancelled."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def on_request(self, request: Request) -> bytes:
        match request.method:
            case "initialize":
                return b'{"protocolVersion":1,"agentCapabilities":{}}'
            case "session/new":
                return b'{"sessionId":"s"}'
        await self.cancelled.wait()
        return b'{"stopReason":"cancelled"}'

    async def on_notifications(self, batch: list[object]) -> None:
        self.cancelled.set()


async def over_a_transport(reached: Reached) -> None:
    there, here = memory_pair()
    peer = Peer(there, _Scripted(), name="client")  # type: ignore[arg-type]
    pump = asyncio.create_task(peer.pump(), name="scripted agent")
    try:
        async with connect_over(here) as agent:
            session = await agent.new_session()
            turn = session.prompt("x")
            reached(INSIDE)
            async with asyncio.timeout(0.02):
                await turn
    except TimeoutError:
        pass
    finally:
        # It ends by itself: the other side has gone.
        await finish(partial(asyncio.wait_for, pump, 5))
        await finish(peer.aclose)


def program(journal: Path | None = None) -> Scenario:
    async def scenario(reached: Reached) -> None:
        async with acphold.connect(
            *scripted_agent(), durable=journal is not None, journal=journal
        ) as agent:
            session = await agent.new_session(cwd="/tmp")
            await session.prompt("x")
            reached(INSIDE)
            await session.prompt('[{"say": "a"}]')
            reached(LEAVING)

    return scenario


AGENT = acphold.Agent("tested", version="1")


@AGENT.prompt
async def _answer(turn: acphold.Turn) -> None:
    await turn.say("hello")
    for _ in range(20):
        await asyncio.sleep(0)


def in_tests(journal: Path) -> Scenario:
    async def scenario(reached: Reached) -> None:
        async with acphold.testing.connect(AGENT, journal=journal) as client:
            session = await client.new_session()
            reached(INSIDE)
            await session.prompt("x")
            reached(LEAVING)

    return scenario


def served(journal: Path) -> Scenario:
    async def scenario(reached: Reached) -> None:
        async with AGENT.server(journal=journal) as server:
            here, there = memory_pair()
            async with asyncio.TaskGroup() as group:
                group.create_task(server.attend(there))
                async with connect_over(here) as agent:
                    session = await agent.new_session(cwd="/tmp")
                    reached(INSIDE)
                    await session.prompt("x")
                    reached(LEAVING)

    return scenario


def with_a_server(journal: Path) -> Scenario:
    """A session with an MCP server, which is a program."""
    asyncio.run(load_sdk())  # in a thread that outlives a connection, with files open

    async def scenario(reached: Reached) -> None:
        async with acphold.testing.connect(AGENT, journal=journal) as client:
            session = await client.new_session(mcp_servers=[mcp_server()])
            reached(INSIDE)
            await session.prompt("x")
            reached(LEAVING)

    return scenario


def check(scenario: Scenario, found: list[Cut], journal: Path | None = None) -> None:
    failed = {}
    # After each cut the garbage is collected: not among all that was there before the first one.
    gc.collect()
    gc.freeze()
    for cut in found:
        if left := left_behind(scenario, cut, journal):
            failed[str(cut)] = left
    words = "\n".join(f"{cut}: {left}" for cut, left in failed.items())
    assert not failed, f"{len(failed)} of {len(found)}:\n{words}"


EVERY = [*cuts(range(31), (2,))]

SOME = [*cuts((0, 3, 8), (2,))]
MANY = [*cuts(range(5, 31, 8), (3,))]

at_steps = pytest.mark.parametrize("found", [SOME, MANY])
in_every_way = pytest.mark.parametrize("way", WAYS)
"""With real processes and journals: at some steps, or slowly at more of them."""


def test_a_connection_over_a_transport_that_is_cut_off_leaves_nothing() -> None:
    check(over_a_transport, [cut for cut in EVERY if cut.phase != LEAVING])


@at_steps
@in_every_way
def test_an_agent_does_not_outlive_its_connection(way: str, found: list[Cut]) -> None:
    check(program(), [cut for cut in found if cut.way == way])


@at_steps
@in_every_way
@pytest.mark.parametrize("scenario", [program, in_tests, served, with_a_server])
def test_no_agent_task_or_lease_outlives_a_journal_that_is_cut_off(
    scenario: Callable[[Path], Scenario], way: str, found: list[Cut], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.db"
    check(scenario(journal), [cut for cut in found if cut.way == way], journal)


@pytest.mark.parametrize("way", WAYS[:3])
def test_a_prompt_that_is_left_at_any_step_is_over_for_the_next_one(way: str) -> None:
    class Slow(_Scripted):
        async def on_request(self, request: Request) -> bytes:
            answer = await super().on_request(request)
            if answer.startswith(b'{"stop'):
                await asyncio.sleep(0.001)
                self.cancelled.clear()
            return answer

    async def run() -> None:
        there, here = memory_pair()
        peer = Peer(there, Slow(), name="client")  # type: ignore[arg-type]
        async with connected(peer), connect_over(here) as agent:
            session = await agent.new_session()

            async def prompt(reached: Reached) -> None:
                turn = session.prompt("x")
                reached(INSIDE)
                await turn

            for cut in EVERY:
                if (cut.way, cut.phase) == (way, INSIDE):
                    await cancelled(prompt, cut)
                    following = session.prompt("and on")  # no AgentBusyError
                    session.cancel()
                    assert (await following).stop_reason == "cancelled", str(cut)

    asyncio.run(run())


async def test_a_streaming_response_whose_browser_leaves_ends_its_agent() -> None:
    async def body() -> AsyncIterator[str]:
        async with acphold.connect(*scripted_agent()) as agent:
            session = await agent.new_session(cwd="/tmp")
            yield "begun"
            await session.prompt('[{"until": "cancel"}]')

    begun = asyncio.Event()

    async def receive() -> dict[str, object]:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        if message.get("body"):
            begun.set()

    before = set(psutil.Process().children())
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.0"}}
    await StreamingResponse(body())(scope, receive, send)
    assert set(psutil.Process().children()) == before


async def test_a_connection_that_is_closed_while_the_agent_is_started_again_starts_none(
    tmp_path: Path,
) -> None:
    """Modelled in memory: reaching the far end takes a while."""
    reached, go_on, opened = asyncio.Event(), asyncio.Event(), []

    class Far(Endpoint):
        name, is_acphold, is_repeatable = "far", False, True

        async def open(self) -> Transport:
            there, here = memory_pair()
            opened.append(there)
            if len(opened) > 1:
                reached.set()
                await go_on.wait()
            else:
                peers.append(Peer(there, _Scripted(), name="client"))  # type: ignore[arg-type]
                pumps.append(asyncio.create_task(peers[0].pump()))
            self.here = here
            return here

        async def how_it_ended(self) -> AcpError:
            return ConnectionLostError("gone")

        async def aclose(self) -> None:
            await self.here.aclose()

    peers: list[Peer] = []
    pumps: list[asyncio.Task[None]] = []
    far = Far()
    async with connected_to(far, reconnect=True) as agent:
        await opened[0].aclose()
        asking = asyncio.create_task(agent.new_session(cwd="/tmp"))
        await reached.wait()
    go_on.set()
    with pytest.raises(ConnectionLostError):
        await asking
    assert await opened[1].receive() == b""  # closed, and nothing was said before
    await peers[0].aclose()
    await asyncio.wait(pumps)
