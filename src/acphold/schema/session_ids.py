"""The session that a message is about, found in one place for all who forward messages."""

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
    """Return the `sessionId` of params or a result; None if there is none, or it is no text.

    If it occurs twice the last one counts, as for everybody who acts on the message: the first may
    have a wrong type, and must not hide anything.
    """
    try:
        return _decode(message or b"{}").sessionId
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _text(members(message).get("sessionId", b"null"))
    except (InvalidParamsError, MsgspecError, UnicodeDecodeError):
        return None
