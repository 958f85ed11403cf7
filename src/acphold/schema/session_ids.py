"""The session that a message is about, asked in one place by all who pass messages on."""

from __future__ import annotations

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from acphold.errors import InvalidParamsError
from acphold.schema.splice import members


class _About(Struct, gc=False):
    sessionId: str | None = None


_decode = Decoder(_About).decode
_text = Decoder(str).decode


def session_id_in(message: bytes) -> str | None:
    """The `sessionId` of params or of a result; None when there is none, or no text.

    Where it comes twice it is the last, as everybody reads it who acts on the message: the first
    may be of a wrong type, and is to hide nothing.
    """
    try:
        return _decode(message or b"{}").sessionId
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _text(members(message).get("sessionId", b"null"))
    except (InvalidParamsError, MsgspecError, UnicodeDecodeError):
        return None
