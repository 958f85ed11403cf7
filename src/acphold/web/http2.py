"""`serve --http2`: the same application on hypercorn, which speaks HTTP/2 as well as HTTP/1.1.

With TLS the two sides agree on one of them (ALPN); without, a proxy that knows may begin with
HTTP/2 (RFC 9113, 3.3), and whoever begins with HTTP/1.1 stays with it. A WebSocket may be one
stream of an HTTP/2 connection (RFC 8441).

Imported late: hypercorn is there with `acphold[http2]` alone. Its connections are counted and
bounded as all others are (`web.connections`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import h11
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Event, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import LifespanState

from acphold.web.application import Application
from acphold.web.connections import PATIENCE, RATE, STATE, Connection, Connections
from acphold.web.protocols import LARGEST_HEAD, THROWN_AWAY, Arrival
from acphold.web.sockets import Message, Receive, Scope, Send

log = logging.getLogger(__name__)

STREAMS: Final = 100
"""Requests at once on one connection."""

REQUESTS: Final = 100_000
"""Requests on one connection; then it has to be made anew."""

_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]|\0")


@asynccontextmanager
async def running(
    app: Application,
    accepting: Callable[[Callable[[], Arrival]], Awaitable[asyncio.Server]],
    connections: Connections,
    *,
    certificate: str | None,
    key: str | None,
    limit: int,
    heartbeat: float,
    last: float,
) -> AsyncIterator[None]:
    """Answer requests for the block; `accepting` takes in whoever comes.

    A message of a WebSocket has `limit` bytes at most; it is pinged every `heartbeat` seconds, and
    what is under way at the end has `last` seconds.
    """
    config = Config()
    config.certfile, config.keyfile = certificate, key
    # What strangers send that is no HTTP is nothing to warn of, and would fill the log.
    logging.getLogger("hypercorn.error").setLevel(logging.ERROR)
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.h11_max_incomplete_size = config.h2_max_header_list_size = LARGEST_HEAD
    config.h2_max_concurrent_streams = STREAMS
    config.keep_alive_max_requests = REQUESTS
    config.websocket_max_message_size = limit
    config.websocket_ping_interval = heartbeat
    loop = asyncio.get_running_loop()
    wrapped = ASGIWrapper(cast(Any, _bounded(app)))
    context = _Context(None)
    tls = config.create_ssl_context() if certificate is not None else None
    served: set[asyncio.Task[None]] = set()
    is_minded = hasattr(socket, "TCP_USER_TIMEOUT")  # by Linux

    def made(state: dict[str, Any]) -> asyncio.Protocol:
        connection: Connection = state[STATE]
        reader = asyncio.StreamReader(loop=loop)

        def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # hypercorn pings a WebSocket and does not mind whether it answers: the kernel does.
            if is_minded:
                way: socket.socket = writer.get_extra_info("socket")
                way.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * heartbeat))
            line = _Line(wrapped, config, context, connection, reader, writer)
            task = loop.create_task(line.serve(), name="http connection")
            served.add(task)
            task.add_done_callback(served.discard)

        return asyncio.StreamReaderProtocol(reader, come, loop=loop)

    server = await accepting(lambda: Arrival(connections, tls, made))
    try:
        yield
    finally:
        server.close()
        await context.terminated.set()
        if served:
            _, left = await asyncio.wait({*served}, timeout=last)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)


class _Context(WorkerContext):
    """What its connections share. hypercorn sleeps from ping to ping of a WebSocket, also when that
    one has ended, and its connection ends behind that; behind our end nobody is pinged."""

    async def sleep(self, wait: float) -> None:  # type: ignore[override]
        try:
            async with asyncio.timeout(wait):
                await self.terminated.wait()
        except TimeoutError:
            return
        raise asyncio.CancelledError


class _Line(TCPServer):
    """One connection."""

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        state: LifespanState = {STATE: connection}
        super().__init__(app, loop, config, context, state, reader, writer)
        self._connection = connection

    async def serve(self) -> None:
        """Until it ends."""
        try:
            await self.run()
        except Exception:  # one connection must not end the others; nobody awaits this task
            log.exception("a connection was given up")
        finally:
            self._connection.lost()

    async def _read_data(self) -> None:
        http = self.protocol.protocol
        if isinstance(http, H11Protocol):
            http.connection = StrictConnection(h11.SERVER, LARGEST_HEAD)
        await super()._read_data()

    async def protocol_send(self, event: Event) -> None:
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        self._connection.stuck()
        try:
            await super().protocol_send(event)
        finally:
            self._connection.moves()


class StrictConnection(h11.Connection):
    """HTTP/1.1 as h11 has it, but for what a proxy in front may read otherwise.

    RFC 9112 permits that to be refused as well: a bare LF for a line end, a header that goes on in
    the next line, both kinds of length at once.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if _AMBIGUOUS.search(head):
                raise h11.RemoteProtocolError("an ambiguous line")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (
                b"content-length" in names or event.http_version < b"1.1"
            ):
                raise h11.RemoteProtocolError("an ambiguous length")
        return event


def _bounded(app: Application) -> Application:
    """What comes has its time, as it has without HTTP/2, and is not unpacked."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"][STATE]
        connection.whole()
        if scope["type"] == "websocket":
            # What was packed may be huge, and hypercorn would unpack it before it looks.
            send.__self__.handshake.extensions = None  # type: ignore[attr-defined]
            await app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        began, came, is_whole = loop.time(), 0, False

        async def taken() -> Message:
            nonlocal came, is_whole
            try:
                async with asyncio.timeout_at(None if is_whole else began + PATIENCE + came / RATE):
                    message = await receive()
            except TimeoutError:
                connection.abort()
                message = {"type": "http.disconnect"}
            came += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            return message

        async def give(message: Message) -> None:
            # hypercorn falls over what comes of a body behind the answer, with all that is on the
            # connection.
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                wanted = came + THROWN_AWAY
                while not is_whole and came < wanted:
                    await taken()
                if not is_whole:
                    connection.abort()
            await send(message)

        await app(scope, taken, give)

    return serve
