"""Tool calls: the agent's actions, their progress, and permission for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET

from acphold.schema.content import ContentBlock
from acphold.schema.shapes import (
    Extensible,
    GoodItems,
    OrDefault,
    Otherwise,
    Shape,
    UInt32,
    UnknownVariant,
)

ToolKind: TypeAlias = Literal[
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
]
ToolCallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class Content(Extensible, frozen=True, tag="content", tag_field="type"):
    """A content block a tool produced."""

    content: ContentBlock


class Diff(Extensible, frozen=True, tag="diff", tag_field="type"):
    """A file that was changed; `path` is absolute, no `old_text` means a new file."""

    path: str
    new_text: str
    old_text: OrDefault[str | None] = None


class Terminal(Extensible, frozen=True, tag="terminal", tag_field="type"):
    """A terminal made with `terminal/create`, shown live."""

    terminal_id: str


class UnknownToolContent(UnknownVariant):
    """Tool content of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    ToolCallContent: TypeAlias = Content | Diff | Terminal | UnknownToolContent
else:
    ToolCallContent = Annotated[Content | Diff | Terminal, Otherwise(unknown=UnknownToolContent)]


class ToolCallLocation(Extensible, frozen=True):
    """A file a tool works on; `path` is absolute, `line` counts from 1."""

    path: str
    line: OrDefault[UInt32 | None] = None


class ToolCallStart(Extensible, frozen=True, tag="tool_call", tag_field="sessionUpdate"):
    """The start of a tool call; `raw_input` and `raw_output` are any JSON, UNSET when not sent."""

    tool_call_id: str
    title: str
    name: OrDefault[str | None] = None
    kind: OrDefault[ToolKind] = "other"
    status: OrDefault[ToolCallStatus] = "pending"
    content: GoodItems[tuple[ToolCallContent, ...]] = ()
    locations: GoodItems[tuple[ToolCallLocation, ...]] = ()
    raw_input: OrDefault[object] = UNSET
    raw_output: OrDefault[object] = UNSET


class ToolCallChanges(Extensible, frozen=True):
    """The fields that may change in a tool call.

    A present field replaces the old value, collections included; None and UNSET leave it unchanged.
    `ToolCallUpdate` publishes the changes, `ToolCallPatch` carries them in a permission request.
    """

    tool_call_id: str
    title: OrDefault[str | None] = None
    name: OrDefault[str | None] = None
    kind: OrDefault[ToolKind | None] = None
    status: OrDefault[ToolCallStatus | None] = None
    content: GoodItems[tuple[ToolCallContent, ...] | None] = None
    locations: GoodItems[tuple[ToolCallLocation, ...] | None] = None
    raw_input: OrDefault[object] = UNSET
    raw_output: OrDefault[object] = UNSET


class ToolCallUpdate(
    ToolCallChanges, frozen=True, tag="tool_call_update", tag_field="sessionUpdate"
):
    """Changes of a tool call, as a session update."""


class ToolCallPatch(ToolCallChanges, frozen=True):
    """Changes of a tool call, as part of `session/request_permission`."""


PermissionOptionKind: TypeAlias = Literal[
    "allow_once", "allow_always", "reject_once", "reject_always"
]


class PermissionOption(Extensible, frozen=True):
    """An answer to choose; `name` is its label for the user."""

    option_id: str
    name: str
    kind: PermissionOptionKind


class RequestPermissionRequest(Extensible, frozen=True):
    """`session/request_permission`: ask the user to allow a tool call."""

    session_id: str
    tool_call: ToolCallPatch
    options: tuple[PermissionOption, ...]


class CancelledPermissionOutcome(Shape, frozen=True, tag="cancelled", tag_field="outcome"):
    """The turn was cancelled before the user chose."""


class SelectedPermissionOutcome(Extensible, frozen=True, tag="selected", tag_field="outcome"):
    """The user chose."""

    option_id: str


# No catch-all: an unreadable answer permits nothing.
RequestPermissionOutcome: TypeAlias = CancelledPermissionOutcome | SelectedPermissionOutcome


class RequestPermissionResponse(Extensible, frozen=True):
    """The user's decision."""

    outcome: RequestPermissionOutcome
