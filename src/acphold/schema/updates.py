"""Session updates: all reports of an agent on a session, in turns and between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from acphold.schema.configuration import SessionConfigOption
from acphold.schema.content import ContentBlock
from acphold.schema.shapes import (
    Extensible,
    GoodItems,
    KnownValues,
    OrDefault,
    Otherwise,
    UInt64,
    UnknownVariant,
)
from acphold.schema.tool_calls import ToolCallStart, ToolCallUpdate


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
