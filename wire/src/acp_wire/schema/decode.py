"""Decoding and encoding of types: strict first, and if that fails, part by part.

Unreadable parts are returned as `flaws`, so that the caller can report the loss.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw, Struct
from msgspec.json import Decoder, Encoder

from acp_wire.schema.content import ContentBlock
from acp_wire.schema.shapes import REFUSED, UnknownVariant, decoder
from acp_wire.schema.updates import Update

T = TypeVar("T")


class Decoded(Struct, Generic[T], frozen=True):
    """A value, and the JSON path of each field or item in it that could not be read.

    Such a field has its default, such an item is left out.
    """

    value: T
    flaws: tuple[str, ...] = ()


# Beside `decoder`, because hashing a large union takes as long as decoding an update.
_update_decoder: Final = cache(partial(decoder, Update))


def decode(kind: type[T], raw: bytes | Raw) -> Decoded[T]:
    """Decode params or a result; missing or null params read as an empty object.

    Raises InvalidParamsError, which names the field, if the schema allows no default.
    """
    return _decode_leniently(kind, decoder(kind), raw)


def decode_update(raw: bytes | Raw) -> Decoded[Update]:
    """Decode the `update` of a `session/update`; raises InvalidParamsError."""
    return _decode_leniently(Update, _update_decoder(), raw)


def decode_blocks(raw: bytes | Raw) -> Decoded[tuple[ContentBlock, ...]]:
    """Decode an array of content blocks, like a `prompt`; raises InvalidParamsError."""
    blocks = tuple[ContentBlock, ...]
    return _decode_leniently(blocks, decoder(blocks), raw)


def _decode_leniently(kind: object, strict: Decoder[Any], raw: bytes | Raw) -> Decoded[Any]:
    try:
        return Decoded(strict.decode(raw))
    except REFUSED:
        from acp_wire.schema.salvage import (
            salvage_value,  # rarely needed, so not imported at start-up
        )

        sent = bytes(raw).strip()
        if sent in (b"", b"null") and isinstance(kind, type):
            sent = b"{}"
        return Decoded(*salvage_value(kind, sent))


def _to_raw(value: object) -> Raw:
    if isinstance(value, UnknownVariant):
        return Raw(value.raw)
    raise TypeError(f"a {type(value).__name__} is not JSON")


_ENCODER = Encoder(enc_hook=_to_raw)


def encode(value: object) -> bytes:
    """Return a value as compact JSON; fields at their default are left out.

    Lone surrogates, which a path or a cut text may contain, become U+FFFD.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        from acp_wire.schema.salvage import encode_repaired

        return encode_repaired(value, _to_raw)
