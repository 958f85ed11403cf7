"""The transport over a WebSocket of our own server, without a task or a copy in between.

ASGI costs as much per message as all the rest. So once a WebSocket is accepted through ASGI, lines
go directly between its protocol and its reader, in the same step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from acphold.errors import ConnectionLostError
from acphold.transports.messages import AT_ONCE
from acphold.transports.pipes import FLUSH_SECONDS
from acphold.web.protocols import SocketProtocol
from acphold.web.sockets import LONGEST, NORMAL, Cut, whole

PIECE: Final = 256 << 10
"""Bytes of a long message passed on before others get a turn on the event loop."""

TEXT: Final = 0x81
"""The first byte of a frame that is a whole text message."""


class DirectSocketProtocol(SocketProtocol):
    """A protocol that offers such a transport for its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.direct = lambda cut: SocketTransport(self, cut)
        super().connection_made(transport)


class SocketTransport:
    """The direct transport; an `rpc.transport.OfferingTransport`."""

    def __init__(self, protocol: SocketProtocol, cut: Cut = whole) -> None:
        self._protocol = protocol
        self._cut = cut
        self._rest = b""
        self._offer: Callable[[bytes], bool] | None = None
        self._is_waiting = False
        self._is_over = False
        self._received = 0
        self._left = memoryview(b"")  # the rest of a long message
        self._failed: BaseException | None = None
        protocol.take = self._take

    @property
    def is_read(self) -> bool:
        """True while the other side may still read us."""
        protocol = self._protocol
        return not (protocol.disconnected or protocol.close_sent or protocol.transport.is_closing())

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer messages that arrive while `receive` waits to `take` first."""
        self._offer = take

    async def receive(self) -> bytes:
        """Return the next message, with a line end, or the next piece of a long one.

        Returns b"" once the other side has ended, and ever after.
        """
        self._received += 1
        if self._left or self._received % AT_ONCE == 0:
            await asyncio.sleep(0)  # a client that floods us must not stop everybody else
        if self._left:
            piece, self._left = bytes(self._left[:PIECE]), self._left[PIECE:]
            return piece.replace(b"\n", b" ") + (b"" if self._left else b"\n")
        while not self._is_over:
            self._is_waiting = True
            try:
                message = await self._protocol.receive()
            finally:
                self._is_waiting = False
            if self._failed is not None:
                raise self._failed
            if message["type"] == "websocket.disconnect":
                self._is_over = True
            elif message["type"] == "websocket.receive" and (line := message.get("bytes")):
                if line.endswith(b"\n"):
                    return line
                self._left = memoryview(line)
                return await self.receive()
        return b""

    def _take(self, message: bytes, may_offer: bool) -> bool:
        """Handle a text message; return True if it was taken in this step."""
        protocol = self._protocol
        if len(message) > PIECE:
            long = message.rstrip(b"\n")  # its line end goes after its last piece
            protocol.queue.put_nowait({"type": "websocket.receive", "bytes": long})
            return False
        # A line break can only stand between two tokens of JSON: strings have none.
        line = (message.replace(b"\n", b" ") if b"\n" in message else message) + b"\n"
        if may_offer and self._is_waiting and self._offer is not None and protocol.queue.empty():
            try:
                if self._offer(line):
                    return True
            except BaseException as exc:  # meant for the receiver
                self._failed = exc
        protocol.queue.put_nowait({"type": "websocket.receive", "bytes": line})
        return False

    def send(self, data: bytes) -> None:
        """Send the messages that `data` has or completes; dropped once the other side has gone."""
        data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        if len(data) > LONGEST:
            lines = [piece for line in lines for piece in self._cut(line)]
        if self.is_read:
            self._protocol.transport.write(b"".join([framed(line) for line in lines]))

    @property
    def buffered(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._protocol.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError if the other side has gone."""
        await self._protocol.writable.wait()
        if not self.is_read:
            raise ConnectionLostError("the other side has closed the connection")

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then close; may be called again."""
        if self.is_read:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    self._protocol.transport.set_write_buffer_limits(high=0)
                    await self._protocol.send({"type": "websocket.close", "code": NORMAL})
            except TimeoutError:  # nobody reads it
                self._protocol.connection.abort()
            except OSError:
                pass  # it has gone by itself
        self._is_over = True


def framed(text: bytes) -> bytes:
    """Return a text message in one unmasked frame, as servers send it (RFC 6455, 5.2).

    `websockets` handles both sides when framing, which takes longer than the rest of sending.
    """
    size = len(text)
    if size < 126:
        head = bytes((TEXT, size))
    elif size < 1 << 16:
        head = bytes((TEXT, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((TEXT, 127)) + size.to_bytes(8, "big")
    return head + text
