"""A WebSocket of an ASGI server, as a connection that carries messages (ASGI WebSocket 2.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

from acphold.errors import ConnectionLostError
from acphold.transports import web_sockets

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application of ASGI 3.0."""

Cut = Callable[[bytes], Sequence[bytes]]
"""Cuts a message longer than LONGEST into those to send instead."""

LONGEST: Final = 1 << 20
"""Bytes of a message that any client takes."""


def whole(line: bytes) -> Sequence[bytes]:
    """Return the message uncut."""
    return (line,)


NORMAL: Final = 1000
POLICY: Final = web_sockets.POLICY
GOING_AWAY: Final = 1001
"""Codes with which a connection is closed; RFC 6455, 7.4.1."""


class AsgiSocket:
    """An accepted WebSocket. Binary messages are skipped, as the transport's text says."""

    def __init__(self, receive: Receive, send: Send, cut: Cut = whole) -> None:
        self._cut = cut
        self._receive = receive
        self._send = send
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
        if len(text) * 4 <= LONGEST:  # a character takes at most four bytes
            await self._say({"type": "websocket.send", "text": text})
            return
        for piece in self._cut(text.encode()):
            await self._say({"type": "websocket.send", "text": piece.decode()})

    async def aclose(self, code: int = NORMAL, reason: str = "") -> None:
        if self._is_open:
            with suppress(ConnectionLostError):  # it may be gone already
                await self._say({"type": "websocket.close", "code": code, "reason": reason})
            self._is_open = False

    async def explain(self, reason: str) -> None:
        await self.aclose(POLICY, web_sockets.as_close_reason(reason))

    async def _say(self, message: Message) -> None:
        if not self._is_open:
            raise ConnectionLostError("the WebSocket is closed")
        try:
            await self._send(message)
        except OSError as exc:  # ASGI 2.4: what `send` raises once the client has gone
            self._is_open = False
            raise ConnectionLostError("the client has gone") from exc
