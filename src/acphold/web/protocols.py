"""HTTP and WebSocket on uvicorn, with limits, strict about ambiguous requests.

A proxy in front and this server must see the same requests. A request that one of them could read
differently is refused (400) and its connection closed: by llhttp, which is strict about line ends,
folded headers and lengths, and by the checks here that llhttp leaves to the server.

ASGI costs as much per message as all the rest. So once a WebSocket is accepted through ASGI, lines
go directly between its protocol and its reader, in the same step.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from httptools import HttpParserError
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from acp_wire.tasks import timeout
from acphold.errors import ConnectionLostError
from acphold.web import bounds
from acphold.web.connections import STATE, Connections, Cut, Offering, ServedConnection

REFUSED: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

HEAD_END: Final = b"\r\n\r\n"

TEXT: Final = 0x81
"""The first byte of a frame that is a whole text message."""

Expected = Literal["a head", "a body", "another head"]
"""The next thing on a connection; of "another head" nothing has arrived yet."""


class _BoundedHttp(asyncio.BufferedProtocol):
    """Reports traffic to a `ServedConnection` and reads in small steps.

    All share one read buffer: it is emptied in the same step.
    """

    _buffer = memoryview(bytearray(bounds.READ_BYTES))
    connection: ServedConnection

    if TYPE_CHECKING:

        def data_received(self, data: bytes) -> None: ...

        def eof_received(self) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.connection.hold(nbytes)
        self.data_received(bytes(self._buffer[:nbytes]))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.connection.stuck()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.connection.moves()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.forget()
        super().connection_lost(exc)


class HttpProtocol(_BoundedHttp, HttpToolsProtocol):
    """One HTTP connection, until it becomes a WebSocket.

    A request that follows another is read once that one is answered, and a stranger's once it is
    its turn. Otherwise a client that reads no answers could have hundreds of them read in one step,
    and kept.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.connection: ServedConnection = app_state[STATE]
        self.connection.write_more = self.write_more
        self._expected: Expected = "a head"
        self._head = 0  # bytes of an incomplete head
        self._thrown_away = 0
        self._unanswered: list[RequestResponseCycle] = []
        self._unread = b""  # what has arrived behind an unanswered request, or waits for its turn
        self._turn: asyncio.TimerHandle | None = None  # while a request waits for that
        self._has_turn = False

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._read_on()

    def _read_on(self) -> None:
        """Read up to the end of the next request, and on while there is none to be answered."""
        if self._turn is not None:
            return
        data, at = self._unread, 0
        self._unread = b""
        while at < len(data) and self.parser is not None and not self.transport.is_closing():
            if self._unanswered and self._expected == "another head":
                self._unread = data[at:]
                self.flow.pause_reading()
                return
            is_next = self._expected == "another head" and not self._has_turn
            if is_next and (seconds := self.connection.wait_for_turn()):
                self._unread = data[at:]
                self.flow.pause_reading()
                self._turn = self.loop.call_later(seconds, self._take_turn)
                return
            self._has_turn = False
            # One head at most in each piece; behind a body, as many as fit into BODY_STEP_BYTES.
            skipped = bounds.BODY_STEP_BYTES if self._expected == "a body" else 0
            end = data.find(HEAD_END, at + skipped)
            end = len(data) if end < 0 else end + len(HEAD_END)
            self.connection.expect()
            if self._expected == "a body" and self.cycle.response_complete:
                self._thrown_away += end - at
                if self._thrown_away > bounds.THROWN_AWAY_BYTES:
                    self.connection.abort()
                    return
            super().data_received(data[at:end])
            self._head = self._head + end - at if self._expected == "a head" else 0
            if self._head > bounds.HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")
            at = end

    def _take_turn(self) -> None:
        self._turn, self._has_turn = None, True
        self.flow.resume_reading()
        self._read_on()

    def on_message_begin(self) -> None:
        self._expected = "a head"
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._expected = "a body"
        names = [name for name, _ in self.headers]
        if not self.url.startswith(b"/") or names.count(b"host") > 1:
            raise HttpParserError("ambiguous recipient")
        coding = dict(self.headers).get(b"transfer-encoding")
        is_old = self.parser.get_http_version() < "1.1"
        if coding is not None and (is_old or coding.lower() != b"chunked"):
            raise HttpParserError("ambiguous length")
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # otherwise it is becoming a WebSocket
            self._unanswered.append(self.cycle)

    def on_message_complete(self) -> None:
        self._expected = "another head"
        self.connection.whole()
        super().on_message_complete()

    def write_more(self, body: bytes) -> bool:
        """Write one chunk, as uvicorn does; for `ServedConnection.write_more`."""
        cycle = self.cycle
        is_over = cycle.response_complete or cycle.disconnected or self.transport.is_closing()
        if is_over or not cycle.chunked_encoding or self.flow.write_paused:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def on_response_complete(self) -> None:
        self._unanswered.pop(0)
        self.connection.let_go()
        super().on_response_complete()
        if self._unread:
            self.connection.hold(len(self._unread))
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for cycle in self._unanswered:  # uvicorn only tells the last one
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        self._unread = b""
        if self._turn is not None:
            self._turn.cancel()

    def handle_websocket_upgrade(self) -> None:
        self.connection.write_more = None
        super().handle_websocket_upgrade()
        # Break the reference cycle, which would be collected late.
        self.parser = None  # type: ignore[assignment]


class SocketProtocol(_BoundedHttp, WebSocketsSansIOProtocol):
    """One connection that has become a WebSocket; it offers its `SocketTransport`."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.connection: ServedConnection = app_state[STATE]
        self.connection.let_go()
        self.take: Callable[[bytes, bool], bool] | None = None
        """Takes a text message and returns whether it did so in this step, if the bool allows
        that.
        """
        self._taken = 0
        self._came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.direct = lambda cut: SocketTransport(self, cut)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        self._taken = 0
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(REFUSED)  # uvicorn would wait behind it for ever
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        self.connection.whole()
        super().handle_connect(event)

    def send_receive_event_to_app(self) -> None:
        self.connection.let_go()
        if self.take is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        message = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type != "text":
            return  # which the transport's text has passed over
        self._taken += 1
        if self.take(bytes(message), self._taken <= bounds.AT_ONCE):
            return
        if not self.read_paused and (
            self.queue.qsize() >= bounds.QUEUED_MESSAGES
            or len(message) > bounds.LARGE_MESSAGE_BYTES
        ):
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        self._let_go_between_messages()
        if self.transport.get_write_buffer_size() < bounds.UNREAD_PONG_BYTES:
            super().handle_ping()
        else:  # it reads none
            self.conn.data_to_send()

    def handle_pong(self, event: Frame) -> None:
        self._let_go_between_messages()
        super().handle_pong(event)

    def _let_go_between_messages(self) -> None:
        if not self.frames:
            self.connection.let_go()

    def shutdown(self) -> None:
        """Close the connection because this server ends."""
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.stop_keepalive()  # the other side has closed it and does not read our answer
            self.transport.close()
        else:
            super().shutdown()

    def send_keepalive_ping(self) -> None:
        self._came = 0
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """Handle a missing answer to a ping.

        It may come after a message that is still arriving, or that we do not take right now.
        """
        assert self.ping_timeout is not None
        if self.read_paused or self._came > bounds.LEAST_RATE * self.ping_timeout:
            self._came = 0
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:
            super().keepalive_timeout()


class Arrival(asyncio.Protocol):
    """An accepted connection, counted from this moment; TLS starts after that."""

    def __init__(
        self,
        connections: Connections,
        tls: ssl.SSLContext | None,
        made: Callable[[dict[str, Any]], asyncio.Protocol],
    ) -> None:
        self._connections = connections
        self._tls = tls
        self._made = made
        self._early = b""
        self._securing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # Send each message at once; asyncio sets this only for sockets that name their protocol.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connections.add(transport)
        if (tls := self._tls) is None:
            self._hand_over(connection)
            return

        async def secure() -> None:
            try:
                secured = await asyncio.get_running_loop().start_tls(
                    transport,
                    self,
                    tls,
                    server_side=True,
                    ssl_handshake_timeout=bounds.PATIENCE_SECONDS,
                )
            except OSError:  # no TLS, or too late
                secured = None
            if secured is None or secured.is_closing():
                connection.abort()
                return
            connection.transport = secured
            connection.unsent = secured.get_write_buffer_size
            self._hand_over(connection)

        self._securing = asyncio.create_task(secure(), name="begin TLS")

    def data_received(self, data: bytes) -> None:
        self._early += data  # between the end of the handshake and the next step of the loop

    def _hand_over(self, connection: ServedConnection) -> None:
        protocol = self._made({STATE: connection})
        connection.transport.set_protocol(protocol)
        protocol.connection_made(connection.transport)
        if self._early:
            protocol.data_received(self._early)


class SocketTransport(Offering):
    """The transport of an accepted WebSocket, without ASGI in between: an `OfferingTransport`."""

    def __init__(self, protocol: SocketProtocol, cut: Cut) -> None:
        super().__init__()
        self._protocol = protocol
        self._cut = cut
        self._rest = b""
        self._is_over = False
        self._received = 0
        self._left = memoryview(b"")  # the rest of a long message
        protocol.take = self._take

    @property
    def is_read(self) -> bool:
        """True while the other side may still read us."""
        protocol = self._protocol
        return not (protocol.disconnected or protocol.close_sent or protocol.transport.is_closing())

    async def receive(self) -> bytes:
        """Return the next message, with a line end, or the next piece of a long one.

        Returns b"" once the other side has ended, and ever after.
        """
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
        if len(message) > bounds.MESSAGE_PIECE_BYTES:
            long = message.rstrip(b"\n")  # its line end goes after its last piece
            protocol.queue.put_nowait({"type": "websocket.receive", "bytes": long})
            return False
        # A line break can only stand between two tokens of JSON: strings have none.
        line = (message.replace(b"\n", b" ") if b"\n" in message else message) + b"\n"
        if may_offer and protocol.queue.empty() and self._took(line):
            return True
        protocol.queue.put_nowait({"type": "websocket.receive", "bytes": line})
        return False

    def send(self, data: bytes) -> None:
        """Send the messages that `data` has or completes; dropped once the other side has gone."""
        data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        if len(data) > bounds.ANY_CLIENT_BYTES:
            lines = [piece for line in lines for piece in self._cut(line)]
        if self.is_read:
            self._protocol.transport.write(b"".join([in_frame(line) for line in lines]))

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
                async with timeout(bounds.FLUSH_SECONDS):
                    self._protocol.transport.set_write_buffer_limits(high=0)
                    await self._protocol.send(
                        {"type": "websocket.close", "code": CloseCode.NORMAL_CLOSURE}
                    )
            except TimeoutError:  # nobody reads it
                self._protocol.connection.abort()
            except OSError:
                pass  # it has gone by itself
        self._is_over = True


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
