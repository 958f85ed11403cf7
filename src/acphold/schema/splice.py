"""JSON objects as the bytes of their members: read one, change another, keep the rest.

What acphold only passes on is not decoded and encoded again, so that fields it does not know
survive byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, encode

from acphold.errors import InvalidParamsError

_OBJECT = Decoder(dict[str, Raw])
_ARRAY = Decoder(list[Raw])

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what it is to read."""


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object, in order: decoded name to the bytes of the value.

    Of a name that comes twice, the last value. Raises InvalidParamsError if `raw` is no object.
    """
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def items(raw: bytes) -> list[bytes]:
    """The items of a JSON array, as bytes. Raises InvalidParamsError if `raw` is no array."""
    try:
        return [bytes(item) for item in _ARRAY.decode(raw)]
    except UNREADABLE as error:
        raise InvalidParamsError(str(error), "$") from None


def array(items: Sequence[bytes]) -> bytes:
    """A JSON array of items that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def with_meta(raw: bytes, key: str, value: bytes) -> bytes:
    """The object `raw` with this key in its `_meta`; a `_meta` that is no object is replaced."""
    meta = members(raw).get("_meta", b"")
    return splice(raw, {"_meta": splice(meta if meta.startswith(b"{") else b"{}", {key: value})})


def splice(raw: bytes, replacements: Mapping[str, bytes | None]) -> bytes:
    """The object `raw` with these members replaced in place, added at its end, or removed (None).

    The values of all other members keep their bytes and their order; white space between members
    goes. Raises InvalidParamsError if `raw` is no object.
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
