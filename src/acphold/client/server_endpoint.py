"""A server far away, as what a client connects to: `acphold serve`, or another one of ACP."""

from __future__ import annotations

import asyncio

from acphold.client.known_servers import token_for
from acphold.errors import AcpholdError, ConnectionLostError, DeclarationError
from acphold.rpc import Peer, Transport
from acphold.transports import websocket
from acphold.transports.urls import origin_of


class ServerEndpoint:
    """The server at a URL; `token` is the one that we have paired for, if none is given."""

    is_acphold = True
    is_repeatable = True

    def __init__(self, url: str, token: str | None, *, seconds: float, limit: int) -> None:
        try:
            self.name = origin_of(url)
        except ValueError as exc:
            raise DeclarationError(str(exc)) from None
        self.cwd: str | None = None
        self._url = url
        self._token = token
        self._seconds = seconds
        self._limit = limit
        self._transport: Transport | None = None

    async def open(self) -> Transport:
        token = self._token or token_for(self._url)
        self._transport = await websocket.connect(
            self._url, token, seconds=self._seconds, limit=self._limit
        )
        return self._transport

    async def follow(self, peer: Peer, pump: asyncio.Task[None]) -> None:
        await asyncio.wait([pump])

    async def how_it_ended(self) -> AcpholdError:
        return ConnectionLostError(f"the connection to {self.name} is lost")

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
