"""A WebSocket of an ASGI server, as a connection that carries messages (ASGI WebSocket 2.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

from acphold.errors import ConnectionLostError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

NORMAL: Final = 1000
POLICY: Final = 1008
GOING_AWAY: Final = 1001
"""Codes with which a connection is closed; RFC 6455, 7.4.1."""


class AsgiSocket:
    """One that was accepted. What is binary in it is passed over, as the transport's text says."""

    def __init__(self, receive: Receive, send: Send) -> None:
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
        await self._say({"type": "websocket.send", "text": text})

    async def aclose(self, code: int = NORMAL) -> None:
        if self._is_open:
            with suppress(ConnectionLostError):  # it may have gone by itself
                await self._say({"type": "websocket.close", "code": code})
            self._is_open = False

    async def _say(self, message: Message) -> None:
        if not self._is_open:
            raise ConnectionLostError("the WebSocket is closed")
        try:
            await self._send(message)
        except OSError as exc:  # ASGI 2.4: what `send` raises once the client has gone
            self._is_open = False
            raise ConnectionLostError("the client has gone") from exc
