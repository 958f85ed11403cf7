"""From bytes to types and back: strict first, lenient second, and saying what was lost."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, Encoder

from holdfast.errors import InvalidParamsError
from holdfast.schema.content import ContentBlock
from holdfast.schema.shapes import UnknownVariant
from holdfast.schema.updates import Update

T = TypeVar("T")


class Decoded(Struct, Generic[T], frozen=True):
    """A value, and the JSON path of each field or item in it that could not be read as sent.

    Such a field has its default, such an item is left out, and in such a text U+FFFD stands for
    what no text can hold.
    """

    value: T
    flaws: tuple[str, ...] = ()


REFUSED = (DecodeError, UnicodeDecodeError)
"""What msgspec raises for bytes it cannot read as the type asked for."""

_decoders: dict[object, Decoder[Any]] = {}


def decoder(kind: object) -> Decoder[Any]:
    """The strict decoder of a type; built when first asked for, for that takes milliseconds."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = Decoder(cast("type[Any]", kind))
    return found


def decode(kind: type[T], raw: bytes | Raw) -> Decoded[T]:
    """Decode params or a result. None at all, or null, reads as an object without members.

    Raises InvalidParamsError, which names the field, where the schema allows no default.
    """
    return cast("Decoded[T]", _decode(kind, raw))


def decode_update(raw: bytes | Raw) -> Decoded[Update]:
    """Decode the `update` of a `session/update`; raises InvalidParamsError."""
    return cast("Decoded[Update]", _decode(Update, raw))


def decode_blocks(raw: bytes | Raw) -> Decoded[tuple[ContentBlock, ...]]:
    """Decode an array of content blocks, like a `prompt`; raises InvalidParamsError."""
    return cast("Decoded[tuple[ContentBlock, ...]]", _decode(tuple[ContentBlock, ...], raw))


def _decode(kind: object, raw: bytes | Raw) -> Decoded[Any]:
    try:
        return Decoded(decoder(kind).decode(raw))
    except REFUSED:
        return _mended(kind, bytes(raw).strip() or b"null")
    except RecursionError:
        raise InvalidParamsError("nested too deep", "$") from None


def _mended(kind: object, raw: bytes) -> Decoded[Any]:
    from holdfast.schema.mend import mended

    absent = raw == b"null" and isinstance(kind, type)
    flaws: list[str] = []
    value = mended(kind, b"{}" if absent else raw, flaws)
    return Decoded(value, tuple(flaws))


def _written(value: object) -> Raw:
    if isinstance(value, UnknownVariant):
        return Raw(value.raw)
    raise TypeError(f"a {type(value).__name__} is not JSON")


_ENCODER = Encoder(enc_hook=_written)


def encode(value: object) -> bytes:
    """The JSON of a value, compact; fields at their default are left out.

    Lone surrogates, which a path or a cut text may hold, become U+FFFD.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        from holdfast.schema.scan import encode_repaired

        return encode_repaired(value, _written)
