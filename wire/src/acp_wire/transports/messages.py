"""The transport over a connection that carries messages, such as a foreign WebSocket.

Each text message is one message of JSON-RPC (ACP RFD, Streamable HTTP & WebSocket transport). Each
received message gets a line end, and sent bytes are cut at line ends; outside this module it is
like a pipe. A message goes out in the step that sends it, unless the connection has to be waited
for.

`over_websocket` makes one of a WebSocket of `websockets`, or of Starlette, which FastAPI has, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol, runtime_checkable

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.tasks import end, timeout
from acp_wire.transports.pipes import FLUSH_SECONDS, LOW_WATER

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Messages that are received before the event loop gets a turn."""

HEARTBEAT_SECONDS: Final = 20.0
"""Seconds between two pings over a WebSocket; the other side has as long to answer. Proxies end
connections that are idle for a minute."""

CLOSE_SECONDS: Final = 2.0
"""Seconds that closing waits for the other side to confirm it."""

NORMAL: Final = 1000
POLICY: Final = 1008
"""The close codes of a connection that has ended, and for a client that is not allowed here; RFC
6455, 7.4.1."""


class MessageConnection(Protocol):
    """The connection under the messages: of a server, or of a client."""

    async def receive(self) -> str | None:
        """Return the next text message; None once the other side has ended or gone, and ever
        after."""

    async def send(self, text: str) -> None:
        """Send a message, and wait while the other side accepts none; ConnectionLostError once it
        is gone."""

    async def aclose(self) -> None:
        """Close it, within a bound; may be called twice."""


@runtime_checkable
class ExplainingConnection(MessageConnection, Protocol):
    """A connection whose end can carry a reason."""

    async def explain(self, reason: str) -> None:
        """Close it with this reason, within a bound."""


class MessageTransport:
    """The transport over messages, one of JSON-RPC in each. Make it inside a running loop.

    It owns the connection, and closes it.
    """

    def __init__(self, connection: MessageConnection) -> None:
        self._connection = connection
        self._queue = bytearray()
        self._changed = asyncio.Event()
        self._taken = 0
        self._is_lost = False
        self._reason = ""
        self._tasks = EagerTasks()
        self._is_writing = False
        self._writer: asyncio.Task[None] | None = None

    async def receive(self) -> bytes:
        """Return the next message, with a line end; b"" once the other side has ended, and ever
        after."""
        self._taken += 1
        if self._taken % AT_ONCE == 0:
            await asyncio.sleep(0)
        text = await self._connection.receive()
        if text is None:
            return b""
        # In valid JSON a line break only stands between two tokens, never inside a string.
        return text.encode().replace(b"\n", b" ") + b"\n"

    def send(self, data: bytes) -> None:
        """Send the messages that `data` has or completes; dropped once the other side has gone."""
        if self._is_lost:
            return
        self._queue += data
        if not self._is_writing:
            self._is_writing = True
            self._writer = self._tasks.begin(self._write(), "write messages")

    @property
    def buffered(self) -> int:
        """Bytes queued that the connection has not taken yet."""
        return len(self._queue)

    async def drain(self) -> None:
        """Wait until less than LOW_WATER is queued; ConnectionLostError if the other has gone."""
        await self._queue_below(LOW_WATER)
        if self._is_lost:
            raise ConnectionLostError("the other side has closed the connection")

    def explain(self, reason: str) -> None:
        """Have `aclose` tell this reason, if the connection can."""
        self._reason = reason

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then close; may be called again."""
        try:
            async with timeout(FLUSH_SECONDS):
                await self._queue_below(1)
        except TimeoutError:
            pass  # the other side does not read: the rest is lost
        finally:
            self._lose()
            await end(self._writer)
            self._tasks.close()
            if self._reason and isinstance(self._connection, ExplainingConnection):
                await self._connection.explain(self._reason)
            else:
                await self._connection.aclose()

    async def _write(self) -> None:
        """Send what is queued, message by message, until nothing is or the other side has gone."""
        try:
            while (end := self._queue.find(b"\n")) >= 0:
                # It counts as buffered until it was sent.
                await self._connection.send(self._queue[:end].decode(errors="replace"))
                del self._queue[: end + 1]
                self._changed.set()
        except ConnectionLostError:
            self._lose()
        except Exception:  # the connection is not ours: its failure must not reach the sender
            log.exception("a connection accepts no messages; closing it")
            self._lose()
        finally:
            self._is_writing = False

    async def _queue_below(self, limit: int) -> None:
        while len(self._queue) >= limit and not self._is_lost:
            self._changed.clear()
            await self._changed.wait()

    def _lose(self) -> None:
        self._is_lost = True
        self._queue.clear()
        self._changed.set()


def as_close_reason(reason: str) -> str:
    """Return the reason, within the 123 bytes of a close frame (RFC 6455, 5.5)."""
    return reason.encode()[:123].decode(errors="ignore")


@runtime_checkable
class PlainSocket(Protocol):
    """A connection of `websockets`."""

    @property
    def recv(self) -> Callable[[], Awaitable[str | bytes]]: ...

    @property
    def send(self) -> Callable[[str], Awaitable[None]]: ...

    @property
    def close(self) -> Callable[..., Awaitable[None]]: ...

    @property
    def transport(self) -> asyncio.Transport: ...


class AcceptedSocket(Protocol):
    """A `WebSocket` of Starlette that was accepted."""

    @property
    def receive(self) -> Callable[[], Awaitable[MutableMapping[str, Any]]]: ...

    @property
    def send(self) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]: ...


def over_websocket(socket: PlainSocket | AcceptedSocket) -> MessageTransport:
    """Return a transport over a WebSocket of `websockets`, or over an accepted one of Starlette or
    FastAPI. It owns the socket, and closes it. Binary messages are skipped.

    Experimental: the remote transport is a draft of the protocol.
    """
    if isinstance(socket, PlainSocket):
        return MessageTransport(_PlainConnection(socket))
    # An application with such a socket has that module, too; it is no dependency of ours.
    gone: type[Exception] = import_module("starlette.websockets").WebSocketDisconnect
    # Starlette raises RuntimeError if it has been closed already.
    return MessageTransport(AsgiSocket(socket.receive, socket.send, (OSError, gone, RuntimeError)))


class _PlainConnection:
    def __init__(self, socket: PlainSocket) -> None:
        from websockets.exceptions import ConnectionClosed  # late: few have one

        self._socket = socket
        self._closed = ConnectionClosed

    async def receive(self) -> str | None:
        try:
            while isinstance(message := await self._socket.recv(), bytes):
                pass  # the RFD skips binary messages
        except self._closed:
            return None
        return message

    async def send(self, text: str) -> None:
        try:
            await self._socket.send(text)
        except self._closed as exc:
            raise ConnectionLostError("the WebSocket is closed") from exc

    async def explain(self, reason: str) -> None:
        await self.aclose(POLICY, as_close_reason(reason))

    async def aclose(self, *why: int | str) -> None:
        try:
            async with timeout(CLOSE_SECONDS):
                await self._socket.close(*why)
        except TimeoutError:  # its own timeout starts only after it has sent its close
            self._socket.transport.abort()


class AsgiSocket:
    """An accepted WebSocket of ASGI 3.0. Binary messages are skipped, as the RFD says.

    Once the client has gone, `send` raises one of `gone`: OSError since ASGI 2.4.
    """

    def __init__(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        gone: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        self._receive = receive
        self._send = send
        self._gone = gone
        self._is_open = True

    async def receive(self) -> str | None:
        while self._is_open:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._is_open = False
            elif (text := message.get("text")) is not None:
                return str(text)
        return None

    async def send(self, text: str) -> None:
        await self._say({"type": "websocket.send", "text": text})

    async def aclose(self, code: int = NORMAL, reason: str = "") -> None:
        if self._is_open:
            with suppress(ConnectionLostError):  # it may be gone already
                await self._say({"type": "websocket.close", "code": code, "reason": reason})
            self._is_open = False

    async def explain(self, reason: str) -> None:
        await self.aclose(POLICY, as_close_reason(reason))

    async def _say(self, message: MutableMapping[str, Any]) -> None:
        if not self._is_open:
            raise ConnectionLostError("the WebSocket is closed")
        try:
            await self._send(message)
        except self._gone as exc:
            self._is_open = False
            raise ConnectionLostError("the client has gone") from exc
