"""A server in front of a network, as the daemon sees it: its front, its agents and its clients.

The front of a server (`transports.first_frame`) has no editor: see `server.relay_protocol`.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from urllib.parse import quote

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import encode
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import beside
from acp_wire.transports.known_servers import origin_of
from acphold import errors
from acphold.journal import stored_journal
from acphold.live.server import bounds
from acphold.live.server.checked_params import decode_params
from acphold.live.server.pool import FrontStderr, Pool, PreparedAgent
from acphold.live.server.principals import OTHER_NODE, Principal
from acphold.live.server.relay_protocol import (
    AGENT_OF,
    APPENDS,
    REGISTER,
    STIRRED,
    AgentTold,
    DeedTold,
    Registered,
    Registration,
    RelayedClient,
    SessionAsked,
    Stirred,
)
from acphold.live.server.server_agents import ServerAgents
from acphold.logs import heard_by
from acphold.machine.addresses import NODE_TOKEN, OWNERS, become_node
from acphold.machine.first_frame import SERVER, FirstFrame
from acphold.machine.unix import Front

log = logging.getLogger(__name__)


class NetworkServers:
    """The servers of a daemon."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.node_mark = secrets.token_hex(16)
        """The mark of this process for other nodes, while any server is there for them."""
        self.connected: dict[str, NetworkServer] = {}
        """The servers that are there, by the marks of their clients."""

    async def attend(self, front: Front) -> None:
        """Serve a server until it leaves."""
        await NetworkServer(self, front).run()

    async def attend_relayed(self, client: RelayedClient, transport: Transport) -> None:
        """Serve a client of one of them until it leaves."""
        if client.client is None and client.mark == self.node_mark:
            await self.pool.join(transport, OTHER_NODE)
        elif (server := self.connected.get(client.mark)) is not None:
            await server.attend(client, transport)
        else:
            log.warning("a client came from a server that has gone")

    async def open(self, asked: Registration, front: Front) -> ServerAgents:
        """Return the agents that a server asks for: those that an equal one has left, or new
        ones. Raises AcpError."""
        identity = (asked.agents, asked.folder, front.frame.identity)
        make = partial(self._make, asked, front.frame)
        return await self.pool.open(front, ServerAgents, identity, make)

    @asynccontextmanager
    async def _make(
        self, asked: Registration, frame: FirstFrame, stderr: FrontStderr
    ) -> AsyncIterator[ServerAgents]:
        """Open the agents of a server for the block."""
        pool, within = self.pool, frame.surroundings
        async with AsyncExitStack() as stack:
            prepared: dict[str, PreparedAgent] = {}
            for each in asked.agents:  # each with the frame of an editor that asks for it
                env = {**within.env, **each.env}
                env.pop(NODE_TOKEN, None)  # agents must not see it
                own = Surroundings(env, within.folder, within.umask, within.limits)
                its = FirstFrame(frame.release, each.words, each.command, own, SERVER)
                preparing = pool.prepare(its, stderr.descriptor)
                prepared[each.name] = await stack.enter_async_context(preparing)
            served = ServerAgents(
                *(pool.hub, prepared, pool.called, asked.folder, within.home), stderr=stderr
            )
            await stack.enter_async_context(aclosing(served))
            stack.enter_context(heard_by(prepared[served.default].heard))
            await stack.enter_async_context(beside(served.resume_queues(), "resume queues"))
            yield served


class NetworkServer:
    """One server: see the module."""

    def __init__(self, servers: NetworkServers, front: Front) -> None:
        self._servers = servers
        self._front = front
        self._peer = Peer(front.transport, self, name="server")
        self._served: ServerAgents | None = None
        self._mark = ""
        self._deeds: list[DeedTold] = []  # not told yet
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        """Answer the server until it leaves."""

        async def tell_stirs() -> None:
            with self._servers.pool.hub.activity.listen() as self._stirred:
                while True:
                    await self._stirred.wait()
                    self._stirred.clear()
                    self._tell_deeds()
                    await asyncio.sleep(bounds.STIRS_APART_SECONDS)

        try:
            async with connected(self._peer) as pump, beside(tell_stirs(), "tell stirs"):
                try:
                    await asyncio.wait({pump})
                finally:
                    self._tell_deeds()
        finally:
            if self._served is not None:
                del self._servers.connected[self._mark]
                self._served.take_leave()

    # -- requests of the server -----------------------------------------------------------

    async def on_request(self, request: Request) -> bytes:
        match request.method:
            case method if method == REGISTER:
                asked = decode_params(request.params, Registration)
                if self._served is not None or not asked.agents:
                    raise errors.InvalidRequestError(
                        "a server registers once, with at least one agent"
                    )
                env = self._front.frame.surroundings.env
                if asked.node is not None and NODE_TOKEN not in env:
                    raise errors.InvalidRequestError("a node needs a token")
                served = await self._servers.open(asked, self._front)
                self._served = served
                self._mark = secrets.token_hex(16)
                self._servers.connected[self._mark] = self
                if asked.node is not None:
                    become_node(env)
                    default = quote(served.default, safe="")
                    own = f"{OWNERS}{self._servers.node_mark}/{default}"
                    await self._servers.pool.addresses.add(f"{origin_of(asked.node)}{own}")
                return encode(Registered(self._mark, self._servers.node_mark))
            case method if method == AGENT_OF:
                session_id = decode_params(request.params, SessionAsked).session
                self._tell_deeds()  # a server that ends asks for them so
                name = await self._served.agent_of(session_id) if self._served else None
                return encode(AgentTold(name))
            case method if method == APPENDS:
                return encode(stored_journal.APPENDS)
            case method:
                raise errors.MethodNotFoundError(method)

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None

    # -- its clients ----------------------------------------------------------------------

    async def attend(self, client: RelayedClient, transport: Transport) -> None:
        """Serve one of its clients until it leaves."""
        if self._served is None or client.client is None or client.agent not in self._served.agents:
            raise errors.InvalidParamsError(f"the server does not serve {client.agent!r}")
        who = Principal(
            name=client.name,
            scopes=frozenset(client.scopes),
            tenant=client.tenant,
            session_id=client.session,
            sees_all=client.sees_all,
            is_here=False,
            note=partial(self._tell_deed, client.client, is_refused=False),
            refused=partial(self._tell_deed, client.client, is_refused=True),
        )
        await self._served.attend(client.agent, transport, who, client.limit)

    def _tell_deed(self, client: int, deed: str, session: str | None, *, is_refused: bool) -> None:
        most = bounds.TOLD_CHARACTERS
        at = self._servers.pool.hub.journal.now_ms()
        told = DeedTold(client, deed[:most], session and session[:most], at, is_refused)
        self._deeds.append(told)
        if len(self._deeds) < bounds.TOLD_DEEDS:
            self._stirred.set()
        else:
            self._tell_deeds()

    def _tell_deeds(self) -> None:
        """Tell the server that something has happened, with the deeds; without, if it reads us."""
        deeds, self._deeds = tuple(self._deeds), []
        if deeds or not self._peer.buffered:
            self._peer.tell(STIRRED, encode(Stirred(deeds)))
