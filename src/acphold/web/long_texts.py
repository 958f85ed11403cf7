"""Long texts for foreign clients over a WebSocket: a long text update is split into pieces.

Many accept messages of at most one MiB, as `websockets` does for the official Python SDK, and close
the connection at a longer one. Text in chunks is still the same text. Nothing else is split,
however long: a tool call has to be sent whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acphold.errors import InvalidParamsError
from acphold.hub.frames import POSITION
from acphold.schema.splice import UNREADABLE, members
from acphold.schema.update_kinds import UPDATE_KINDS, UpdateForm
from acphold.web.gate import Headers
from acphold.web.sockets import LONGEST

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
