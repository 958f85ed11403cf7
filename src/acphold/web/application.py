"""The ASGI application: `/acp` for clients, `/pair` for new devices, `/health` for monitoring.

    /acp, /acp/NAME   ACP over a WebSocket or Streamable HTTP, in front of the default agent, or the
                      one of that name (ACP RFD, Streamable HTTP & WebSocket transport)
    POST /codes       {"scopes", "user"} → {"code", "seconds"}: a code to pair a device with; needs
                      manage. The device is the requester's own; a token that sees all may
                      name another `user`
    POST /pair        {"code", "name"} → {"token", "scopes"}; for a browser /browser: see
                      `web.devices`
    GET /sessions …   the list, its entries, and search: see `web.journal_pages`; the list as
                      it changes: see `web.list_feed`
    GET /inbox …      pending questions of all sessions, and past decisions: see there
    GET /             the page for a browser, and its files: see `web.page_files`
    /rules …          standing answers: see `web.rule_requests`
    GET /usage        usage reported by agents, and a session as a file: see `web.reports`
    /notices …        the browsers notified of pending questions: see `web.notices`
    GET /metrics      metrics for monitoring: see `web.metrics`
    /owners/MARK/NAME sessions that are live here for another node, over a WebSocket; needs a token
                      of the nodes
    /moves/ID         a session that goes to another machine, over a WebSocket: see `web.moves`
    GET /health       {"status": "ok"}; only this and the page need no token

Each request passes the gate (`web.gate`) first.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from acphold.journal.access import NODE, SCOPES
from acphold.journal.access import Scope as Access
from acphold.reading.requests import FEED, INBOX, SEARCH, SESSIONS
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.tasks import END_SECONDS, TaskSet, end
from acphold.transports.addresses import ENDED, OWNERS
from acphold.transports.messages import MessageTransport
from acphold.transports.urls import ENDPOINT, MOVES
from acphold.web.devices import CODE_SECONDS, LARGEST_PAIRING, NAME_LENGTH, Devices, Pairing, Worth
from acphold.web.endpoints import Attending, Endpoints
from acphold.web.exchange import HttpExchange
from acphold.web.gate import SUBPROTOCOL, Admitted, Gate, RefusedError, refusing
from acphold.web.http_clients import CONNECTION_ID, HttpClients
from acphold.web.journal_pages import JournalPages
from acphold.web.list_feed import ListFeed
from acphold.web.metrics import METRICS, Metrics
from acphold.web.moves import ServedMoves
from acphold.web.notices import NOTICES, Notices
from acphold.web.page_files import PageFiles
from acphold.web.reports import Reports
from acphold.web.rule_requests import RuleRequests
from acphold.web.sockets import (
    AsgiSocket,
    Receive,
    Scope,
    Send,
    in_pieces,
    takes_long_messages,
    whole,
)

log = logging.getLogger(__name__)


class CodeRequest(Struct, frozen=True):
    """The token a pairing code is asked for; all fields are optional."""

    scopes: tuple[Access, ...] = ()
    user: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)] | None = None


class Application(Struct, frozen=True, kw_only=True):
    """The ASGI 3.0 application, for an ASGI server or to mount in another application."""

    endpoints: Endpoints
    gate: Gate
    pairing: Pairing
    devices: Devices
    http: HttpClients
    pages: JournalPages
    feed: ListFeed
    metrics: Metrics
    moves: ServedMoves
    page: PageFiles
    reports: Reports
    rules: RuleRequests
    notices: Notices | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve a connection until it ends."""
        exchange = HttpExchange(scope, *self.metrics.counted(receive, send))
        try:
            if scope["type"] == "websocket":
                await self._attend(exchange)
            elif scope["type"] == "http":
                self.gate.check_place(exchange.headers)
                with refusing():
                    await self._answer(exchange)
        except RefusedError as exc:
            self.metrics.refused[exc.status] += 1
            self.gate.note_refusal(exc, exchange.headers, exchange.came)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    async def _attend(self, exchange: HttpExchange) -> None:
        """Serve a client of an agent, another node, or another machine that takes a session, over a
        WebSocket."""
        protocols = exchange.scope.get("subprotocols", ())
        admitted = await self._admitted(exchange, protocols)
        if exchange.path.startswith(OWNERS):
            name = _owner_at(self.endpoints, exchange, admitted)
            await attend_websocket(_Nodes(self.endpoints), self.gate, exchange, name, admitted)
            return
        if exchange.path.startswith(MOVES):
            session_id = exchange.path.removeprefix(MOVES)
            await attend_websocket(self.moves, self.gate, exchange, session_id, admitted)
            return
        name = await _agent_at(self.endpoints, exchange.path, admitted.principal)
        self.metrics.sockets += 1
        try:
            await attend_websocket(self.endpoints, self.gate, exchange, name, admitted)
        finally:
            self.metrics.sockets -= 1

    async def _answer(self, exchange: HttpExchange) -> None:
        """Answer one request that is not an upgrade."""
        match exchange.method, exchange.path:
            case _, path if self.notices is not None and path.startswith(NOTICES):
                await self.notices.answer(exchange, await self._admitted(exchange))
            case "GET" | "HEAD", "/health":
                await exchange.answer(200, {"status": "ok"})
            case _, path if self.page.has(path):
                await self.page.answer(exchange)
            case _, path if self.devices.has(path):
                await self.devices.answer(exchange)
            case "POST", "/codes":
                await self._new_code(exchange)
            case _, path if path.startswith(ENDPOINT):
                admitted = await self._admitted(exchange)
                name = await _agent_at(self.endpoints, path, admitted.principal)
                await self.http.serve(exchange, name, admitted)
            case _, path if path == FEED:
                await self.feed.answer(exchange, await self._admitted(exchange))
            case _, path if path == METRICS:
                await self.metrics.answer(exchange, (await self._admitted(exchange)).principal)
            case _, path if self.reports.has(path):
                await self.reports.answer(exchange, (await self._admitted(exchange)).principal)
            case _, path if self.rules.has(path):
                await self.rules.answer(exchange, await self._admitted(exchange))
            case _, path if path.startswith((SESSIONS, SEARCH, INBOX)):
                await self.pages.answer(exchange, (await self._admitted(exchange)).principal)
            case _:
                raise RefusedError(404, "there is nothing at this address")

    async def _admitted(self, exchange: HttpExchange, protocols: Sequence[str] = ()) -> Admitted:
        return await self.gate.admit(
            exchange.headers, protocols, exchange.connection, exchange.came
        )

    async def _new_code(self, exchange: HttpExchange) -> None:
        admitted = await self._admitted(exchange)
        who = admitted.principal
        if "manage" not in who.scopes or who.session_id is not None:
            who.refused("code", None)
            raise RefusedError(403, "a code is for who may manage; this token may not")
        wanted = 'expected {"scopes": ["watch"]}, or {}'
        asked = await exchange.said(CodeRequest, LARGEST_PAIRING, wanted)
        if NODE in asked.scopes:
            raise RefusedError(400, "a device is a person's, and no node")
        scopes = tuple(scope for scope in SCOPES if scope in (asked.scopes or who.scopes))
        is_own = asked.user in (None, who.tenant)
        if not who.scopes.issuperset(scopes) or not (is_own or who.sees_all):
            who.refused("code", None)
            raise RefusedError(403, "a code permits no more than the token that asks for it")
        who.note("code", None)
        tenant = who.tenant if asked.user is None else asked.user
        code = self.pairing.new_code(Worth(scopes, admitted.token, tenant))
        await exchange.answer(200, {"code": code, "seconds": int(CODE_SECONDS)})


async def _agent_at(endpoints: Endpoints, path: str, who: Principal) -> str:
    """Return the agent at `path` for this principal; raises RefusedError."""
    head, _, name = path[len(ENDPOINT) :].partition("/")
    found = None
    if path.startswith(ENDPOINT) and not head:
        found = await endpoints.name_of(name, who.session_id)
    if found is None:
        raise RefusedError(404, "no agent is served there")
    return found


def _owner_at(endpoints: Endpoints, exchange: HttpExchange, admitted: Admitted) -> str:
    """Return the agent whose sessions another node connects for; raises RefusedError."""
    if NODE not in admitted.principal.scopes:
        raise RefusedError(403, "this is for nodes: `acphold token create --node`")
    mark, _, name = exchange.path.removeprefix(OWNERS).partition("/")
    if mark != endpoints.mark:
        raise RefusedError(ENDED, "the process that had this address has ended")
    if name not in endpoints.open_names:
        raise RefusedError(404, "no sessions of that agent are live here")
    return name


class _Nodes:
    """Serves connections from other nodes."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self.limit = endpoints.limit

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        await self._endpoints.attend_node(name, transport)


async def attend_websocket(
    agents: Attending, gate: Gate, exchange: HttpExchange, name: str, admitted: Admitted
) -> None:
    """Serve one client of an agent, from its upgrade until it leaves."""
    subprotocols: list[str] = exchange.scope.get("subprotocols", [])
    await exchange.receive()  # websocket.connect
    await exchange.send(
        {
            "type": "websocket.accept",
            "subprotocol": SUBPROTOCOL if SUBPROTOCOL in subprotocols else None,
            "headers": [(CONNECTION_ID.encode(), str(uuid.uuid4()).encode())],
        }
    )
    cut = whole if takes_long_messages(exchange.headers) else in_pieces
    socket = AsgiSocket(exchange.receive, exchange.send, cut)
    direct = None if exchange.connection is None else exchange.connection.direct
    transport = MessageTransport(socket) if direct is None else direct(cut)
    attending = asyncio.create_task(
        agents.attend(name, transport, admitted.principal, exchange.headers), name="attend"
    )
    closing = TaskSet()
    key = gate.connected(admitted, lambda why: closing.start(socket.aclose(why), "close socket"))
    log.info("%s has come for %s", admitted.principal.name, name)
    try:
        await asyncio.wait({attending})
    finally:
        gate.disconnected(key)
        await end(attending)
        await closing.aclose(END_SECONDS)
        await transport.aclose()
    attending.result()
