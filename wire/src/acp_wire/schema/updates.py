"""Session updates: their types, tool calls among them, and each kind's effect on a session.

All code that folds, copies, joins, replays or shows updates uses this table, so that a kind is the
same everywhere. An unknown kind is passed on to every client unchanged, and changes nothing.

    form      an update of this kind                      kept of many, once a turn is over
    --------  ------------------------------------------  ----------------------------------------
    PIECE     continues the thing that `of` names         pieces in a row are one
    PATCH     makes or changes the thing that `of` names  one for each thing
    SNAPSHOT  repeats the whole of something              the last one
    EVENT     reports what happened then                  each
    MOMENT    is for connected clients only               none

Source: ACP v1 schema with its unstable parts, `SessionUpdate` and `ClientCapabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, Struct, UnsetType

from acp_wire.schema.content import ContentBlock
from acp_wire.schema.session_requests import SessionConfigOption
from acp_wire.schema.shapes import (
    Extensible,
    GoodItems,
    KnownValues,
    OrDefault,
    Otherwise,
    Shape,
    UInt32,
    UInt64,
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


class ContentChunk(Extensible, frozen=True):
    """A piece of a message; pieces with one `message_id` make one message."""

    content: ContentBlock
    message_id: OrDefault[str | None] = None


class UserMessageChunk(
    ContentChunk, frozen=True, tag="user_message_chunk", tag_field="sessionUpdate"
):
    """A piece of a user's message, in a replay."""


class AgentMessageChunk(
    ContentChunk, frozen=True, tag="agent_message_chunk", tag_field="sessionUpdate"
):
    """A piece of an agent's message."""


class AgentThoughtChunk(
    ContentChunk, frozen=True, tag="agent_thought_chunk", tag_field="sessionUpdate"
):
    """A piece of an agent's thought."""


PlanEntryPriority: TypeAlias = Literal["high", "medium", "low"]
PlanEntryStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


class PlanEntry(Extensible, frozen=True):
    """One step the agent plans.

    `priority` is "high", "medium" or "low"; `status` is "pending", "in_progress" or "completed".
    """

    content: str
    priority: PlanEntryPriority
    status: PlanEntryStatus

    PRIORITIES: ClassVar = get_args(PlanEntryPriority)
    STATUSES: ClassVar = get_args(PlanEntryStatus)


class Plan(Extensible, frozen=True, tag="plan", tag_field="sessionUpdate"):
    """The whole plan; it replaces the one before."""

    entries: GoodItems[tuple[PlanEntry, ...]]


class UnstructuredCommandInput(Extensible, frozen=True):
    """All text after the command's name; `hint` is shown before it is typed."""

    hint: str


AvailableCommandInput: TypeAlias = UnstructuredCommandInput


class AvailableCommand(Extensible, frozen=True):
    """A slash command, named without its slash."""

    name: str
    description: str
    input: OrDefault[AvailableCommandInput | None] = None


class AvailableCommandsUpdate(
    Extensible, frozen=True, tag="available_commands_update", tag_field="sessionUpdate"
):
    """All commands available now."""

    available_commands: GoodItems[tuple[AvailableCommand, ...]]


class CurrentModeUpdate(
    Extensible, frozen=True, tag="current_mode_update", tag_field="sessionUpdate"
):
    """The session has switched to another mode."""

    current_mode_id: str


class ConfigOptionUpdate(
    Extensible, frozen=True, tag="config_option_update", tag_field="sessionUpdate"
):
    """All config options, with their current values."""

    config_options: GoodItems[tuple[SessionConfigOption, ...]]


class SessionInfoUpdate(
    Extensible, frozen=True, tag="session_info_update", tag_field="sessionUpdate"
):
    """Changed facts for lists of sessions; UNSET leaves a field, None clears it."""

    title: OrDefault[str | UnsetType | None] = UNSET
    updated_at: OrDefault[str | UnsetType | None] = UNSET


class Cost(Extensible, frozen=True):
    """The cost of the session; `currency` is an ISO 4217 code."""

    amount: float
    currency: str


class UsageUpdate(Extensible, frozen=True, tag="usage_update", tag_field="sessionUpdate"):
    """Tokens in the model's context now, and its capacity."""

    used: UInt64
    size: UInt64
    cost: OrDefault[Cost | None] = None


NoticeSeverity: TypeAlias = Annotated[str, KnownValues(("info", "warning", "error"))]
"""The severity of a notice; others may be added."""


class Notice(Extensible, frozen=True, tag="notice", tag_field="sessionUpdate"):
    """A message to show a person now, not part of the conversation."""

    severity: NoticeSeverity
    title: Annotated[str, Meta(min_length=1)]
    description: OrDefault[str | None] = None


CompactionStatus: TypeAlias = Annotated[
    str, KnownValues(("in_progress", "completed", "failed", "cancelled"))
]
"""The progress of a compaction; others may be added."""


class CompactionUpdate(Extensible, frozen=True, tag="compaction_update", tag_field="sessionUpdate"):
    """The agent shortens its context; UNSET leaves a field, None clears it."""

    compaction_id: str
    status: CompactionStatus
    summary: GoodItems[tuple[ContentBlock, ...] | UnsetType | None] = UNSET
    error: OrDefault[str | UnsetType | None] = UNSET


class CompactionSummaryChunk(
    Extensible, frozen=True, tag="compaction_summary_chunk", tag_field="sessionUpdate"
):
    """A piece of a compaction's summary."""

    compaction_id: str
    content: ContentBlock


class UnknownUpdate(UnknownVariant):
    """A `sessionUpdate` newer than this release, byte for byte."""


KnownUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallUpdate
    | Plan
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
)
if TYPE_CHECKING:
    Update: TypeAlias = KnownUpdate | UnknownUpdate
else:
    Update = Annotated[KnownUpdate, Otherwise(unknown=UnknownUpdate)]


class SessionNotification(Extensible, frozen=True):
    """`session/update`: one update of one session."""

    session_id: str
    update: Update


class UpdateForm(Enum):
    """The form of an update; see the module."""

    PIECE = "piece"
    PATCH = "patch"
    SNAPSHOT = "snapshot"
    EVENT = "event"
    MOMENT = "moment"


PIECE, PATCH, SNAPSHOT, EVENT, MOMENT = UpdateForm

Subject = Literal["conversation", "choices", "commands", "cost", "title"]
"""The subject of an update: the conversation, or the state of the session.

`choices` are modes and options, which the person sets; `commands` are those of one agent.
"""


class UpdateKind(Struct, frozen=True):
    """A kind of update.

    `of` is the member that names the thing it adds to or changes, `field` the member with its
    content; `needs` the places in `clientCapabilities`, one of which a client must set to get this
    kind.
    """

    name: str
    form: UpdateForm
    subject: Subject = "conversation"
    of: str = ""
    field: str = ""
    needs: tuple[tuple[str, ...], ...] = ()


_NOTICES: Final = (("session", "notices"),)
_COMPACTION: Final = (("session", "compaction"),)
_PLAN: Final = (("plan",),)
_CHILDREN: Final = (
    ("subagents",),
    ("_meta", "jetbrains", "air", "capabilities", "nativeSubagentSessions"),
    ("_meta", "subagents"),
)
"""Places where a client declares that it shows sub-agents as sessions of their own.

They are the RFD's, that of JetBrains AIR, and one that SDKs do not strip.
"""

UPDATE_KINDS: Final[Mapping[str, UpdateKind]] = {
    kind.name: kind
    for kind in (
        UpdateKind("user_message_chunk", PIECE, of="messageId", field="content"),
        UpdateKind("agent_message_chunk", PIECE, of="messageId", field="content"),
        UpdateKind("agent_thought_chunk", PIECE, of="messageId", field="content"),
        UpdateKind("tool_call", PATCH, of="toolCallId"),
        UpdateKind("tool_call_update", PATCH, of="toolCallId"),
        UpdateKind("plan", SNAPSHOT, field="entries"),
        UpdateKind("plan_update", SNAPSHOT, field="plan", needs=_PLAN),
        UpdateKind("plan_removed", EVENT, of="planId", needs=_PLAN),
        UpdateKind("available_commands_update", SNAPSHOT, "commands", field="availableCommands"),
        UpdateKind("current_mode_update", EVENT, "choices", field="currentModeId"),
        UpdateKind("config_option_update", SNAPSHOT, "choices", field="configOptions"),
        UpdateKind("session_info_update", PATCH, "title"),
        UpdateKind("usage_update", SNAPSHOT, "cost"),
        UpdateKind("notice", MOMENT, needs=_NOTICES),
        UpdateKind("compaction_update", PATCH, of="compactionId", needs=_COMPACTION),
        UpdateKind(
            "compaction_summary_chunk", PIECE, of="compactionId", field="content", needs=_COMPACTION
        ),
        UpdateKind("subagent_update", EVENT, of="sessionId", needs=_CHILDREN),
        UpdateKind("subagent_spawned", EVENT, of="subagentSessionId", needs=_CHILDREN),
        UpdateKind("subagent_state_update", EVENT, of="subagentSessionId", needs=_CHILDREN),
        UpdateKind("session_message", EVENT, of="messageId", field="content", needs=_CHILDREN),
        UpdateKind(
            "session_message_chunk", EVENT, of="messageId", field="content", needs=_CHILDREN
        ),
    )
}
"""Every known kind, by its name."""


def has_capability(capabilities: object, *path: str) -> bool:
    """Return True if capabilities have something at `path`: neither absent, null nor false.

    The path may go through an array of names.
    """
    found = capabilities
    for name in path:
        if isinstance(found, list):
            found = True if name in found else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found is not None and found is not False
