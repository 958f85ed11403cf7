"""The form an elicitation asks the user to fill in: an object schema of flat properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import field

from acphold.schema.shapes import (
    Extensible,
    GoodItems,
    Int64,
    Nothing,
    OrDefault,
    Otherwise,
    UInt32,
    UInt64,
    UnknownVariant,
)

StringFormat: TypeAlias = Literal["email", "uri", "date", "date-time"]


class EnumOption(Extensible, frozen=True):
    """One value to choose, and what the user sees for it."""

    const: str
    title: str
    description: OrDefault[str | None] = None


class StringPropertySchema(Extensible, frozen=True, tag="string", tag_field="type"):
    """A text, or one of `enum` or `one_of`."""

    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    min_length: UInt32 | None = None
    max_length: UInt32 | None = None
    pattern: str | None = None
    format: StringFormat | None = None
    default: OrDefault[str | None] = None
    enum: tuple[str, ...] | None = None
    one_of: tuple[EnumOption, ...] | None = None


class NumberPropertySchema(Extensible, frozen=True, tag="number", tag_field="type"):
    """A number."""

    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    minimum: float | None = None
    maximum: float | None = None
    default: OrDefault[float | None] = None


class IntegerPropertySchema(Extensible, frozen=True, tag="integer", tag_field="type"):
    """A whole number."""

    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    minimum: Int64 | None = None
    maximum: Int64 | None = None
    default: OrDefault[Int64 | None] = None


class BooleanPropertySchema(Extensible, frozen=True, tag="boolean", tag_field="type"):
    """Yes or no."""

    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    default: OrDefault[bool | None] = None


class StringMultiSelectItems(Extensible, frozen=True, tag="string", tag_field="type"):
    """Values to choose several of, shown as they are."""

    enum: tuple[str, ...]


class TitledMultiSelectItems(Extensible, frozen=True):
    """Values to choose several of, each with a title."""

    any_of: tuple[EnumOption, ...]


class UnknownMultiSelectItems(UnknownVariant):
    """Values of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    MultiSelectItems: TypeAlias = (
        StringMultiSelectItems | TitledMultiSelectItems | UnknownMultiSelectItems
    )
else:
    MultiSelectItems = Annotated[
        StringMultiSelectItems | Nothing,
        Otherwise(untagged=TitledMultiSelectItems, unknown=UnknownMultiSelectItems),
    ]


class MultiSelectPropertySchema(Extensible, frozen=True, tag="array", tag_field="type"):
    """Several of a set of values."""

    items: MultiSelectItems
    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    min_items: UInt64 | None = None
    max_items: UInt64 | None = None
    default: GoodItems[tuple[str, ...] | None] = None


class UnknownPropertySchema(UnknownVariant):
    """A property of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    ElicitationPropertySchema: TypeAlias = (
        StringPropertySchema
        | NumberPropertySchema
        | IntegerPropertySchema
        | BooleanPropertySchema
        | MultiSelectPropertySchema
        | UnknownPropertySchema
    )
else:
    ElicitationPropertySchema = Annotated[
        StringPropertySchema
        | NumberPropertySchema
        | IntegerPropertySchema
        | BooleanPropertySchema
        | MultiSelectPropertySchema,
        Otherwise(unknown=UnknownPropertySchema),
    ]

ElicitationSchemaType: TypeAlias = Literal["object"]


class ElicitationSchema(Extensible, frozen=True):
    """The form: its properties by name, and which of them must be filled in."""

    properties: dict[str, ElicitationPropertySchema] = field(default_factory=dict)
    required: tuple[str, ...] | None = None
    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    type: OrDefault[ElicitationSchemaType] = "object"
