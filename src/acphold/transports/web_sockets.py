"""Foreign WebSockets as connections that carry messages: those of `websockets`, on either side, and
those of Starlette, which FastAPI has, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Protocol, runtime_checkable

from acphold.errors import ConnectionLostError
from acphold.transports.messages import MessageTransport

CLOSE_SECONDS: Final = 2.0
"""Seconds that a closing one has to confirm it."""

POLICY: Final = 1008
"""The close code for a client that is not allowed here; RFC 6455, 7.4.1."""


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
    def send_text(self) -> Callable[[str], Awaitable[None]]: ...

    @property
    def close(self) -> Callable[..., Awaitable[None]]: ...


def over_websocket(socket: PlainSocket | AcceptedSocket) -> MessageTransport:
    """Return a transport over a WebSocket of `websockets`, or over an accepted one of Starlette or
    FastAPI. It owns the socket, and closes it. Binary messages are skipped.

    Experimental: the remote transport is a draft of the protocol.
    """
    if isinstance(socket, PlainSocket):
        return MessageTransport(_PlainConnection(socket))
    return MessageTransport(_Accepted(socket))


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

    async def aclose(self) -> None:
        await self._close()

    async def explain(self, reason: str) -> None:
        await self._close(POLICY, as_close_reason(reason))

    async def _close(self, *why: int | str) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close(*why)
        except TimeoutError:  # its own timeout starts only after it has sent its close
            self._socket.transport.abort()


class _Accepted:
    def __init__(self, socket: AcceptedSocket) -> None:
        # An application with such a socket has that module, too; it is no dependency of ours.
        gone: type[Exception] = import_module("starlette.websockets").WebSocketDisconnect
        self._socket = socket
        # Starlette raises RuntimeError if it has been closed already.
        self._gone = (gone, RuntimeError)
        self._is_open = True

    async def receive(self) -> str | None:
        while self._is_open:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._is_open = False
            elif (text := message.get("text")) is not None:
                return str(text)
        return None

    async def send(self, text: str) -> None:
        if not self._is_open:
            raise ConnectionLostError("the WebSocket is closed")
        try:
            await self._socket.send_text(text)
        except self._gone as exc:
            self._is_open = False
            raise ConnectionLostError("the client has gone") from exc

    async def aclose(self) -> None:
        await self._close()

    async def explain(self, reason: str) -> None:
        await self._close(POLICY, as_close_reason(reason))

    async def _close(self, *why: int | str) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(*self._gone):
                await self._socket.close(*why)
