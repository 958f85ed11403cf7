"""The application of a library server, to be mounted in another ASGI application.

    PREFIX/acp         ACP over a WebSocket or Streamable HTTP
    GET PREFIX/health  {"status": "ok"}

Clients are authenticated before anything is answered: by a token of the journal, as with `acphold
serve`, or by the author's own coroutine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec.json import encode
from msgspec.structs import replace

from acphold.journal.access import Access
from acphold.rpc import Transport
from acphold.server.principals import Principal
from acphold.server.service import EXPIRED
from acphold.tasks import beside
from acphold.transports.urls import ENDPOINT
from acphold.web.application import attend_websocket
from acphold.web.exchange import HttpExchange
from acphold.web.gate import (
    TOKENS_SECONDS,
    Admitted,
    Gate,
    OtherOriginError,
    RefusedError,
)
from acphold.web.http_clients import HttpClients
from acphold.web.sockets import Headers, Receive, Scope, Send

log = logging.getLogger(__name__)

Admit: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Principal | None]]
"""Returns the sender of a request from its ASGI scope; None refuses it.

Its `tenant` is the user whose sessions it sees, "" if all share theirs; leave it out only if the
agent asks users to sign in, they come for one session, or they see all tenants' sessions.
"""

NAME: Final = ""
"""The path of the one served agent, below the endpoint."""


class Served(Protocol):
    """The mounted server."""

    @property
    def tokens(self) -> Access | None:
        """The tokens of its journal; None while it is not open."""

    @property
    def max_message(self) -> int:
        """The longest message, in bytes."""

    @property
    def asks_to_sign_in(self) -> bool:
        """True if the agent itself authenticates users (`Agent.auth`)."""

    async def keep(self, what: AbstractAsyncContextManager[None]) -> None:
        """Keep this context open until the server ends."""

    async def attend(
        self, transport: Transport, *, principal: Principal, headers: Mapping[str, str]
    ) -> None: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, kind: None, error: None, trace: None) -> None: ...


class Mounted:
    """The ASGI 3.0 application that `Server.asgi` makes; mount it under any prefix.

        PREFIX/acp         ACP over a WebSocket or Streamable HTTP
        GET PREFIX/health  {"status": "ok"}; asks nobody who they are

    It answers 503 while its server is not open. As the only application of an ASGI server it opens
    and ends the server by itself (lifespan); inside another application, open the server in that
    application's lifespan. A page of another origin gets 403, a client that `admit` does not know
    401.

    Experimental: the remote transport is a draft of the protocol.
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
            await self._live(receive, send)
            return
        exchange = HttpExchange(scope, receive, send)
        try:
            await self._answer(exchange)
        except RefusedError as exc:
            if self._open is not None:
                gate, _ = self._open
                gate.note_refusal(exc, exchange.headers, exchange.came)
            log.info("%s: %d %s", exchange.path, exc.status, exc)
            await exchange.refuse(exc)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the lifespan events of an ASGI server that has no other application."""
        await receive()
        try:
            await self._served.__aenter__()
        except Exception as exc:
            log.exception("the server was not opened")
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._served.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    # -- requests -----------------------------------------------------------------------------

    async def _answer(self, exchange: HttpExchange) -> None:
        gate, clients = await self._opened()
        gate.check_place(exchange.headers)
        match exchange.method, exchange.path:
            case "GET", "/health":
                await exchange.answer(200, {"status": "ok"})
            case _, path if path == ENDPOINT:
                admitted = await self._admitted(gate, exchange)
                if exchange.scope["type"] == "websocket":
                    await attend_websocket(self, gate, exchange, NAME, admitted)
                else:
                    await clients.serve(exchange, NAME, admitted)
            case _:
                raise RefusedError(404, "there is nothing at this address")

    async def _admitted(self, gate: Gate, exchange: HttpExchange) -> Admitted:
        if self._admit is None:
            offered = exchange.scope.get("subprotocols", [])
            return await gate.admit(exchange.headers, offered, exchange.connection, exchange.came)
        principal = await self._admit(exchange.scope)
        if principal is None:
            raise RefusedError(401, "it is not known who you are", attempt="nobody known")
        if not principal.is_known and not self._served.asks_to_sign_in:
            log.error(
                "%r was not let in: their Principal does not say which sessions they may use; give "
                'it a tenant, "" if all share their sessions, a session_id, or sees_all=True',
                principal.name,
            )
            raise RefusedError(500, "this server does not know which sessions are yours")
        if principal.expires_at is not None and principal.expires_at <= time.time():
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

    async def _opened(self) -> tuple[Gate, HttpClients]:
        """Return the gate and clients, opened by the first request; raises RefusedError."""
        async with self._opening:
            if (tokens := self._served.tokens) is None:
                raise RefusedError(503, "this server is not open")
            if self._open is None:
                gate = _MountedGate(tokens, self._origins)
                clients = HttpClients(self, gate)
                await self._served.keep(self._running(gate, clients))
                self._open = gate, clients
            return self._open

    @asynccontextmanager
    async def _running(self, gate: Gate, clients: HttpClients) -> AsyncIterator[None]:
        async def look() -> None:
            while self._admit is None:  # with `admit`, clients have no tokens of ours
                await asyncio.sleep(TOKENS_SECONDS)
                await gate.look()

        async with clients, gate.audit.kept(), beside(look(), "look at tokens"):
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
    wanted = "a token is required: `acphold token create` makes one for the journal of this server"

    def check_place(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._origins:
            return
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise OtherOriginError
