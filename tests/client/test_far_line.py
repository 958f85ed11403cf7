"""The line to a server far away: its messages over the next connection, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from acp_wire.rpc import MAX_MESSAGE, NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.tasks import end
from acp_wire.transports.streams import memory_pair
from acphold.client.far_line import FarClient
from acphold.errors import ConnectionLostError, InvalidParamsError
from acphold.live.server.reconnection import GAP_HOW

DEADLINE = 30.0

KEEPS = {"agentCapabilities": {"_meta": {"acphold/positions": True}}, "protocolVersion": 1}


class Server:
    """A server whose journal goes back between two connections."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.lineage = "first"
        self.resumed = asyncio.Event()
        self.prompted = asyncio.Event()
        self.is_away = False
        self.has_prompt = True
        self.told: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.connections: list[Peer] = []
        self._pumps: list[asyncio.Task[None]] = []

    async def dial(self) -> Transport:
        if self.is_away:
            raise ConnectionLostError("nobody is there")
        here, there = memory_pair()
        peer = Peer(there, self, name="client")
        self.connections.append(peer)
        self._pumps.append(asyncio.create_task(peer.pump()))
        return here

    def on_request(self, request: Request) -> None:
        params = json.loads(request.params)
        self.asked.append((request.method, params))
        meta = params.get("_meta", {})
        if request.method == "initialize":
            request.answer(json.dumps(KEEPS).encode())
            return
        if request.method == "session/prompt":
            self.prompted.set()
            return  # its turn goes on
        known = self.lineage if self.has_prompt or "acphold/after" not in meta else None
        if meta.get("acphold/lineage", known) != self.lineage:
            request.refuse(InvalidParamsError("it is of a history that is lost"))
            return
        request.answer(json.dumps({"_meta": {"acphold/lineage": self.lineage}}).encode())
        if request.method == "session/resume":
            self.resumed.set()

    def tell(self, position: int) -> None:
        update = b'{"sessionUpdate":"plan","entries":[]}'
        params = b'{"sessionId":"s","update":%b,"_meta":{"acphold/seq":%d}}' % (update, position)
        self.connections[-1].tell("session/update", params)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for told in batch:
            self.told.put_nowait((told.method, json.loads(told.params)))

    async def aclose(self) -> None:
        for peer in self.connections:
            await peer.aclose()
        await asyncio.wait(self._pumps)


class Client:
    """Notifications it received."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def on_request(self, request: Request) -> bytes:
        return b"{}"

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for told in batch:
            self.told.put_nowait(json.loads(told.params))


@asynccontextmanager
async def opened(**capabilities: Any) -> AsyncIterator[tuple[Server, Client, Peer]]:
    """A client that has a session of a server open, at position 7, and its end of the line."""
    server, client = Server(), Client()
    ours, theirs = memory_pair()
    line = FarClient(theirs, server.dial, "there", MAX_MESSAGE, await server.dial())
    running = asyncio.create_task(line.run())
    peer = Peer(ours, client, name="there", is_agent=True)
    introduction = {"clientCapabilities": capabilities, "protocolVersion": 1}
    async with connected(peer), asyncio.timeout(DEADLINE):
        await peer.call_raw("initialize", json.dumps(introduction).encode())
        await peer.call_raw("session/load", b'{"sessionId":"s","cwd":"/","mcpServers":[]}')
        server.tell(7)
        await client.told.get()
        yield server, client, peer
    await running
    await server.aclose()


async def test_a_position_goes_with_its_lineage_and_a_lost_one_is_told_as_a_gap() -> None:
    async with opened(session={"notices": {}}) as (server, client, _):
        server.asked.clear()
        await server.connections[-1].aclose()
        await server.resumed.wait()
        (method, params) = server.asked[1]
        assert method == "session/resume"
        assert params["_meta"] == {"acphold/after": 7, "acphold/lineage": "first"}
        assert [method for method, _ in server.asked] == ["initialize", "session/resume"]
        # The journal goes back while the connection is away.
        server.asked.clear()
        server.resumed.clear()
        server.lineage = "second"
        await server.connections[-1].aclose()
        await server.resumed.wait()
        behind, whole = (params for method, params in server.asked if method == "session/resume")
        assert behind["_meta"]["acphold/lineage"] == "first"
        assert "_meta" not in whole
        told = await client.told.get()
        assert GAP_HOW in json.dumps(told)
        # From then on positions are of the new one.
        server.tell(3)
        await client.told.get()
        server.asked.clear()
        server.resumed.clear()
        await server.connections[-1].aclose()
        await server.resumed.wait()
        assert server.asked[1][1]["_meta"] == {"acphold/after": 3, "acphold/lineage": "second"}


async def test_a_prompt_written_behind_a_gap_is_shown_though_the_connection_is_lost_again() -> None:
    async with opened() as (server, _, peer):
        asking = asyncio.create_task(peer.call_raw("session/prompt", b'{"sessionId":"s"}'))
        server.lineage, server.has_prompt = "second", False
        for _ in range(2):  # the first one is a gap: the next owner has not written the prompt yet
            await server.prompted.wait()
            server.asked.clear()
            server.prompted.clear()
            server.resumed.clear()
            await server.connections[-1].aclose()
            await server.resumed.wait()
            server.has_prompt = True
        resumed = [params["_meta"] for method, params in server.asked if "resume" in method]
        [place] = resumed
        assert place["acphold/after"] == 7
        assert len(place["acphold/sent"]) == 1
        assert "acphold/lineage" not in place
    await end(asking)


async def test_a_cancel_while_the_connection_is_away_is_answered_and_nothing_is_sent_again() -> (
    None
):
    prompt = b'{"sessionId":"s","prompt":[]}'
    async with opened() as (server, _, peer):
        sent = asyncio.create_task(peer.call_raw("session/prompt", prompt))
        while server.asked[-1][0] != "session/prompt":  # noqa: ASYNC110 - in a few steps
            await asyncio.sleep(0)
        id_ = server.asked[-1][1]["_meta"]["acphold/sent"]["id"]
        server.is_away = True
        await server.connections[-1].aclose()
        unsent = asyncio.create_task(peer.call_raw("session/prompt", prompt))
        await asyncio.sleep(0)
        peer.tell("session/cancel", b'{"sessionId":"s"}')
        for turn in (sent, unsent):
            assert json.loads(await turn) == {"stopReason": "cancelled"}
        server.asked.clear()
        server.is_away = False
        told = await server.told.get()
        assert told == (
            "session/cancel",
            {"sessionId": "s", "_meta": {"acphold/sent": {"id": id_}}},
        )
        assert [method for method, _ in server.asked] == ["initialize", "session/resume"]
