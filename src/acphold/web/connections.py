"""Connections to the server: their limits, and what a client takes in one message.

Anybody who reaches the port can open connections, send slowly, and read nothing. So:

- An unauthenticated connection keeps its place until another one needs it. Beyond
  `ConnectionLimits.unknown` of them the oldest is dropped, of the address that has the most: a
  client with a token shows it at once, and so gets in beside ten thousand without one.
- The further requests of unauthenticated connections are read in turn, so many a second of all.
- An authenticated connection counts for its token; their number per token is limited.
- A request that has begun, and data being sent, must progress at LEAST_RATE, after
  PATIENCE_SECONDS.
- The memory for all of them is limited together; the connection holding most of it is dropped.

An ASGI server other than ours (the application mounted in it) has its own limits.

A long text update is split into pieces for foreign clients: many accept messages of at most one
MiB, as `websockets` does for the official Python SDK, and close the connection at a longer one.
Text in chunks is still the same text. Nothing else is split, however long: a tool call has to be
sent whole.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, ValidationError
from msgspec.json import decode, encode

from acp_wire.rpc import Transport
from acp_wire.schema import members
from acp_wire.schema.splice import UNREADABLE
from acp_wire.schema.updates import UPDATE_KINDS, UpdateForm
from acp_wire.tasks import beside
from acp_wire.transports.messages import AsgiSocket
from acphold.conversation.history.raw_update import encode_object
from acphold.errors import InvalidParamsError
from acphold.live.hub.frames import POSITION
from acphold.web import bounds

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Headers = dict[str, str]
"""The headers of a request, with lower-case names."""

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application of ASGI 3.0."""

Cut = Callable[[bytes], Sequence[bytes]]
"""Cuts a message longer than ANY_CLIENT_BYTES into those to send instead."""

log = logging.getLogger(__name__)

STATE: Final = "acphold.connection"
"""The key in the `state` of an ASGI scope for the request's `ServedConnection`."""

GOING_AWAY: Final = 1001
POLICY: Final = 1008
"""The close codes when this server ends, and for a client that is not allowed here; RFC 6455,
7.4.1."""

CLOSED_TWICE: Final = AttributeError
"""asyncio's error for a transport over TLS that was closed twice, and ends by itself: it has lost
its protocol (CPython 3.11)."""


def whole(line: bytes) -> Sequence[bytes]:
    """Return the message uncut."""
    return (line,)


class Standstill(Protocol):
    """Tells if this process was stopped, so that messages have to wait; see `Gate`."""

    @property
    def has_stood_still(self) -> bool: ...
    async def until_read(self) -> None: ...


class Guarded:
    """A connection whose messages wait after a `standstill`."""

    standstill: Standstill | None = None
    is_shut = False
    """True once this server closes the connection: messages that still come are dropped."""


class CuttingSocket(Guarded, AsgiSocket):
    """An accepted WebSocket over which `cut` splits long messages."""

    def __init__(self, receive: Receive, send: Send, cut: Cut) -> None:
        super().__init__(receive, send)
        self._cut = cut

    async def receive(self) -> str | None:
        text = await super().receive()
        if self.standstill is not None:
            await self.standstill.until_read()
        return None if self.is_shut else text

    async def send(self, text: str) -> None:
        if len(text) * 4 <= bounds.ANY_CLIENT_BYTES:  # a character takes at most four bytes
            await super().send(text)
            return
        for piece in self._cut(text.encode()):
            await super().send(piece.decode())


def takes_long_messages(headers: Headers) -> bool:
    """Return True if the client is ours, or a browser, which has no such limit."""
    return headers.get("user-agent") == "acphold" or "origin" in headers


def in_pieces(line: bytes) -> list[bytes]:
    """Return the messages to send instead of this one; only the last has its position."""
    if len(line) <= bounds.ANY_CLIENT_BYTES:
        return [line]
    try:
        message = members(line)
        params = members(message.get("params", b"{}"))
        update = members(params.get("update", b"{}"))
        content = members(update.get("content", b"{}"))
        kind = UPDATE_KINDS.get(decode(update.get("sessionUpdate", b'""'), type=str))
        if kind is None or kind.form is not UpdateForm.PIECE or "text" not in content:
            return [line]
        text = decode(content["text"], type=str)
        meta = members(params.get("_meta", b"{}"))
    except (InvalidParamsError, ValidationError, *UNREADABLE):
        return [line]
    pieces = []
    for begin in range(0, len(text), bounds.PIECE_CHARACTERS):
        is_last = begin + bounds.PIECE_CHARACTERS >= len(text)
        content["text"] = encode(text[begin : begin + bounds.PIECE_CHARACTERS])
        update["content"] = encode_object(content)
        params["update"] = encode_object(update)
        if "_meta" in params:
            others = {name: raw for name, raw in meta.items() if is_last or name != POSITION}
            params["_meta"] = encode_object(others)
        message["params"] = encode_object(params)
        pieces.append(encode_object(message))
    return pieces


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Most connections: unauthenticated, authenticated, and per token."""

    unknown: int
    known: int
    of_token: int


def limits_for(descriptors: int) -> ConnectionLimits:
    """Return the limits for a process that may open `descriptors` files."""
    free = max(descriptors - bounds.RESERVED_DESCRIPTORS, 32)
    unknown = min(bounds.UNKNOWN_CONNECTIONS, free // 4)
    known = min(bounds.KNOWN_CONNECTIONS, (free - unknown) // bounds.DESCRIPTORS_OF_ONE)
    return ConnectionLimits(unknown=unknown, known=known, of_token=known // 4)


class Offering(Guarded):
    """The half of an `rpc.transport.OfferingTransport` that offers its messages."""

    def __init__(self) -> None:
        self._offer: Callable[[bytes], bool] | None = None
        self._is_waiting = False
        self._failed: BaseException | None = None

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer messages that arrive while `receive` waits to `take` first."""
        self._offer = take

    def _took(self, line: bytes) -> bool:
        if self.is_shut:
            return True
        must_wait = self.standstill is not None and self.standstill.has_stood_still
        if self._is_waiting and self._offer is not None and not must_wait:
            try:
                return self._offer(line)
            except BaseException as exc:  # meant for the receiver
                self._failed = exc
        return False

    async def _wait(self, message: Awaitable[T]) -> T:
        """Return a message for `receive`, or raise what one failed with that was offered."""
        self._is_waiting = True
        try:
            found = await message
        finally:
            self._is_waiting = False
        if self.standstill is not None:  # what comes meanwhile is behind this one
            await self.standstill.until_read()
        if self._failed is not None:
            raise self._failed
        return found


def unsent(transport: asyncio.WriteTransport) -> int:
    """Return the bytes that the system has not taken yet."""
    try:
        return transport.get_write_buffer_size()
    except CLOSED_TWICE:
        return 0


def abort(transport: asyncio.WriteTransport) -> None:
    """Close a connection at once and drop unsent data."""
    with suppress(CLOSED_TWICE):
        transport.abort()


class ServedConnection:
    """One connection. `peer` is its address, "" for one shared by many clients."""

    def __init__(self, book: Connections, transport: asyncio.Transport, peer: str) -> None:
        self.transport = transport
        self.peer = peer
        self.token: str | None = None
        self.direct: Callable[[Cut], Transport] | None = None
        """Makes the transport of messages, if this is an accepted WebSocket."""
        self.write_more: Callable[[bytes], bool] | None = None
        """Writes more of a streamed answer; False if that would have to wait."""
        self._book = book
        self._held = 0
        self._receiving_since: float | None = book.now()
        self._sending_since: float | None = None
        self._left = 0
        self._closing_since: float | None = None

    # -- receiving --------------------------------------------------------------------------

    def expect(self) -> None:
        """Note that a request has begun to arrive, unless one had before."""
        if self._receiving_since is None:
            self._receiving_since = self._book.now()

    def hold(self, number: int) -> None:
        """Count bytes received of an incomplete or unanswered request."""
        self._held += number
        self._book.hold(number)

    def wait_for_turn(self) -> float:
        """Take a turn for one more request; return the seconds to wait for it."""
        return 0.0 if self.token is not None else self._book.take_turn()

    def whole(self) -> None:
        """Note that the expected request is complete."""
        self._receiving_since = None

    def let_go(self) -> None:
        """Stop counting the bytes held."""
        self._book.hold(-self._held)
        self._held = 0

    # -- sending ----------------------------------------------------------------------------

    def stuck(self) -> None:
        """Note that the peer reads more slowly than we send."""
        self._sending_since = self._book.now()
        self._left = unsent(self.transport)

    def moves(self) -> None:
        """Note that the peer has caught up with what we send."""
        self._sending_since = None

    # -- identity and age -------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes buffered for this connection."""
        return self._held + unsent(self.transport)

    def is_too_slow(self, now: float) -> bool:
        """Return True if the connection has used up its time."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            return now > self._closing_since + bounds.CLOSING_SECONDS
        if self._receiving_since is not None:
            patience = bounds.PATIENCE_SECONDS + self._held / bounds.LEAST_RATE
            return now > self._receiving_since + patience
        if self._sending_since is None:
            return False
        left = unsent(self.transport)
        if left <= self._left - bounds.LEAST_RATE * bounds.SLOW_CHECK_SECONDS:
            self._left, self._sending_since = left, now
        return now > self._sending_since + bounds.PATIENCE_SECONDS

    def abort(self) -> None:
        """Close the connection at once and drop unsent data."""
        self.forget()
        abort(self.transport)

    def forget(self) -> None:
        """Forget the connection, which has ended; may be called again."""
        self.let_go()
        self.direct = self.write_more = None
        self._book.forget(self)


class Connections:
    """All connections of one server. `is_proxied`: all clients share a proxy's address.

    Construct inside a running loop.
    """

    def __init__(self, limits: ConnectionLimits, *, is_proxied: bool = False) -> None:
        self._limits = limits
        self._is_proxied = is_proxied
        self._unknown: dict[str, dict[ServedConnection, None]] = {}
        self._known: dict[str, dict[ServedConnection, None]] = {}
        self._held = 0
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._last_turn = 0.0

    @property
    def unknown(self) -> int:
        """Number of unauthenticated connections."""
        return sum(map(len, self._unknown.values()))

    @property
    def known(self) -> int:
        """Number of authenticated connections."""
        return sum(map(len, self._known.values()))

    def add(self, transport: asyncio.Transport) -> ServedConnection:
        """Return a new connection; another one may be dropped for it."""
        if self.unknown >= self._limits.unknown:
            most = max(self._unknown.values(), key=len)
            next(iter(most)).abort()
        peer = ""
        name = transport.get_extra_info("peername")
        if name and not self._is_proxied:
            address = ipaddress.ip_address(name[0].partition("%")[0])
            if address.version == 6 and not address.is_loopback:
                # Whoever has one IPv6 address usually has its whole /64.
                peer = str(ipaddress.ip_network((address, 64), strict=False))
            elif not address.is_loopback:
                peer = str(address)
        connection = ServedConnection(self, transport, peer)
        self._unknown.setdefault(connection.peer, {})[connection] = None
        return connection

    def count_for(self, connection: ServedConnection, token: str) -> str:
        """Count the connection for this token; if that is one too many, return why."""
        if connection.token == token:
            return ""
        if connection.token is None and self.known >= self._limits.known:
            return "too many connections to this server; try again later"
        if len(self._known.get(token, ())) >= self._limits.of_token:
            return "too many connections with this token"
        self.forget(connection)
        connection.token = token
        self._known.setdefault(token, {})[connection] = None
        return ""

    def take_turn(self) -> float:
        """Take the next turn of strangers; return the seconds until then."""
        rate, now = bounds.STRANGERS_REQUESTS, self.now()
        earliest = now - bounds.STRANGERS_AT_ONCE / rate
        self._last_turn = max(self._last_turn, earliest) + 1 / rate
        return max(0.0, self._last_turn - now)

    def forget(self, connection: ServedConnection) -> None:
        """Forget a connection that has ended or moved; may be called again."""
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
        """Close all connections of this token shortly, leaving time to send the reason."""
        for connection in tuple(self._known.get(token, ())):
            self._loop.call_later(bounds.PARTING_SECONDS, connection.abort)

    def hold(self, number: int) -> None:
        """Count buffered bytes; a negative number frees some."""
        self._held += number
        if number > 0 and self._held > bounds.HELD_BYTES:
            self._make_room()

    async def check(self) -> None:
        """Close the connections that are too slow; call every SLOW_CHECK_SECONDS."""
        now = self.now()
        for connection in self._all():
            if connection.is_too_slow(now):
                log.info("closed a connection from %s: it was too slow", connection.peer or "here")
                connection.abort()
        self._make_room()

    def _make_room(self) -> None:
        sizes = {connection: connection.size for connection in self._all()}
        total = sum(sizes.values())
        while total > bounds.HELD_BYTES:
            most = max(sizes, key=sizes.__getitem__)
            log.warning("closed a connection for which %d bytes were buffered", sizes[most])
            total -= sizes.pop(most)
            most.abort()

    def _all(self) -> list[ServedConnection]:
        return [each for some in (*self._unknown.values(), *self._known.values()) for each in some]


@asynccontextmanager
async def repeating(what: Callable[[], Awaitable[object]], seconds: float) -> AsyncIterator[None]:
    """Call `what` every so many seconds, for the block, also after it has failed; what takes long
    has half of that before it is called again."""
    now = asyncio.get_running_loop().time

    async def repeat() -> None:
        began = now()
        while True:
            await asyncio.sleep(max(seconds / 2, began + seconds - now()))
            began = now()
            try:
                await what()
            except Exception:
                log.exception("%s is tried again", what.__qualname__)

    async with beside(repeat(), what.__qualname__):
        yield
