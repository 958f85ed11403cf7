"""The session that a message is about, asked in one place by all who pass messages on."""

from __future__ import annotations

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder


class _About(Struct, gc=False):
    sessionId: str | None = None


_decode = Decoder(_About).decode


def session_id_in(message: bytes) -> str | None:
    """The `sessionId` of params or of a result; None when there is none, or no text."""
    try:
        return _decode(message or b"{}").sessionId
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
