"""A server far away, as what a client connects to: `acphold serve`, or another one of ACP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from acphold.client.far_line import FarLine, OnAway
from acphold.client.known_servers import token_for
from acphold.errors import AcpholdError, ConnectionLostError, DeclarationError
from acphold.rpc import Peer, Transport
from acphold.transports import websocket
from acphold.transports.memory import memory_pair
from acphold.transports.urls import origin_of


def dialing(
    url: str, token: str | None, *, seconds: float, limit: int
) -> Callable[[], Awaitable[Transport]]:
    """What makes a connection to the server at a URL; see `transports.websocket.connect`.

    `token` is the one that this user has paired for, if none is given. Without either it is tried
    all the same: servers of others let in whoever comes, or have another way to ask.
    """

    async def dial() -> Transport:
        known = token or token_for(url)
        return await websocket.connect(url, known, seconds=seconds, limit=limit)

    return dial


class ServerEndpoint:
    """The server at a URL; what is lost on the way to it is taken up again (`client.far_line`).

    `on_away` hears when that begins, and when it is over.
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
    ) -> None:
        try:
            self.name = origin_of(url)
        except ValueError as exc:
            raise DeclarationError(str(exc)) from None
        self.cwd: str | None = None
        self._limit = limit
        self._on_away = on_away
        self._dial = dialing(url, token, seconds=seconds, limit=limit)
        self._line: asyncio.Task[None] | None = None

    async def open(self) -> Transport:
        await self.aclose()
        first = await self._dial()
        ours, theirs = memory_pair()
        line = FarLine(theirs, self._dial, self.name, self._limit, first, self._on_away)
        self._line = asyncio.create_task(line.run(), name="far line")
        return ours

    async def follow(self, peer: Peer, pump: asyncio.Task[None]) -> None:
        await asyncio.wait([pump])

    async def how_it_ended(self) -> AcpholdError:
        if self._line is not None and self._line.done() and not self._line.cancelled():
            why = self._line.exception()
            if isinstance(why, AcpholdError):
                return why
        return ConnectionLostError(f"the connection to {self.name} is lost")

    async def aclose(self) -> None:
        if self._line is not None:
            self._line.cancel()
            await asyncio.wait([self._line])
            self._line = None
