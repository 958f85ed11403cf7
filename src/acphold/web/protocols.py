"""HTTP and WebSocket on uvicorn, with limits, strict about ambiguous requests.

A proxy in front and this server must see the same requests. A request that one of them could read
differently is refused (400) and its connection closed: by llhttp, which is strict about line ends,
folded headers and lengths, and by the checks here that llhttp leaves to the server.

Once a WebSocket is accepted through ASGI, its messages go without it: see `socket_transport`.
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
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from acphold.web import bounds
from acphold.web.connections import STATE, Connections, Cut, ServedConnection
from acphold.web.socket_transport import SocketTransport

REFUSED: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

HEAD_END: Final = b"\r\n\r\n"

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
        self.direct: SocketTransport | None = None
        self._came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.direct = self._become_direct
        super().connection_made(transport)

    def _become_direct(self, cut: Cut) -> SocketTransport:
        self.direct = SocketTransport(self, cut)
        return self.direct

    def buffer_updated(self, nbytes: int) -> None:
        self._came += nbytes
        if self.direct is None or not self.direct.take_frame(bytes(self._buffer[:nbytes])):
            super().buffer_updated(nbytes)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(REFUSED)  # uvicorn would wait behind it for ever
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        self.connection.whole()
        super().handle_connect(event)

    def send_receive_event_to_app(self) -> None:
        self.connection.let_go()
        if self.direct is None:
            super().send_receive_event_to_app()
        else:
            self.direct.arrive()

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
