"""The transport of an accepted WebSocket of uvicorn, without ASGI in between.

ASGI costs as much per message as all the rest. So once a WebSocket is accepted through ASGI, lines
go directly between its protocol and its reader, in the same step: that of `acphold serve`, and that
of a uvicorn which serves an application that we are mounted in. There nothing but uvicorn and
`websockets` may be installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from acp_wire.tasks import timeout
from acphold.errors import ConnectionLostError
from acphold.web import bounds
from acphold.web.connections import Cut, CuttingSocket, Offering, Receive, Send, abort, unsent
from acphold.web.exchange import server_protocol

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    from websockets.server import ServerProtocol

UVICORNS: Final = "uvicorn.protocols.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol"
INTERNALS: Final = {
    *("close_sent", "config", "conn", "curr_msg_data_type", "disconnected", "frames"),
    *("queue", "read_paused", "transport", "writable"),
}
"""Attributes of uvicorn's protocol that are used here: another release may have others."""

TEXT: Final = 0x81
"""The first byte of a frame that is a whole text message."""

MASKED: Final = 0x80
"""The second byte of a client's frame begins with this, and has its length, or how long that is."""


class SocketTransport(Offering):
    """The transport of an accepted WebSocket, without ASGI in between: an `OfferingTransport`.

    `taken` counts the messages of this read, or since the last `receive`, that were taken at once.
    """

    def __init__(self, protocol: WebSocketsSansIOProtocol, cut: Cut) -> None:
        from websockets import frames  # they are here if there is a WebSocket

        super().__init__()
        self._unmask: Callable[[bytes, bytes], bytes] = vars(frames)["apply_mask"]
        self._protocol = protocol
        self._cut = cut
        self._rest = b""
        self._reason = ""
        self._is_over = False
        self._is_between = False
        self.taken = 0
        self._received = 0
        self._left = memoryview(b"")  # the rest of a long message

    @property
    def is_read(self) -> bool:
        """True while the other side may still read us."""
        protocol = self._protocol
        return not (protocol.disconnected or protocol.close_sent or protocol.transport.is_closing())

    async def receive(self) -> bytes:
        """Return the next message, with a line end, or the next piece of a long one.

        Returns b"" once the other side has ended, and ever after.
        """
        self.taken = 0
        self._received += 1
        if self._left or self._received % bounds.AT_ONCE == 0:
            await asyncio.sleep(0)  # a client that floods us must not stop everybody else
        if self._left:
            piece, self._left = (
                bytes(self._left[: bounds.MESSAGE_PIECE_BYTES]),
                self._left[bounds.MESSAGE_PIECE_BYTES :],
            )
            return piece.replace(b"\n", b" ") + (b"" if self._left else b"\n")
        while not self._is_over:
            message = await self._wait(self._protocol.receive())
            if message["type"] == "websocket.disconnect" or self.is_shut:
                self._is_over = True
            elif message["type"] == "websocket.receive" and (line := message.get("bytes")):
                if line.endswith(b"\n"):
                    return line
                self._left = memoryview(line)
                return await self.receive()
        return b""

    def arrive(self) -> None:
        """Take the message of the protocol's `frames`: its `send_receive_event_to_app`."""
        protocol = self._protocol
        frames, protocol.frames = protocol.frames, []
        # Binary messages are skipped, as the RFD says.
        if protocol.curr_msg_data_type == "text":
            self._arrived(bytes(frames[0] if len(frames) == 1 else b"".join(frames)))

    def _arrived(self, message: bytes) -> None:
        protocol = self._protocol
        if protocol.close_sent:
            return
        if not (self.take(message) or protocol.read_paused):  # no other is read until it was
            protocol.read_paused = True
            protocol.transport.pause_reading()

    def read(self, data: bytes) -> None:
        """Take a read of a foreign uvicorn's protocol: its `data_received`."""
        if not self.take_frame(data):
            type(self._protocol).data_received(self._protocol, data)

    def take_frame(self, data: bytes) -> bool:
        """Take a read that is a text message in one frame, for which `websockets` and uvicorn take
        longer than all the rest of receiving; False for any other."""
        self.taken = 0
        protocol, size = self._protocol, len(data)
        # After a frame that was taken here, `websockets` has nothing more than before it.
        is_between, self._is_between = self._is_between, False
        if size < 8 or data[0] != TEXT or protocol.frames:
            return False
        if not (is_between or is_between_frames(protocol.conn)):
            return False
        length, at = data[1] - MASKED, 2
        if length == 126:
            length, at = int.from_bytes(data[2:4], "big"), 4
        elif length > 126:
            return False
        if length != size - at - 4 or length > protocol.config.ws_max_size:
            return False
        self._is_between = True
        self._arrived(self._unmask(data[at + 4 :], data[at : at + 4]))
        return True

    def take(self, message: bytes) -> bool:
        """Handle a text message; return True if it was taken in this step."""
        queue = self._protocol.queue
        if len(message) > bounds.MESSAGE_PIECE_BYTES:
            long = message.rstrip(b"\n")  # its line end goes after its last piece
            queue.put_nowait({"type": "websocket.receive", "bytes": long})
            return False
        # A line break can only stand between two tokens of JSON: strings have none.
        line = (message.replace(b"\n", b" ") if b"\n" in message else message) + b"\n"
        self.taken += 1
        if self.taken <= bounds.AT_ONCE and queue.empty() and self._took(line):
            return True
        queue.put_nowait({"type": "websocket.receive", "bytes": line})
        return False

    def send(self, data: bytes) -> None:
        """Send the messages that `data` has or completes; dropped once the other side has gone."""
        data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        if len(data) > bounds.ANY_CLIENT_BYTES:
            lines = [piece for line in lines for piece in self._cut(line)]
        if not self.is_read:
            return
        conn = self._protocol.conn
        if conn.extensions and conn.close_rcvd is None:  # compression, which uvicorn itself offers
            for line in lines:
                conn.send_text(line)
            frames = conn.data_to_send()
        else:
            frames = [in_frame(line) for line in lines]
        self._protocol.transport.write(b"".join(frames))

    @property
    def buffered(self) -> int:
        """Bytes that the system has not taken yet."""
        return unsent(self._protocol.transport)

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError if the other side has gone."""
        await self._protocol.writable.wait()
        if not self.is_read:
            raise ConnectionLostError("the other side has closed the connection")

    def explain(self, reason: str) -> None:
        """Have `aclose` tell this reason."""
        self._reason = reason

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then close; may be called again."""
        protocol: Any = self._protocol  # which types messages in its own way
        if self.is_read:
            socket = CuttingSocket(protocol.receive, protocol.send, self._cut)
            try:
                async with timeout(bounds.FLUSH_SECONDS):
                    protocol.transport.set_write_buffer_limits(high=0)
                    await (socket.explain(self._reason) if self._reason else socket.aclose())
            except TimeoutError:  # nobody reads it
                abort(protocol.transport)
        self._is_over = True
        for name in ("send_receive_event_to_app", "data_received"):
            vars(protocol).pop(name, None)


def over_uvicorn(receive: Receive, send: Send, cut: Cut) -> SocketTransport | None:
    """Return the transport of a WebSocket that uvicorn itself has accepted; None behind another
    server, or middleware that may want to see messages."""
    protocol: Any = getattr(receive, "__self__", None)
    kind = f"{type(protocol).__module__}.{type(protocol).__qualname__}"
    if kind != UVICORNS or not vars(protocol).keys() >= INTERNALS:
        return None
    if not protocol.queue.empty():  # a message came before we had accepted
        return None
    if server_protocol(send, through="starlette.") is not protocol:
        return None
    transport = SocketTransport(protocol, cut)
    vars(protocol).update(send_receive_event_to_app=transport.arrive, data_received=transport.read)
    return transport


def is_between_frames(conn: ServerProtocol) -> bool:
    """Return True if `websockets` has nothing of the next frame: its `parse` waits in `at_eof`, as
    only `discard` does besides, behind the end. False if it is built in another way."""
    waits: Any = getattr(conn, "parser", None)
    while getattr(waits, "__name__", "") == "parse":
        waits = getattr(waits, "gi_yieldfrom", None)
    return getattr(waits, "__name__", "") == "at_eof"


def in_frame(text: bytes) -> bytes:
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
