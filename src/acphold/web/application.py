"""The ASGI applications of `acphold serve` and of a library server.

Each request passes the gate (`web.gate`) first. `acphold serve` answers:

    /acp, /acp/NAME   ACP over a WebSocket or Streamable HTTP, in front of the default agent, or the
                      one of that name (ACP RFD, Streamable HTTP & WebSocket transport)
    POST /codes       a code to pair a device with; needs manage: see `web.devices`
    POST /pair        a device's token for a code; for a browser /browser: see `web.devices`
    GET /sessions …   the list, its entries, and search: see `web.journal_pages`; the list as
                      it changes: see `web.list_feed`
    GET /inbox …      pending questions of all sessions, and past decisions: see
                      `web.journal_pages`
    GET /             the page for a browser, and its files: see `web.page_files`
    /rules …          standing answers: see `web.rule_requests`
    GET /usage        usage reported by agents, and a session as a file: see `web.reports`
    /notices …        the browsers notified of pending questions: see `web.notices`
    /import           conversations that agents left on disk: see `web.import_requests`
    GET /metrics      metrics for monitoring: see `web.metrics`
    /owners/MARK/NAME sessions that are live here for another node, over a WebSocket; needs a token
                      of the nodes
    /moves/ID         a session that goes to another machine: the frames of `hub.moves` over a
                      WebSocket, this server being the giver. It takes the session away from here,
                      so it needs the scope manage; its files need files, too
    GET /health       {"status": "ok"}; only this and the page need no token

A library server answers /acp and GET /health, below any prefix. Its clients are authenticated by a
token of the journal, as with `acphold serve`, or by the author's own coroutine.
"""

# See docs/decisions.md, 36.

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from acp_wire.rpc import Transport
from acp_wire.tasks import TaskSet, end
from acp_wire.transports.known_servers import ENDPOINT
from acp_wire.transports.messages import MessageTransport
from acphold.errors import AcpError, ForbiddenError, MoveRefusedError
from acphold.journal.access import NODE, Access
from acphold.journal.journal import Journal
from acphold.live.hub.move_giver import give
from acphold.live.hub.moves import MoveLine
from acphold.live.reading.processes import let_go
from acphold.live.reading.requests import CHANGES, FEED, INBOX, RULES, SEARCH, SESSIONS, USAGE
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Principal
from acphold.live.server.relay_protocol import RelayedClient
from acphold.live.server.service import EXPIRED
from acphold.machine.addresses import ENDED, MOVES, OWNERS
from acphold.web import bounds
from acphold.web.connections import (
    CuttingSocket,
    Guarded,
    Headers,
    Receive,
    Scope,
    Send,
    in_pieces,
    repeating,
    takes_long_messages,
    whole,
)
from acphold.web.devices import BROWSER, PAIR, Devices
from acphold.web.exchange import HttpExchange, RefusedError, refusing
from acphold.web.gate import OTHER_ORIGIN, SUBPROTOCOL, Admitted, Gate
from acphold.web.http_clients import CONNECTION_ID, HttpClients
from acphold.web.import_requests import IMPORT, ImportRequests
from acphold.web.journal_pages import JournalPages
from acphold.web.list_feed import ListFeed
from acphold.web.metrics import METRICS, Metrics
from acphold.web.notices import NOTICES, Notices
from acphold.web.page_files import ADDRESSES, PageFiles
from acphold.web.relay import Relay
from acphold.web.reports import CONTEXTS, EXPORT, GLANCES, KEPT, PRESENT, Reports
from acphold.web.rule_requests import RuleRequests
from acphold.web.socket_transport import over_uvicorn

log = logging.getLogger(__name__)

MOVE: Final = "move"
"""The deed in the audit log."""


class ServedMoves:
    """Serves machines that take a session."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._under_way = 0

    async def attend(self, session_id: str, transport: Transport, principal: Principal) -> None:
        """Give the session to the taker at the other end, or say why not."""
        try:
            row = await self._journal.session(session_id)
            principal.check_in(row, Asked.read(MOVE))
            if self._under_way >= bounds.MOVES_AT_ONCE:
                raise MoveRefusedError(
                    "too many sessions are being moved from this server; try again later"
                )
            why_no_files = ""
            if "files" not in principal.scopes_in(row):
                lacking = ForbiddenError("taking its files", "files")
                why_no_files = f"{lacking}; use --no-files to leave them there"
        except AcpError as error:
            await MoveLine(transport).refuse(str(error))
            return

        def has_gone() -> None:  # also if the connection breaks behind it
            principal.note(MOVE, session_id)
            log.info("session %s was moved to %s", session_id, principal.name)

        self._under_way += 1
        try:
            await let_go(self._journal, session_id)
            await give(
                *(self._journal, transport, session_id),
                why_no_files=why_no_files,
                has_gone=has_gone,
            )
        except AcpError as error:  # the taker was told
            log.info("a move of session %s ended: %s", session_id, error)
        finally:
            self._under_way -= 1


class Application:
    """The ASGI 3.0 application, for an ASGI server or to mount in another application."""

    def __init__(
        self,
        *,
        relay: Relay,
        gate: Gate,
        devices: Devices,
        http: HttpClients,
        pages: JournalPages,
        feed: ListFeed,
        metrics: Metrics,
        moves: ServedMoves,
        page: PageFiles,
        reports: Reports,
        rules: RuleRequests,
        notices: Notices,
        imports: ImportRequests,
    ) -> None:
        self._relay = relay
        self._gate = gate
        self._http = http
        self._metrics = metrics
        self._moves = moves
        # What answers everybody's requests, by the pattern of their addresses.
        self._open: dict[str, Callable[[HttpExchange], Awaitable[None]]] = {
            ADDRESSES: page.answer,
            f"{PAIR}|{BROWSER}": devices.answer,
        }
        # What answers those with a token: the first that fits; which scopes it needs there is up to
        # the session.
        self._routes: dict[str, Callable[[HttpExchange, Admitted], Awaitable[None]]] = {
            f"{NOTICES}.*": notices.answer,
            IMPORT: imports.answer,
            "/codes": devices.offer_code,
            f"{ENDPOINT}.*": self._answer_agent,
            FEED: feed.answer,
            METRICS: metrics.answer,
            f"{USAGE}|{GLANCES}|{CONTEXTS}": reports.answer,
            f"{SESSIONS}/.*({EXPORT}|{CHANGES}|{KEPT}|{PRESENT})": reports.answer,
            f"{RULES}(/.*)?": rules.answer,
            f"({SESSIONS}|{SEARCH}|{INBOX}).*": pages.answer,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve a connection until it ends."""
        exchange = HttpExchange(scope, *self._metrics.wrap(receive, send))
        try:
            if exchange.is_socket:
                await self._attend(exchange)
            elif scope["type"] == "http":
                self._gate.check_place(exchange.headers)
                with refusing():
                    await self._answer(exchange)
        except RefusedError as exc:
            self._metrics.refused[exc.status] += 1
            self._gate.note_refusal(exc, exchange)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    async def _attend(self, exchange: HttpExchange) -> None:
        """Serve a client of an agent, another node, or another machine that takes a session, over a
        WebSocket."""
        admitted = await self._gate.admit(exchange)
        who, path = admitted.principal, exchange.path
        attend: Callable[[Transport], Coroutine[Any, Any, None]]
        if path.startswith(OWNERS):
            if NODE not in who.scopes:
                raise RefusedError(
                    403, "this address needs a token of a node: `acphold access token --node`"
                )
            mark, _, _ = path.removeprefix(OWNERS).partition("/")
            if (line := self._relay.line_of_node(mark)) is None:
                raise RefusedError(ENDED, "the process at this address has ended")
            attend = partial(line.relay, RelayedClient(mark, None))
        elif path.startswith(MOVES):
            attend = partial(self._moves.attend, path.removeprefix(MOVES), principal=who)
        else:
            name = await _agent_at(self._relay, path, who)
            attend = partial(self._relay.attend, name, principal=who, headers=exchange.headers)
        self._metrics.sockets += 1
        try:
            await attend_websocket(attend, self._gate, exchange, admitted)
        finally:
            self._metrics.sockets -= 1

    async def _answer(self, exchange: HttpExchange) -> None:
        """Answer one request that is not an upgrade."""
        if exchange.path == "/health":
            exchange.require("GET", "HEAD")
            await exchange.answer(200, {"status": "ok"})
            return
        for pattern, answer_anybody in self._open.items():
            if re.fullmatch(pattern, exchange.path, re.DOTALL):
                await answer_anybody(exchange)
                return
        for pattern, answer in self._routes.items():
            if re.fullmatch(pattern, exchange.path, re.DOTALL):
                await answer(exchange, await self._gate.admit(exchange))
                return
        raise RefusedError(404, "there is nothing at this address")

    async def _answer_agent(self, exchange: HttpExchange, admitted: Admitted) -> None:
        name = await _agent_at(self._relay, exchange.path, admitted.principal)
        await self._http.serve(exchange, name, admitted)


async def _agent_at(relay: Relay, path: str, who: Principal) -> str:
    """Return the agent at `path` for this principal; raises RefusedError."""
    head, _, name = path[len(ENDPOINT) :].partition("/")
    found = None
    if path.startswith(ENDPOINT) and not head:
        try:
            found = await relay.name_of(name, who.session_id)
        except AcpError as exc:
            raise RefusedError(503, str(exc)) from None
    if found is None:
        raise RefusedError(404, "no agent is served at this address")
    return found


async def attend_websocket(
    attend: Callable[[Transport], Coroutine[Any, Any, None]],
    gate: Gate,
    exchange: HttpExchange,
    admitted: Admitted,
) -> None:
    """Serve one client with `attend`, from its upgrade until it leaves."""
    await exchange.receive()  # websocket.connect
    await exchange.send(
        {
            "type": "websocket.accept",
            "subprotocol": SUBPROTOCOL if SUBPROTOCOL in exchange.subprotocols else None,
            "headers": [(CONNECTION_ID.encode(), str(uuid.uuid4()).encode())],
        }
    )
    cut = whole if takes_long_messages(exchange.headers) else in_pieces
    socket = CuttingSocket(exchange.receive, exchange.send, cut)
    transport: Transport | None
    if exchange.connection is not None and exchange.connection.direct is not None:
        transport = exchange.connection.direct(cut)
    else:
        transport = over_uvicorn(exchange.receive, exchange.send, cut)
    guarded = transport if isinstance(transport, Guarded) else socket
    guarded.standstill = gate
    transport = transport or MessageTransport(socket)
    attending = asyncio.create_task(attend(transport), name="attend")
    closing = TaskSet()

    def close(why: int) -> None:
        guarded.is_shut = True
        closing.start(socket.aclose(why), "close socket")

    try:
        with gate.connected(admitted, close):
            log.info("%s connected to %s", admitted.principal.name, exchange.path)
            await asyncio.wait({attending})
    finally:
        await end(attending)
        await closing.finish()
        await transport.aclose()
    attending.result()


Admit: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Principal | None]]
"""Returns the sender of a request from its ASGI scope; None refuses it."""


class Attend(Protocol):
    """Serves one client until it leaves."""

    async def __call__(
        self, transport: Transport, *, principal: Principal, headers: Mapping[str, str]
    ) -> None: ...


class Served(Struct, frozen=True):
    """The mounted server, and how it is opened.

    `tokens` returns those of its journal, None while it is not open; `keep` keeps a context open
    until it ends. `max_message` is in bytes. It `asks_to_sign_in` if the agent itself authenticates
    users (`Agent.auth`).
    """

    server: AbstractAsyncContextManager[object]
    attend: Attend
    tokens: Callable[[], Access | None]
    keep: Callable[[AbstractAsyncContextManager[None]], Awaitable[None]]
    max_message: int
    asks_to_sign_in: bool


class Mounted:
    """The ASGI 3.0 application that `Server.asgi` makes; mount it under any prefix.

        PREFIX/acp         ACP over a WebSocket or Streamable HTTP
        GET PREFIX/health  {"status": "ok"}; asks nobody who they are

    Alone in an ASGI server, it opens and ends its `Server` by itself (lifespan); inside another
    application (Starlette, FastAPI), open that in the application's lifespan. Until then it answers
    503. A page of another origin gets 403, a client that `admit` does not know 401.

    Experimental: as `Server.asgi`.
    """

    def __repr__(self) -> str:
        return "<Mounted: /acp over WebSocket and Streamable HTTP>"

    def __init__(self, served: Served, admit: Admit | None, origins: Collection[str]) -> None:
        self._served = served
        self._admit = admit
        self._origins = origins
        self._opening = asyncio.Lock()
        self._open: tuple[Gate, HttpClients] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # The events of an ASGI server that has no other application.
            await receive()
            try:
                await self._served.server.__aenter__()
            except Exception as exc:
                log.exception("the server could not be opened")
                await send({"type": "lifespan.startup.failed", "message": str(exc)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._served.server.__aexit__(None, None, None)
            await send({"type": "lifespan.shutdown.complete"})
            return
        exchange = HttpExchange(scope, receive, send)
        try:
            await self._answer(exchange)
        except RefusedError as exc:
            if self._open is not None:
                gate, _ = self._open
                gate.note_refusal(exc, exchange)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    # -- requests -----------------------------------------------------------------------------

    async def _answer(self, exchange: HttpExchange) -> None:
        async with self._opening:  # by the first request
            if (tokens := self._served.tokens()) is None:
                raise RefusedError(503, "this server is not open")
            if self._open is None:
                gate: Gate = _MountedGate(tokens, self._origins)
                clients = HttpClients(self, gate)
                await self._served.keep(self._running(gate, clients))
                self._open = gate, clients
            gate, clients = self._open
        gate.check_place(exchange.headers)
        match exchange.method, exchange.path:
            case "GET", "/health":
                await exchange.answer(200, {"status": "ok"})
            case _, path if path == ENDPOINT:
                admitted = await self._let_in(gate, exchange)
                if exchange.is_socket:
                    who, headers = admitted.principal, exchange.headers
                    attend = partial(self._served.attend, principal=who, headers=headers)
                    await attend_websocket(attend, gate, exchange, admitted)
                else:
                    await clients.serve(exchange, "", admitted)
            case _:
                raise RefusedError(404, "there is nothing at this address")

    async def _let_in(self, gate: Gate, exchange: HttpExchange) -> Admitted:
        if self._admit is None:
            return await gate.admit(exchange)
        principal: object = self._admit(exchange.scope)
        if isinstance(principal, Awaitable):
            principal = await principal
        if principal is None:
            raise RefusedError(401, "the server could not identify you", attempt="nobody known")
        if not isinstance(principal, Principal):
            log.error("nobody was let in: %r is neither a Principal nor None", principal)
            raise RefusedError(500, "this server cannot say who you are")
        if not principal.is_known and not self._served.asks_to_sign_in:
            log.error(
                "%r was not let in: their Principal does not say which sessions they may use; give "
                'it a tenant, "" if all share their sessions, a session_id, or sees_all=True',
                principal.name,
            )
            raise RefusedError(500, "this server does not know which sessions you may use")
        if principal.ends_at is not None and principal.ends_at <= time.time():
            raise RefusedError(401, EXPIRED, attempt="an access that is over")
        # Only the sender of its first request, with the same scopes, may use an HTTP connection.
        who = (
            principal.tenant,
            principal.name,
            principal.session_id,
            principal.sees_all,
            sorted(principal.scopes),
        )
        return Admitted(replace(principal, is_here=False), encode(who).decode())

    @asynccontextmanager
    async def _running(self, gate: Gate, clients: HttpClients) -> AsyncIterator[None]:
        # With `admit`, clients have no tokens of ours.
        has_tokens = self._admit is None
        checks = repeating(gate.check, bounds.TOKENS_SECONDS) if has_tokens else nullcontext()
        awake = repeating(gate.keep_awake, bounds.AWAKE_SECONDS) if has_tokens else nullcontext()
        async with clients, gate.audit.kept(), checks, awake:
            try:
                yield
            finally:
                self._open = None  # the server may be opened again

    # -- for those that serve one client -------------------------------------------------------

    def limit(self, name: str) -> int:
        """Return the longest message, in bytes."""
        return self._served.max_message

    async def attend(
        self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
    ) -> None:
        """Serve one client until it leaves."""
        await self._served.attend(transport, principal=principal, headers=headers)


class _MountedGate(Gate):
    """A gate behind another server, whose names it does not know.

    It detects a page of another host by the headers that browsers send. A name that was made to
    resolve to this server (DNS rebinding) has no token or cookie of it.
    """

    realm = ""  # there is no pairing with it
    wanted = "a token is required: `acphold access token` makes one for the journal of this server"

    def check_place(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise RefusedError(403, OTHER_ORIGIN, attempt="a page of another origin")
