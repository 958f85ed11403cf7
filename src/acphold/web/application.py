"""The ASGI application: `/acp` for clients, `/pair` for new devices, `/health` for who watches.

    /acp, /acp/NAME   ACP over a WebSocket or Streamable HTTP, in front of the default agent, or the
                      one of that name (ACP RFD, Streamable HTTP & WebSocket transport)
    POST /codes       {"scopes", "user"} → {"code", "seconds"}: a code to pair a device with; needs
                      manage. The device is of who asks; who sees all may name another `user`
    POST /pair        {"code", "name"} → {"token", "scopes"}, and a cookie for a page of ours
    GET /sessions …   the list, its entries, and what is found in them: see `web.journal_pages`;
                      the list as it changes: see `web.list_feed`
    GET /inbox …      what waits for a person in all sessions, and what was decided: see there
    GET /             the page for a browser, and what it is made of: see `web.page_files`
    GET /usage        what agents reported, and a session as a file: see `web.reports`
    /notices …        which browsers are told of what waits: see `web.notices`
    GET /metrics      figures for who watches over the server: see `web.metrics`
    /owners/MARK/NAME sessions that are live here for another node, over a WebSocket; needs a token
                      of the nodes
    GET /health       {"status": "ok"}; this and the page alone need no token

Each request passes the gate (`web.gate`) first.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder

from acphold.journal.access import NODE, SCOPES, token_id
from acphold.journal.access import Scope as Access
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.transports.addresses import ENDED, OWNERS
from acphold.transports.messages import MessageTransport
from acphold.transports.urls import ENDPOINT
from acphold.web import pairing_codes
from acphold.web.endpoints import Attending, Endpoints
from acphold.web.exchange import Exchange
from acphold.web.gate import COOKIE, SUBPROTOCOL, Admitted, Gate, RefusedError
from acphold.web.http_clients import CONNECTION_ID, HttpClients
from acphold.web.journal_pages import INBOX, SEARCH, SESSIONS, JournalPages
from acphold.web.list_feed import FEED, ListFeed
from acphold.web.metrics import METRICS, Metrics
from acphold.web.notices import NOTICES, Notices
from acphold.web.page_files import PageFiles
from acphold.web.pairing_codes import Pairing, Worth
from acphold.web.reports import Reports
from acphold.web.sockets import AsgiSocket, Receive, Scope, Send

log = logging.getLogger(__name__)

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_PAIRING: Final = 4096
"""Bytes of a request to pair."""

COOKIE_SECONDS: Final = 400 * 86_400
"""How long a browser keeps its token: none takes more. Revoked, it opens nothing all the same."""

NAME_LENGTH: Final = 60
"""Characters of the name of a device."""


class CodeRequest(Struct, frozen=True):
    """What a code is to be worth; all for nothing."""

    scopes: tuple[Access, ...] = ()
    user: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)] | None = None


class PairRequest(Struct, frozen=True):
    """What a new device sends."""

    code: str
    name: str = ""


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
    """What an ASGI server serves, or another application mounts; ASGI 3.0."""

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
                    endpoints, gate, pairing, http, pages, feed, metrics, page, reports, exchange
                )
        except RefusedError as exc:
            metrics.refused[exc.status] += 1
            gate.note_refusal(exc, exchange.headers, exchange.came)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    return serve


async def _agent_at(endpoints: Endpoints, path: str, who: Principal) -> str:
    """The agent that a path names for somebody; RefusedError."""
    head, _, name = path[len(ENDPOINT) :].partition("/")
    found = None
    if path.startswith(ENDPOINT) and not head:
        found = await endpoints.name_of(name, who.session_id)
    if found is None:
        raise RefusedError(404, "no agent is served there")
    return found


def _owner_at(endpoints: Endpoints, exchange: Exchange, admitted: Admitted) -> str:
    """The agent whose sessions another node has come for; RefusedError."""
    if NODE not in admitted.principal.scopes:
        raise RefusedError(403, "this is for nodes: `acphold token create --node`")
    mark, _, name = exchange.path.removeprefix(OWNERS).partition("/")
    if mark != endpoints.mark:
        raise RefusedError(ENDED, "the process that had this address has ended")
    if name not in endpoints.open_names:
        raise RefusedError(404, "no sessions of that agent are live here")
    return name


class _Nodes:
    """What serves the processes of other nodes."""

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
    """Serve one client of an agent, from its upgrade to its end."""
    subprotocols: list[str] = exchange.scope.get("subprotocols", [])
    await exchange.receive()  # websocket.connect
    await exchange.send(
        {
            "type": "websocket.accept",
            "subprotocol": SUBPROTOCOL if SUBPROTOCOL in subprotocols else None,
            "headers": [(CONNECTION_ID.encode(), str(uuid.uuid4()).encode())],
        }
    )
    socket = AsgiSocket(exchange.receive, exchange.send)
    direct = None if exchange.connection is None else exchange.connection.direct
    transport = MessageTransport(socket) if direct is None else direct()
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
    http: HttpClients,
    pages: JournalPages,
    feed: ListFeed,
    metrics: Metrics,
    page: PageFiles,
    reports: Reports,
    exchange: Exchange,
) -> None:
    """One request that is no upgrade."""
    gate.check_place(exchange.headers)
    match exchange.method, exchange.path:
        case "GET" | "HEAD", "/health":
            await exchange.answer(200, {"status": "ok"})
        case _, path if page.has(path):
            await page.answer(exchange)
        case "POST", "/pair":
            await _pair(gate, pairing, exchange)
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


async def _pair(gate: Gate, pairing: Pairing, exchange: Exchange) -> None:
    # A form of another page cannot send this type without being asked for leave first.
    if not exchange.is_json:
        raise RefusedError(415, "application/json is wanted")
    body = await exchange.body(LARGEST_PAIRING)
    try:
        asked = Decoder(PairRequest).decode(body)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        raise RefusedError(400, 'a code is wanted, as {"code": "…", "name": "…"}') from None
    worth = pairing.redeem(asked.code, exchange.peer)
    asker = await gate.good(worth.asker) if worth is not None and worth.asker is not None else None
    if worth is None or (worth.asker is not None and asker is None):
        told = "this code is wrong, used, or too old; `acphold serve` has another"
        raise RefusedError(403, told, attempt="a wrong code")
    name = "".join(each for each in asked.name if each.isprintable())[:NAME_LENGTH] or "a device"
    # What it is given lasts no longer than what it is given by.
    ends = None if asker is None else asker.expires_at
    token = await gate.grant(name, worth.scopes, ends, worth.tenant)
    came, id_ = exchange.came, token_id(token)
    address = gate.address(exchange.headers, came)
    gate.audit.note("pair", None, name=name, token=id_, address=address, transport=came.transport)
    secure = "; Secure" if exchange.scope.get("scheme") == "https" else ""
    # Without an age a phone would forget it as soon as its browser is ended.
    cookie = (
        f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_SECONDS}{secure}"
    )
    granted = {"token": token, "scopes": worth.scopes}
    await exchange.answer(200, granted, [(b"set-cookie", cookie.encode())])
