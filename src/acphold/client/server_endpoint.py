"""A remote server as an endpoint: `acphold serve`, or another ACP server."""

from __future__ import annotations

import asyncio
import logging
from http.cookiejar import CookieJar

from acphold.client.far_line import FarLine, OnAway
from acphold.client.uplink import Endpoint
from acphold.errors import AcpholdError, ConnectionLostError, DeclarationError
from acphold.rpc import Transport
from acphold.tasks import end
from acphold.transports.known_servers import ca_for, token_for
from acphold.transports.memory import memory_pair
from acphold.transports.route import Route
from acphold.transports.urls import origin_of, transport_of

log = logging.getLogger(__name__)


class Dial:
    """Makes connections to the server at a URL: over a WebSocket, or HTTP once no WebSocket gets
    through.

    `?transport=` in the URL decides otherwise; ValueError if that is wrong. The default `token` is
    the one that this user has paired for. Without either it connects all the same: other servers
    may let anybody in, or ask in another way. `ca` is a file of certificates to trust beside the
    usual; by default the one that it was paired with.
    """

    def __init__(
        self, url: str, token: str | None, *, seconds: float, limit: int, ca: str | None = None
    ) -> None:
        self._url, self._transport = transport_of(url)
        self._token = token
        trusted = ca or ca_for(self._url)
        self._route = Route(self._url, seconds=seconds, limit=limit, trusted=trusted)
        self.tells_refusals = False
        """True if a refusal by HTTP is to be told as such, not as an error of JSON-RPC."""

    def forget(self) -> None:
        """Forget the cookies of the connections so far."""
        self._route.cookies = CookieJar()

    async def __call__(self) -> Transport:
        """Make a connection; see `transports.websocket.connect`."""
        from acphold.transports import websocket  # late: an optional package

        self._route.token = self._token or token_for(self._url)
        if self._transport == "http":
            return await self._over_http()
        try:
            return await websocket.connect(self._route)
        except websocket.NoUpgradeError as exc:
            if self._transport == "websocket":
                raise exc.error from None
            try:
                transport = await self._over_http()
            except ConnectionLostError:
                raise exc.error from None
        log.info("%s lets no WebSocket through: HTTP from now on", self._route.origin)
        self._transport = "http"
        return transport

    async def _over_http(self) -> Transport:
        from acphold.transports import http_streams  # late: rarely needed

        return await http_streams.connect(self._route, tells_refusals=self.tells_refusals)


class ServerEndpoint(Endpoint):
    """The server at a URL; a lost connection to it is replaced (`client.far_line`).

    `on_away` is called when it is lost, and when it is back.
    """

    is_acphold = True
    is_repeatable = True

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        seconds: float,
        limit: int,
        on_away: OnAway = bool,
        ca: str | None = None,
    ) -> None:
        try:
            self.name = origin_of(url)
            self._dial = Dial(url, token, seconds=seconds, limit=limit, ca=ca)
        except ValueError as exc:
            raise DeclarationError(str(exc)) from None
        self._limit = limit
        self._on_away = on_away
        self._line: asyncio.Task[None] | None = None

    async def open(self) -> Transport:
        await self.aclose()
        first = await self._dial()
        ours, theirs = memory_pair()
        line = FarLine(theirs, self._dial, self.name, self._limit, first, self._on_away)
        self._line = asyncio.create_task(line.run(), name="far line")
        return ours

    async def how_it_ended(self) -> AcpholdError:
        if self._line is not None and self._line.done() and not self._line.cancelled():
            why = self._line.exception()
            if isinstance(why, AcpholdError):
                return why
        return ConnectionLostError(f"the connection to {self.name} is lost")

    async def aclose(self) -> None:
        await end(self._line)
        self._line = None
