"""JSON objects as the bytes of their members: read one, change another, keep the rest.

Messages that acphold only forwards are not decoded and encoded again, so that unknown fields
survive byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec import DecodeError, MsgspecError, Raw, Struct
from msgspec.json import Decoder, decode, encode

from acp_wire.errors import InvalidParamsError

T = TypeVar("T")

_OBJECT = Decoder(dict[str, Raw])
_ARRAY = Decoder(list[Raw])

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bytes that it cannot read."""


def members(raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, in order: decoded name to the bytes of the value.

    For a repeated name, the last value. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def items(raw: bytes) -> list[bytes]:
    """Return the items of a JSON array, as bytes; raises InvalidParamsError if it is none."""
    try:
        return [bytes(item) for item in _ARRAY.decode(raw)]
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def json_value(raw: bytes | None, kind: type[T]) -> T | None:
    """Return the value of this kind that `raw` is, or None."""
    try:
        return None if raw is None else decode(raw, type=kind)
    except UNREADABLE:
        return None


def splice(raw: bytes, replacements: Mapping[str, bytes | None]) -> bytes:
    """Return the object `raw` with these members replaced in place, appended, or removed (None).

    The values of all other members keep their bytes and their order; white space between members is
    dropped. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        found = _OBJECT.decode(raw)
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None
    for name, value in replacements.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = Raw(value)
    return encode(found)


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
