"""Connections to a server far away: over a WebSocket, or over HTTP where none gets through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http.cookiejar import CookieJar
from time import monotonic

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc import Transport
from acp_wire.tasks import timeout
from acp_wire.transports.known_servers import Token, known_servers, transport_of
from acp_wire.transports.route import Route

log = logging.getLogger(__name__)


class Dial:
    """Makes connections to the server at a URL: over a WebSocket, or over HTTP if no WebSocket gets
    through.

    `?transport=` in the URL requires one of them; ValueError if it names another. The default
    `token` is the one from pairing; a function is called for each connection, and over HTTP for
    each request. It connects without a token, too: other servers may admit
    anybody, or authenticate in another way. `ca` is a file of additional certificates to trust, ""
    for none; by default the one from pairing. Raises SettingsError if the file of pairings cannot
    be read.
    """

    def __init__(
        self, url: str, token: Token | None, *, seconds: float, limit: int, ca: str | None = None
    ) -> None:
        self._url, self._transport = transport_of(url)
        self._token = token
        trusted = known_servers().at(self._url).ca if ca is None else ca
        self._route = Route(self._url, seconds=seconds, limit=limit, trusted=trusted or None)
        if callable(token):
            self._route.on_request = partial(self._renew, token)
        self.tells_refusals = False
        """True if a refusal by HTTP is reported as a line of HTTP, not as an error of JSON-RPC."""

    def forget(self) -> None:
        """Forget the cookies of the connections so far."""
        self._route.cookies = CookieJar()

    async def __call__(self) -> Transport:
        """Make a connection, within its seconds also to a server that names a time after which to
        try again; see `transports.websocket.connect`."""
        from acp_wire.transports import websocket  # late: an optional package

        if not callable(self._token):
            self._route.token = self._token or known_servers().at(self._url).token
        if self._transport == "http":
            return await self._over_http()
        deadline = monotonic() + self._route.seconds
        while True:
            if self._route.on_request is not None:
                await self._route.on_request()
            try:
                return await websocket.connect(self._route)
            except websocket.NoUpgradeError as exc:
                refusal = exc
            if not 0 < refusal.again < deadline - monotonic():
                break
            await asyncio.sleep(refusal.again)
        if self._transport == "websocket":
            raise refusal.error
        try:
            transport = await self._over_http()
        except ConnectionLostError:
            raise refusal.error from None
        log.info("no WebSocket gets through to %s: using HTTP from now on", self._route.origin)
        self._transport = "http"
        return transport

    async def _renew(self, token: Callable[[], str | Awaitable[str]]) -> None:
        """Ask the program for its token; ConnectionLostError if it has none now."""
        try:
            async with timeout(self._route.seconds):
                found = token()
                self._route.token = found if isinstance(found, str) else await found
        except Exception as exc:  # the program's own: we try again, as after any loss
            reason = f"{type(exc).__name__}: {exc}".removesuffix(": ")
            raise ConnectionLostError(
                f"no token for {self._route.origin}: the function `token` failed with {reason}"
            ) from exc

    async def _over_http(self) -> Transport:
        from acp_wire.transports import http_client  # late: rarely needed

        return await http_client.connect(self._route, tells_refusals=self.tells_refusals)
