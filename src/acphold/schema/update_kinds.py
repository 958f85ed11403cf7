"""The table of update kinds: what each does to a session, and which clients may be told it.

Whoever folds, copies, joins, replays or shows updates asks this table, so that a kind is the same
everywhere. A kind that is not in it is passed on to everybody as it came, and changes nothing.

    form      an update of this kind                      what stays of many, once a turn is over
    --------  ------------------------------------------  ----------------------------------------
    PIECE     goes on with the thing that `of` names      pieces in a row are one
    PATCH     makes or changes the thing that `of` names  one for each thing
    SNAPSHOT  says the whole of something anew            the last one
    EVENT     says what happened then                     each
    MOMENT    is for who is there now                     none

Source: ACP v1 schema with its unstable parts, `SessionUpdate` and `ClientCapabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal

from msgspec import MsgspecError, Struct, json


class Form(Enum):
    """See the module."""

    PIECE = "piece"
    PATCH = "patch"
    SNAPSHOT = "snapshot"
    EVENT = "event"
    MOMENT = "moment"


Subject = Literal["conversation", "choices", "commands", "cost", "title"]
"""What an update is about: what was said and done, or how the session stands. `choices` are modes
and options, which the person sets; `commands` are what one agent offers."""


class UpdateKind(Struct, frozen=True):
    """A kind of update. `of` is the member that names the thing it adds to or changes, `field` the
    member that has what it says; `needs` the places in `clientCapabilities` at one of which a
    client offers to show it: no other client may be told it."""

    name: str
    form: Form
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
"""Where a client says that it shows sub-agents as sessions of their own: the RFD's place, that of
JetBrains AIR, and one that SDKs do not strip."""

CHILD: Final = "subagent_update"
"""The kind that announces a sub-agent: who is not told of this is told nothing that is said in one.
"""

OPENCODE_CHILD: Final = "opencode/session/child_update"
"""The notification by which opencode tells of sub-agents; it is no `session/update`, and offered by
a key of its own."""

_OPENCODE_CHILDREN: Final = ("_meta", "opencode/child-session-updates")

UPDATE_KINDS: Final[Mapping[str, UpdateKind]] = {
    kind.name: kind
    for kind in (
        UpdateKind("user_message_chunk", Form.PIECE, of="messageId", field="content"),
        UpdateKind("agent_message_chunk", Form.PIECE, of="messageId", field="content"),
        UpdateKind("agent_thought_chunk", Form.PIECE, of="messageId", field="content"),
        UpdateKind("tool_call", Form.PATCH, of="toolCallId"),
        UpdateKind("tool_call_update", Form.PATCH, of="toolCallId"),
        UpdateKind("plan", Form.SNAPSHOT, field="entries"),
        UpdateKind("plan_update", Form.SNAPSHOT, field="plan", needs=_PLAN),
        UpdateKind("plan_removed", Form.EVENT, of="planId", needs=_PLAN),
        UpdateKind(
            "available_commands_update", Form.SNAPSHOT, "commands", field="availableCommands"
        ),
        UpdateKind("current_mode_update", Form.EVENT, "choices", field="currentModeId"),
        UpdateKind("config_option_update", Form.SNAPSHOT, "choices", field="configOptions"),
        UpdateKind("session_info_update", Form.PATCH, "title"),
        UpdateKind("usage_update", Form.SNAPSHOT, "cost"),
        UpdateKind("notice", Form.MOMENT, needs=_NOTICES),
        UpdateKind("compaction_update", Form.PATCH, of="compactionId", needs=_COMPACTION),
        UpdateKind(
            "compaction_summary_chunk",
            Form.PIECE,
            of="compactionId",
            field="content",
            needs=_COMPACTION,
        ),
        UpdateKind(CHILD, Form.EVENT, of="sessionId", needs=_CHILDREN),
        UpdateKind("subagent_spawned", Form.EVENT, of="subagentSessionId", needs=_CHILDREN),
        UpdateKind("subagent_state_update", Form.EVENT, of="subagentSessionId", needs=_CHILDREN),
        UpdateKind("session_message", Form.EVENT, of="messageId", field="content", needs=_CHILDREN),
        UpdateKind(
            "session_message_chunk", Form.EVENT, of="messageId", field="content", needs=_CHILDREN
        ),
    )
}
"""Every kind that is known, by its name."""


def is_for_the_moment(name: str) -> bool:
    """Whether updates of this kind are for who is there now, and no part of the history."""
    kind = UPDATE_KINDS.get(name)
    return kind is not None and kind.form is Form.MOMENT


def kinds_about(*subjects: Subject) -> frozenset[str]:
    """The names of the kinds that are about one of these."""
    return frozenset(kind.name for kind in UPDATE_KINDS.values() if kind.subject in subjects)


ATTRIBUTE_KINDS: Final = kinds_about("choices", "commands", "cost", "title")
"""Kinds that say how a session stands, whenever they come; all others belong to a turn."""


def offered(capabilities: object, *path: str) -> bool:
    """Whether capabilities have something at `path`, which may go through an array of names:
    neither absent, null nor false."""
    found = capabilities
    for name in path:
        if isinstance(found, list):
            found = True if name in found else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found is not None and found is not False


def withheld(capabilities: bytes) -> frozenset[str]:
    """The kinds that a client with these `clientCapabilities`, as JSON, has not offered to show;
    among them OPENCODE_CHILD, the one notification that has to be offered."""
    try:
        can = json.decode(capabilities)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        can = None  # what cannot be read offers nothing
    needs = {kind.name: kind.needs for kind in UPDATE_KINDS.values() if kind.needs}
    needs[OPENCODE_CHILD] = (_OPENCODE_CHILDREN,)
    return frozenset(
        name for name, places in needs.items() if not any(offered(can, *it) for it in places)
    )
