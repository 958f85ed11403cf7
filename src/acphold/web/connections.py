"""The connections that reach the server, and what bounds them before anything in them is believed.

Whoever reaches the port can open connections, send slowly, and read nothing. So:

- One on which nobody is known has its place for as long as nobody else wants it. Beyond
  `Bounds.unknown` of them the oldest has to go, of the address that has the most: who has a token
  shows it at once, and gets in beside ten thousand who do not.
- One on which somebody is known counts for its token, and there are so many for each.
- What has begun to come, and what is being sent, goes on at RATE at least, after PATIENCE.
- All that is kept in memory for them is bounded together; who has the most of it has to go.

An ASGI server that is not ours (one that the application is mounted in) has bounds of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from acphold.errors import AcpholdError
from acphold.rpc import Transport

log = logging.getLogger(__name__)

STATE: Final = "acphold.connection"
"""The key in the `state` of an ASGI scope with the `Connection` that a request came on."""

UNKNOWN: Final = 256
"""Connections on which nobody is known."""

KNOWN: Final = 1024
"""Connections on which somebody is known."""

RESERVED: Final = 256
"""File descriptors that are left for journals, agents, and what has been accepted right now."""

PATIENCE: Final = 10.0
"""Seconds that the first bytes of a request may take; and that nobody reads what is sent."""

RATE: Final = 1024
"""Bytes a second that a request and what is sent go on at, at least: a tenth of a bad phone's."""

HELD_BYTES: Final = 256 << 20
"""Bytes that are kept for all connections together: messages that are not whole, and what was not
read."""

LAST_SECONDS: Final = 10.0
"""How long what was said last may take on a connection that is being closed."""

PARTING_SECONDS: Final = 0.3
"""The same for one that is sent away."""

LOOK_SECONDS: Final = 1.0
"""How often is looked who is too slow."""


class Bounds(Struct, frozen=True, kw_only=True):
    """How many connections there may be: on which nobody is known, somebody, and of one token."""

    unknown: int
    known: int
    of_token: int


def bounds(descriptors: int) -> Bounds:
    """What a process may have that may open so many files."""
    free = max(descriptors - RESERVED, 32)
    unknown = min(UNKNOWN, free // 4)
    known = min(KNOWN, free - unknown)
    return Bounds(unknown=unknown, known=known, of_token=known // 4)


class TooManyError(AcpholdError):
    """A token has too many connections, or all have together."""


class Connection:
    """One connection. `peer` is the address it comes from, "" for one that may stand for many."""

    __slots__ = (
        "_book",
        "_closing_since",
        "_held",
        "_left",
        "_receiving_since",
        "_sending_since",
        "direct",
        "peer",
        "token",
        "transport",
        "unsent",
        "write_more",
    )

    def __init__(self, book: Connections, transport: asyncio.Transport, peer: str) -> None:
        self.transport = transport
        self.peer = peer
        self.token: str | None = None
        self.unsent: Callable[[], int] = transport.get_write_buffer_size
        """Bytes that wait to be sent."""
        self.direct: Callable[[], Transport] | None = None
        """Makes the transport of messages, where it is a WebSocket that was accepted."""
        self.write_more: Callable[[bytes], bool] | None = None
        """Writes more of an answer that is being streamed; False where that would have to wait."""
        self._book = book
        self._held = 0
        self._receiving_since: float | None = book.now()
        self._sending_since: float | None = None
        self._left = 0
        self._closing_since: float | None = None

    # -- what is received --------------------------------------------------------------------

    def expect(self) -> None:
        """A request has begun to come, unless it had before."""
        if self._receiving_since is None:
            self._receiving_since = self._book.now()

    def hold(self, number: int) -> None:
        """So many bytes more have come, of what is not whole or not answered."""
        self._held += number
        self._book.hold(number)

    def whole(self) -> None:
        """What was expected has come."""
        self._receiving_since = None

    def let_go(self) -> None:
        """What was held was taken."""
        self._book.hold(-self._held)
        self._held = 0

    # -- what is sent ------------------------------------------------------------------------

    def stuck(self) -> None:
        """More is to be sent than the other side reads right now."""
        self._sending_since = self._book.now()
        self._left = self.transport.get_write_buffer_size()

    def moves(self) -> None:
        """It was read."""
        self._sending_since = None

    # -- who, and how long -------------------------------------------------------------------

    def known_as(self, token: str) -> None:
        """Somebody has shown this token; raises TooManyError."""
        self._book.known_as(self, token)

    @property
    def size(self) -> int:
        """Bytes that are kept for it."""
        return self._held + self.unsent()

    def is_too_slow(self, now: float) -> bool:
        """Whether it has had its time."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            return now > self._closing_since + LAST_SECONDS
        if self._receiving_since is not None:
            return now > self._receiving_since + PATIENCE + self._held / RATE
        if self._sending_since is None:
            return False
        left = self.transport.get_write_buffer_size()
        if left <= self._left - RATE * LOOK_SECONDS:
            self._left, self._sending_since = left, now
        return now > self._sending_since + PATIENCE

    def abort(self) -> None:
        """End it at once, with what was not sent."""
        self.lost()
        self.transport.abort()

    def lost(self) -> None:
        """It has ended; may be said again."""
        self.let_go()
        self.direct = self.write_more = None
        self._book.lost(self)


class Connections:
    """All of one server. `is_proxied` says that one address stands for many who come.

    To be made inside a running loop.
    """

    def __init__(self, bounds: Bounds, *, is_proxied: bool = False) -> None:
        self._bounds = bounds
        self._is_proxied = is_proxied
        self._unknown: dict[str, dict[Connection, None]] = {}
        self._known: dict[str, dict[Connection, None]] = {}
        self._held = 0
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

    @property
    def unknown(self) -> int:
        """How many there are on which nobody is known."""
        return sum(map(len, self._unknown.values()))

    @property
    def known(self) -> int:
        """How many there are on which somebody is known."""
        return sum(map(len, self._known.values()))

    def arrived(self, transport: asyncio.Transport) -> Connection:
        """A new one; another one may have to go for it."""
        if self.unknown >= self._bounds.unknown:
            most = max(self._unknown.values(), key=len)
            next(iter(most)).abort()
        connection = Connection(self, transport, self._peer(transport))
        self._unknown.setdefault(connection.peer, {})[connection] = None
        return connection

    def known_as(self, connection: Connection, token: str) -> None:
        """Somebody has shown this token on it; raises TooManyError."""
        if connection.token == token:
            return
        if connection.token is None and self.known >= self._bounds.known:
            raise TooManyError("too many are connected; try again later")
        if len(self._known.get(token, ())) >= self._bounds.of_token:
            raise TooManyError("too many connections of this token")
        self.lost(connection)
        connection.token = token
        self._known.setdefault(token, {})[connection] = None

    def lost(self, connection: Connection) -> None:
        """It has ended, or is found elsewhere from now on; may be said again."""
        all_, key = (
            (self._unknown, connection.peer)
            if connection.token is None
            else (self._known, connection.token)
        )
        some = all_.get(key, {})
        some.pop(connection, None)
        if not some:
            all_.pop(key, None)

    def send_away(self, token: str) -> None:
        """End all of this token, in a moment: what they are told is to be sent."""
        for connection in tuple(self._known.get(token, ())):
            self._loop.call_later(PARTING_SECONDS, connection.abort)

    def hold(self, number: int) -> None:
        """So many bytes more are kept; less for a negative number."""
        self._held += number
        if number > 0 and self._held > HELD_BYTES:
            self._make_room()

    async def look(self) -> None:
        """End those that are too slow; to be asked every LOOK_SECONDS."""
        now = self.now()
        for connection in self._all():
            if connection.is_too_slow(now):
                log.info("a connection from %s was too slow", connection.peer or "here")
                connection.abort()
        self._make_room()

    def _make_room(self) -> None:
        sizes = {connection: connection.size for connection in self._all()}
        total = sum(sizes.values())
        while total > HELD_BYTES:
            most = max(sizes, key=sizes.__getitem__)
            log.warning("a connection was ended for which %d bytes were kept", sizes[most])
            total -= sizes.pop(most)
            most.abort()

    def _all(self) -> list[Connection]:
        return [each for some in (*self._unknown.values(), *self._known.values()) for each in some]

    def _peer(self, transport: asyncio.Transport) -> str:
        name = transport.get_extra_info("peername")
        if self._is_proxied or not name:
            return ""
        address = ipaddress.ip_address(name[0].partition("%")[0])
        if address.is_loopback:
            return ""
        # Whoever has one address of this kind has all of its network.
        is_wide = address.version == 6
        return str(ipaddress.ip_network((address, 64), strict=False) if is_wide else address)
