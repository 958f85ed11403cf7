"""The parts of every ACP type: base classes, lenience marks, unknown variants, decoders.

The schema marks fields that must not make a reader fail. Here a mark is part of the field's type:

    ======================================  ==================
    schema                                  field type
    ======================================  ==================
    `x-deserialize-default-on-error`        `OrDefault[T]`
    the same, and `x-…-skip-invalid-items`  `GoodItems[T]`
    `x-deserialize-default-on-null`         `NullIsDefault[T]`
    ======================================  ==================

Annotations stay strings until a decoder is built, so declaring a type costs little at import. Only
here and in `initialize` they do not: all types have those, an editor waits for these, and it takes
four times as long to read them from strings.
"""

from typing import Annotated, Any, TypeAlias, TypeVar, cast

from msgspec import DecodeError, Meta, Struct, field
from msgspec.json import Decoder

T = TypeVar("T")


class Lenience(Struct, frozen=True):
    """The treatment of a field that cannot be read; used by `acp_wire.schema.salvage`."""

    on_error: bool = False
    on_null: bool = False
    skip_items: bool = False


OrDefault: TypeAlias = Annotated[T, Lenience(on_error=True)]
GoodItems: TypeAlias = Annotated[T, Lenience(on_error=True, skip_items=True)]
NullIsDefault: TypeAlias = Annotated[T, Lenience(on_null=True)]

UInt16: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF)]
UInt32: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
UInt64: TypeAlias = Annotated[int, Meta(ge=0)]  # msgspec allows no bound above 2**63 - 1
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class KnownValues(Struct, frozen=True):
    """The values an open set has today; the schema's `other` branch allows any other."""

    values: tuple[str | int, ...]


class Shape(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """An ACP object. Fields at their default are not sent; JSON cannot be cyclic, so no GC."""


class Extensible(Shape, frozen=True, kw_only=True):
    """An ACP object with `_meta`, which is nearly every one; source: ACP v1, Extensibility."""

    meta: OrDefault[dict[str, object] | None] = field(name="_meta", default=None)


class UnknownVariant:
    """A variant of a union newer than this release: its discriminator, and its bytes.

    Not a Struct, since msgspec would encode its two fields; so the encoder calls its hook for it,
    and gets `raw`.
    """

    __match_args__ = ("kind", "raw")
    __slots__ = ("kind", "raw")

    def __init__(self, kind: str, raw: bytes) -> None:
        self.kind: str = kind
        self.raw: bytes = raw

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (self.kind, self.raw) == (other.kind, other.raw)

    def __hash__(self) -> int:
        return hash((self.kind, self.raw))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kind={self.kind!r}, raw={self.raw!r})"


class Nothing(Struct, frozen=True, tag="", tag_field="type"):
    """Fits nothing. msgspec insists on `type` only in a union of at least two."""

    def __post_init__(self) -> None:
        raise ValueError("no such variant")


class Otherwise(Struct, frozen=True):
    """The value of a union when none of its tagged variants fits.

    msgspec needs a tag on each variant and has no catch-all. So a union's runtime type has the
    tagged variants only; this mark names the one without a tag, and the class that keeps the bytes
    of an unknown tag. Both are found in the second pass.
    """

    untagged: object = None
    unknown: type[UnknownVariant] | None = None


REFUSED = (DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a strict decoder for bytes that it cannot read as its type."""

_decoders: dict[object, Decoder[Any]] = {}


def decoder(kind: object) -> Decoder[Any]:
    """Return the strict decoder of a type; built on first use, since that takes milliseconds."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = Decoder(cast("type[Any]", kind))
    return found
