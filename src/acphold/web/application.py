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
    GET /usage        usage reported by agents, and a session as a file: see `web.reports`
    /notices …        the browsers notified of pending questions: see `web.notices`
    GET /metrics      metrics for monitoring: see `web.metrics`
    /owners/MARK/NAME sessions that are live here for another node, over a WebSocket; needs a token
                      of the nodes
    GET /health       {"status": "ok"}; only this and the page need no token

Each request passes the gate (`web.gate`) first.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder

from acphold.journal.access import NODE, SCOPES
from acphold.journal.access import Scope as Access
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.transports.addresses import ENDED, OWNERS
from acphold.transports.messages import MessageTransport
from acphold.transports.urls import ENDPOINT
from acphold.web import pairing_codes
from acphold.web.devices import LARGEST_PAIRING, NAME_LENGTH, Devices
from acphold.web.endpoints import Attending, Endpoints
from acphold.web.exchange import Exchange
from acphold.web.gate import SUBPROTOCOL, Admitted, Gate, RefusedError
from acphold.web.http_clients import CONNECTION_ID, HttpClients
from acphold.web.journal_pages import INBOX, SEARCH, SESSIONS, JournalPages
from acphold.web.list_feed import FEED, ListFeed
from acphold.web.long_texts import in_pieces, takes_long_messages
from acphold.web.metrics import METRICS, Metrics
from acphold.web.notices import NOTICES, Notices
from acphold.web.page_files import PageFiles
from acphold.web.pairing_codes import Pairing, Worth
from acphold.web.reports import Reports
from acphold.web.sockets import AsgiSocket, Receive, Scope, Send, whole

log = logging.getLogger(__name__)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class CodeRequest(Struct, frozen=True):
    """The token a pairing code is asked for; all fields are optional."""

    scopes: tuple[Access, ...] = ()
    user: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)] | None = None


def application(
    endpoints: Endpoints,
    gate: Gate,
    pairing: Pairing,
    http: HttpClients,
    pages: JournalPages,
    feed: ListFeed,
    metrics: Metrics,
    page: PageFiles,
    reports: Reports,
    notices: Notices | None = None,
) -> Application:
    """Return the ASGI 3.0 application, for an ASGI server or to mount in another application."""
    devices = Devices(gate, pairing)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, *metrics.counted(receive, send))
        try:
            if scope["type"] == "websocket":
                admitted = await gate.admit(
                    exchange.headers,
                    scope.get("subprotocols", ()),
                    exchange.connection,
                    exchange.came,
                )
                if exchange.path.startswith(OWNERS):
                    await attend_websocket(
                        _Nodes(endpoints),
                        gate,
                        exchange,
                        _owner_at(endpoints, exchange, admitted),
                        admitted,
                    )
                    return
                name = await _agent_at(endpoints, exchange.path, admitted.principal)
                metrics.sockets += 1
                try:
                    await attend_websocket(endpoints, gate, exchange, name, admitted)
                finally:
                    metrics.sockets -= 1
            elif scope["type"] == "http":
                if notices is not None and exchange.path.startswith(NOTICES):
                    gate.check_place(exchange.headers)
                    await notices.answer(exchange, await _admitted(gate, exchange))
                    return
                await _request(
                    endpoints,
                    gate,
                    pairing,
                    devices,
                    http,
                    pages,
                    feed,
                    metrics,
                    page,
                    reports,
                    exchange,
                )
        except RefusedError as exc:
            metrics.refused[exc.status] += 1
            gate.note_refusal(exc, exchange.headers, exchange.came)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    return serve


async def _agent_at(endpoints: Endpoints, path: str, who: Principal) -> str:
    """Return the agent at `path` for this principal; raises RefusedError."""
    head, _, name = path[len(ENDPOINT) :].partition("/")
    found = None
    if path.startswith(ENDPOINT) and not head:
        found = await endpoints.name_of(name, who.session_id)
    if found is None:
        raise RefusedError(404, "no agent is served there")
    return found


def _owner_at(endpoints: Endpoints, exchange: Exchange, admitted: Admitted) -> str:
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
    agents: Attending, gate: Gate, exchange: Exchange, name: str, admitted: Admitted
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
    closing: list[asyncio.Task[None]] = []
    key = gate.connected(
        admitted, lambda why: closing.append(asyncio.create_task(socket.aclose(why)))
    )
    log.info("%s has come for %s", admitted.principal.name, name)
    try:
        await asyncio.wait({attending})
    finally:
        gate.disconnected(key)
        attending.cancel()
        await asyncio.wait({attending, *closing})
        await transport.aclose()
    attending.result()


async def _request(
    endpoints: Endpoints,
    gate: Gate,
    pairing: Pairing,
    devices: Devices,
    http: HttpClients,
    pages: JournalPages,
    feed: ListFeed,
    metrics: Metrics,
    page: PageFiles,
    reports: Reports,
    exchange: Exchange,
) -> None:
    """Answer one request that is not an upgrade."""
    gate.check_place(exchange.headers)
    match exchange.method, exchange.path:
        case "GET" | "HEAD", "/health":
            await exchange.answer(200, {"status": "ok"})
        case _, path if page.has(path):
            await page.answer(exchange)
        case _, path if devices.has(path):
            await devices.answer(exchange)
        case "POST", "/codes":
            await _new_code(gate, pairing, exchange)
        case _, path if path.startswith(ENDPOINT):
            admitted = await _admitted(gate, exchange)
            name = await _agent_at(endpoints, path, admitted.principal)
            await http.serve(exchange, name, admitted)
        case _, path if path == FEED:
            admitted = await _admitted(gate, exchange)
            await feed.answer(exchange, admitted)
        case _, path if path == METRICS:
            admitted = await _admitted(gate, exchange)
            await metrics.answer(exchange, admitted.principal)
        case _, path if reports.has(path):
            admitted = await _admitted(gate, exchange)
            await reports.answer(exchange, admitted.principal)
        case _, path if path.startswith((SESSIONS, SEARCH, INBOX)):
            admitted = await _admitted(gate, exchange)
            await pages.answer(exchange, admitted.principal)
        case _:
            raise RefusedError(404, "there is nothing at this address")


async def _admitted(gate: Gate, exchange: Exchange) -> Admitted:
    return await gate.admit(exchange.headers, (), exchange.connection, exchange.came)


async def _new_code(gate: Gate, pairing: Pairing, exchange: Exchange) -> None:
    if not exchange.is_json:
        raise RefusedError(415, "application/json is wanted")
    admitted = await _admitted(gate, exchange)
    who = admitted.principal
    if "manage" not in who.scopes or who.session_id is not None:
        who.refused("code", None)
        raise RefusedError(403, "a code is for who may manage; this token may not")
    try:
        asked = Decoder(CodeRequest).decode(await exchange.body(LARGEST_PAIRING))
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        raise RefusedError(400, 'scopes are wanted, as {"scopes": ["watch"]}, or {}') from None
    if NODE in asked.scopes:
        raise RefusedError(400, "a device is a person's, and no node")
    scopes = tuple(scope for scope in SCOPES if scope in (asked.scopes or SCOPES))
    is_own = asked.user in (None, who.tenant)
    if not who.scopes.issuperset(scopes) or not (is_own or who.sees_all):
        who.refused("code", None)
        raise RefusedError(403, "a code permits no more than the token that asks for it")
    who.note("code", None)
    tenant = who.tenant if asked.user is None else asked.user
    code = pairing.new_code(Worth(scopes, admitted.token, tenant))
    await exchange.answer(200, {"code": code, "seconds": int(pairing_codes.SECONDS)})
