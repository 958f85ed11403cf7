"""A WebSocket of an ASGI server, as a connection that carries messages (ASGI WebSocket 2.4).

A long text update is split into pieces for foreign clients: many accept messages of at most one
MiB, as `websockets` does for the official Python SDK, and close the connection at a longer one.
Text in chunks is still the same text. Nothing else is split, however long: a tool call has to be
sent whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acphold.errors import ConnectionLostError, InvalidParamsError
from acphold.hub.frames import POSITION
from acphold.schema.splice import UNREADABLE, members
from acphold.schema.update_kinds import UPDATE_KINDS, UpdateForm
from acphold.transports import web_sockets

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Headers = dict[str, str]
"""The headers of a request, with lower-case names."""

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


PIECE: Final = 128 << 10
"""Characters of a piece: none takes more than six bytes in JSON."""


def takes_long_messages(headers: Headers) -> bool:
    """Return True if the client is ours, or a browser, which has no such limit."""
    return headers.get("user-agent") == "acphold" or "origin" in headers


def in_pieces(line: bytes) -> list[bytes]:
    """Return the messages to send instead of this one; only the last has its position."""
    if len(line) <= LONGEST:
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
    told = []
    for begin in range(0, len(text), PIECE):
        is_last = begin + PIECE >= len(text)
        content["text"] = encode(text[begin : begin + PIECE])
        update["content"] = _object(content)
        params["update"] = _object(update)
        if "_meta" in params:
            others = {name: raw for name, raw in meta.items() if is_last or name != POSITION}
            params["_meta"] = _object(others)
        message["params"] = _object(params)
        told.append(_object(message))
    return told


def _object(found: Mapping[str, bytes]) -> bytes:
    return encode({name: Raw(raw) for name, raw in found.items()})
