"""An agent's requests to its client: files, terminals, and input from the user.

A form is an object schema of flat properties. The schema merges mode and scope into one object, and
so do we; the fields a mode needs are checked when the object is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from acp_wire.schema.initialize import RequestId
from acp_wire.schema.session_requests import EnvVariable
from acp_wire.schema.shapes import (
    Extensible,
    GoodItems,
    Int64,
    KnownValues,
    Nothing,
    NullIsDefault,
    OrDefault,
    Otherwise,
    UInt32,
    UInt64,
    UnknownVariant,
)

# -- files, unsaved changes included; paths are absolute ------------------------------------------


class ReadTextFileRequest(Extensible, frozen=True):
    """`fs/read_text_file`: `limit` lines from `line`, which counts from 1; all without them."""

    session_id: str
    path: str
    line: UInt32 | None = None
    limit: UInt32 | None = None


class ReadTextFileResponse(Extensible, frozen=True):
    """The text."""

    content: str


class WriteTextFileRequest(Extensible, frozen=True):
    """`fs/write_text_file`: the whole new text; the file is made if there is none."""

    session_id: str
    path: str
    content: str


class WriteTextFileResponse(Extensible, frozen=True):
    """The file is written."""


# -- commands the client runs for the agent -------------------------------------------------------


class CreateTerminalRequest(Extensible, frozen=True):
    """`terminal/create`: run a command; `output_byte_limit` keeps that many last bytes."""

    session_id: str
    command: str
    args: NullIsDefault[tuple[str, ...]] = ()
    env: NullIsDefault[tuple[EnvVariable, ...]] = ()
    cwd: str | None = None
    output_byte_limit: UInt64 | None = None


class CreateTerminalResponse(Extensible, frozen=True):
    """The command runs."""

    terminal_id: str


class TerminalExitStatus(Extensible, frozen=True):
    """The end of a command: an exit code, or a signal."""

    exit_code: OrDefault[UInt32 | None] = None
    signal: OrDefault[str | None] = None


class TerminalFields(Extensible, frozen=True):
    """The fields of every request about a terminal."""

    session_id: str
    terminal_id: str


class TerminalOutputRequest(TerminalFields, frozen=True):
    """`terminal/output`: the command's output so far."""


class TerminalOutputResponse(Extensible, frozen=True):
    """The output; `truncated` if its beginning was dropped; a status once it ended."""

    output: str
    truncated: bool
    exit_status: OrDefault[TerminalExitStatus | None] = None


class ReleaseTerminalRequest(TerminalFields, frozen=True):
    """`terminal/release`: kill the command if it runs, and forget the terminal."""


class ReleaseTerminalResponse(Extensible, frozen=True):
    """The terminal is gone."""


class WaitForTerminalExitRequest(TerminalFields, frozen=True):
    """`terminal/wait_for_exit`: answered when the command ends."""


class WaitForTerminalExitResponse(TerminalExitStatus, frozen=True):
    """The end of a command: an exit code, or a signal."""


class KillTerminalRequest(TerminalFields, frozen=True):
    """`terminal/kill`: end the command; its output can still be read."""


class KillTerminalResponse(Extensible, frozen=True):
    """The command is being killed."""


StringFormat: TypeAlias = Literal["email", "uri", "date", "date-time"]


class EnumOption(Extensible, frozen=True):
    """One value to choose, and its label."""

    const: str
    title: str
    description: OrDefault[str | None] = None


class PropertyFields(Extensible, frozen=True):
    """The fields of every kind of property."""

    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None


class StringPropertySchema(PropertyFields, frozen=True, tag="string", tag_field="type"):
    """A text, or one of `enum` or `one_of`."""

    min_length: UInt32 | None = None
    max_length: UInt32 | None = None
    pattern: str | None = None
    format: StringFormat | None = None
    default: OrDefault[str | None] = None
    enum: tuple[str, ...] | None = None
    one_of: tuple[EnumOption, ...] | None = None

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The allowed values and their titles; empty if any text may be entered."""
        if self.one_of is not None:
            return [(option.const, option.title) for option in self.one_of]
        return [(value, value) for value in self.enum or ()]


class NumberPropertySchema(PropertyFields, frozen=True, tag="number", tag_field="type"):
    """A number."""

    minimum: float | None = None
    maximum: float | None = None
    default: OrDefault[float | None] = None


class IntegerPropertySchema(PropertyFields, frozen=True, tag="integer", tag_field="type"):
    """A whole number."""

    minimum: Int64 | None = None
    maximum: Int64 | None = None
    default: OrDefault[Int64 | None] = None


class BooleanPropertySchema(PropertyFields, frozen=True, tag="boolean", tag_field="type"):
    """Yes or no."""

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


class MultiSelectPropertySchema(
    PropertyFields, frozen=True, kw_only=True, tag="array", tag_field="type"
):
    """Several of a set of values."""

    items: MultiSelectItems
    min_items: UInt64 | None = None
    max_items: UInt64 | None = None
    default: GoodItems[tuple[str, ...] | None] = None

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The values and their titles; empty for values of an unknown type."""
        match self.items:
            case StringMultiSelectItems(enum=values):
                return [(value, value) for value in values]
            case TitledMultiSelectItems(any_of=options):
                return [(option.const, option.title) for option in options]
        return []


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

    def misfits(self, values: Mapping[str, ElicitationContentValue]) -> set[str]:
        """Return the required fields without a value, and those whose value does not fit."""
        return {name for name in self.required or () if name not in values} | {
            name
            for name, value in values.items()
            if name in self.properties and not fits(value, self.properties[name])
        }


ElicitationContentValue: TypeAlias = str | int | float | bool | tuple[str, ...]


def fits(value: ElicitationContentValue, field: ElicitationPropertySchema) -> bool:
    """Return True if a property may have this value; one of an unknown type may have any."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match field:
        case StringPropertySchema():
            if not isinstance(value, str):
                return False
            if field.one_of is not None or field.enum is not None:
                return value in (choice for choice, _ in field.choices)
            most = len(value) if field.max_length is None else field.max_length
            return (field.min_length or 0) <= len(value) <= most
        case BooleanPropertySchema():
            return isinstance(value, bool)
        case IntegerPropertySchema():
            return isinstance(value, int) and is_number and _is_between(value, field)
        case NumberPropertySchema():
            return isinstance(value, int | float) and is_number and _is_between(value, field)
        case MultiSelectPropertySchema():
            return isinstance(value, tuple | list)
        case _:
            return True


def _is_between(number: float, field: IntegerPropertySchema | NumberPropertySchema) -> bool:
    least = number if field.minimum is None else field.minimum
    most = number if field.maximum is None else field.maximum
    return least <= number <= most


NEEDS: dict[str, tuple[str, ...]] = {
    "form": ("requested_schema",),
    "url": ("elicitation_id", "url"),
}
"""The fields each known mode must have; other modes may be added."""


class CreateElicitationRequest(Extensible, frozen=True):
    """`elicitation/create`: `mode` is `form` or `url`, scope a session or a request."""

    message: str
    mode: Annotated[str, KnownValues(("form", "url"))]
    session_id: str | UnsetType = UNSET
    tool_call_id: OrDefault[str | None] = None
    request_id: RequestId | UnsetType = UNSET
    requested_schema: ElicitationSchema | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.session_id is UNSET and self.request_id is UNSET:
            raise ValueError("`sessionId` or `requestId` must be there")
        for name in NEEDS.get(self.mode, ()):
            if getattr(self, name) is UNSET:
                wire = {"requested_schema": "requestedSchema", "elicitation_id": "elicitationId"}
                raise ValueError(f"mode {self.mode!r} needs `{wire.get(name, name)}`")


class CreateElicitationResponse(Extensible, frozen=True):
    """`action` is `accept` (with `content` for a form), `decline`, `cancel` or a later one."""

    action: Annotated[str, KnownValues(("accept", "decline", "cancel"))]
    content: dict[str, ElicitationContentValue] | None = None


class CompleteElicitationNotification(Extensible, frozen=True):
    """`elicitation/complete`: the purpose of the page is fulfilled."""

    elicitation_id: str
