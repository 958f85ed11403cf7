"""The table of update kinds: the effect of each on a session, and the clients that may get it.

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
from typing import Final, Literal

from msgspec import MsgspecError, Struct, json


class UpdateForm(Enum):
    """The form of an update; see the module."""

    PIECE = "piece"
    PATCH = "patch"
    SNAPSHOT = "snapshot"
    EVENT = "event"
    MOMENT = "moment"


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

TOOL_KINDS: Final = ("tool_call", "tool_call_update")
"""The kinds for tool calls."""

CHILD: Final = "subagent_update"
"""The kind that announces a sub-agent: a client without it gets nothing of the sub-agent."""

OPENCODE_CHILD: Final = "opencode/session/child_update"
"""opencode's notification about sub-agents.

It is no `session/update`, and has a capability key of its own.
"""

_OPENCODE_CHILDREN: Final = ("_meta", "opencode/child-session-updates")

UPDATE_KINDS: Final[Mapping[str, UpdateKind]] = {
    kind.name: kind
    for kind in (
        UpdateKind("user_message_chunk", UpdateForm.PIECE, of="messageId", field="content"),
        UpdateKind("agent_message_chunk", UpdateForm.PIECE, of="messageId", field="content"),
        UpdateKind("agent_thought_chunk", UpdateForm.PIECE, of="messageId", field="content"),
        UpdateKind("tool_call", UpdateForm.PATCH, of="toolCallId"),
        UpdateKind("tool_call_update", UpdateForm.PATCH, of="toolCallId"),
        UpdateKind("plan", UpdateForm.SNAPSHOT, field="entries"),
        UpdateKind("plan_update", UpdateForm.SNAPSHOT, field="plan", needs=_PLAN),
        UpdateKind("plan_removed", UpdateForm.EVENT, of="planId", needs=_PLAN),
        UpdateKind(
            "available_commands_update", UpdateForm.SNAPSHOT, "commands", field="availableCommands"
        ),
        UpdateKind("current_mode_update", UpdateForm.EVENT, "choices", field="currentModeId"),
        UpdateKind("config_option_update", UpdateForm.SNAPSHOT, "choices", field="configOptions"),
        UpdateKind("session_info_update", UpdateForm.PATCH, "title"),
        UpdateKind("usage_update", UpdateForm.SNAPSHOT, "cost"),
        UpdateKind("notice", UpdateForm.MOMENT, needs=_NOTICES),
        UpdateKind("compaction_update", UpdateForm.PATCH, of="compactionId", needs=_COMPACTION),
        UpdateKind(
            "compaction_summary_chunk",
            UpdateForm.PIECE,
            of="compactionId",
            field="content",
            needs=_COMPACTION,
        ),
        UpdateKind(CHILD, UpdateForm.EVENT, of="sessionId", needs=_CHILDREN),
        UpdateKind("subagent_spawned", UpdateForm.EVENT, of="subagentSessionId", needs=_CHILDREN),
        UpdateKind(
            "subagent_state_update", UpdateForm.EVENT, of="subagentSessionId", needs=_CHILDREN
        ),
        UpdateKind(
            "session_message", UpdateForm.EVENT, of="messageId", field="content", needs=_CHILDREN
        ),
        UpdateKind(
            "session_message_chunk",
            UpdateForm.EVENT,
            of="messageId",
            field="content",
            needs=_CHILDREN,
        ),
    )
}
"""Every known kind, by its name."""


def is_for_the_moment(name: str) -> bool:
    """Return True if this kind is for connected clients only, and not part of history."""
    kind = UPDATE_KINDS.get(name)
    return kind is not None and kind.form is UpdateForm.MOMENT


def kinds_about(*subjects: Subject) -> frozenset[str]:
    """Return the names of the kinds about one of these subjects."""
    return frozenset(kind.name for kind in UPDATE_KINDS.values() if kind.subject in subjects)


ATTRIBUTE_KINDS: Final = kinds_about("choices", "commands", "cost", "title")
"""Kinds about the state of a session, whenever they come; all others belong to a turn."""


def offered(capabilities: object, *path: str) -> bool:
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


def withheld(capabilities: bytes) -> frozenset[str]:
    """Return the kinds that a client with these `clientCapabilities` (JSON) has not offered to
    show.

    They may include OPENCODE_CHILD, the one notification that has to be offered.
    """
    try:
        can = json.decode(capabilities)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        can = None  # unreadable ones offer nothing
    needs = {kind.name: kind.needs for kind in UPDATE_KINDS.values() if kind.needs}
    needs[OPENCODE_CHILD] = (_OPENCODE_CHILDREN,)
    return frozenset(
        name for name, places in needs.items() if not any(offered(can, *it) for it in places)
    )
