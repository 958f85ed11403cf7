"""Sub-agents: sessions that an agent reports as parts of another session, its children.

A child is announced in the session that made it, its parent, which may be a child itself. Its
updates come under its own id, and are `child` entries of the session that a client has opened.

reported by                          announced by        its state
-----------------------------------  ------------------  ------------------------------------------
ACP (unstable)                       subagent_update     its `state`: `running`, `idle` …
JetBrains AIR, and agents before     subagent_spawned    subagent_state_update: `running`,
there was a word for it                                  `completed`, `failed` …
opencode                             its notification    the same one, by `status`

Sources: ACP v1 schema with its unstable parts, `SubagentUpdate`, `StateUpdate`, `SessionMessage`;
for the others, what codex-acp, claude-agent-acp and opencode send.
"""

# See docs/decisions.md, 9.

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from acp_wire.schema import splice
from acphold.conversation.history.raw_update import (
    OPENCODE_CHILD,
    ROLES,
    encode_object,
    encode_text,
    members,
    string,
    update_kind,
)

MOST_CHILDREN: Final = 512
"""Most children of one session that are told apart while its agent runs."""

DEEPEST: Final = 8
"""Deepest nesting of children; a child of the session itself has depth 1."""

LONGEST_ID: Final = 512
"""Most characters of a child's id."""

Spelling = Literal["update", "spawned", "opencode"]
"""The row of the table."""

_ID_OF: Final = {
    "subagent_update": "sessionId",
    "subagent_spawned": "subagentSessionId",
    "subagent_state_update": "subagentSessionId",
}
"""The kinds that announce a child, or report its state, and the member that names it."""

_MESSAGE_ENDS: Final = ("senderSessionId", "recipientSessionId")
"""The members of a `session_message` that name sessions."""

SPEAKS_OF_CHILDREN: Final = frozenset({*_ID_OF, "session_message", "session_message_chunk"})
"""The kinds of updates that are about children."""

LASTING: Final = frozenset(
    {*ROLES, *SPEAKS_OF_CHILDREN, "tool_call", "tool_call_update", "compaction_update"}
)
"""Kinds of updates that leave something on a timeline, whatever follows. A child that was not
announced exists from the first of them on; updates that may become void do not create one."""

ENDED: Final = {
    "completed": "end_turn",
    "failed": "error",
    "disconnected": "error",
    "cancelled": "cancelled",
    "stopped": "cancelled",
    "interrupted": "cancelled",
}
"""The stop reason for each word that ends a child, in the two spellings that have such words."""

AT_WORK: Final = frozenset({"running", "requires_action", "paused", "created"})
"""The states in which more is expected of a child."""


class ChildChange(Struct, frozen=True):
    """The content of an announcement of a child; `changes` are values of fields of SubAgent."""

    child: str
    spelling: Spelling
    changes: Mapping[str, str | None]
    caller: str | None = None


def child_change(kind: str, parts: Mapping[str, bytes]) -> ChildChange | None:
    """Return the change of a child by an update of this kind; None if it is about none."""
    if kind not in _ID_OF or not (child := string(parts.get(_ID_OF[kind]))):
        return None
    if kind == "subagent_update":
        changes = _texts_by_name(parts, title="title", description="description")
        if (state := parts.get("state")) is not None:
            members_of_state = members(state)
            changes["status"] = string(members_of_state.get("state"))
            changes["stop_reason"] = string(members_of_state.get("stopReason"))
        return ChildChange(child, "update", changes, _caller(parts))
    changes = _texts_by_name(parts, title="name", description="task")
    word = "running" if kind == "subagent_spawned" else string(parts.get("state"))
    if word in ENDED:
        changes |= {"status": "idle", "stop_reason": ENDED[word]}
    else:
        changes |= {"status": word, "stop_reason": None}
    return ChildChange(child, "spawned", changes, _caller(parts))


def _texts_by_name(parts: Mapping[str, bytes], **names: str) -> dict[str, str | None]:
    """Return the texts that are present, null as None, by the names of our fields."""
    return {
        ours: string(value)
        for ours, theirs in names.items()
        if (value := parts.get(theirs)) is not None and value[:1] in b'"n'
    }


def _caller(parts: Mapping[str, bytes]) -> str | None:
    """Return the tool call that made the child, if the agent reports it.

    The protocol has no member for it; agents put one into their own part of `_meta`.
    """
    for value in members(parts.get("_meta", b"")).values():
        own = members(value)
        for name in ("parentToolCallId", "parentToolUseId", "toolCallId", "toolUseId"):
            if (caller := string(own.get(name))) is not None:
                return caller
    return None


# -- ids ------------------------------------------------------------------------------------


def child_of_update(kind: str, update: bytes) -> str:
    """Return the id of the child that an update announces, or reports on; "" for none."""
    return (string(members(update).get(_ID_OF[kind])) or "") if kind in _ID_OF else ""


def with_ids(kind: str, update: bytes, ids: Mapping[str, str]) -> bytes:
    """Return an update that names children, with their ids replaced; a session without a new id is
    not named."""
    if kind in _ID_OF:
        child = child_of_update(kind, update)
        new = ids.get(child, child)
        return update if new == child else splice(update, {_ID_OF[kind]: encode_text(new)})
    parts, changes = members(update), dict[str, bytes]()
    for name in _MESSAGE_ENDS:
        if (named := string(parts.get(name))) is not None and ids.get(named) != named:
            changes[name] = encode_text(ids[named]) if named in ids else b"null"
    return splice(update, changes) if changes else update


def within(session_id: str, kind: str, raw: bytes) -> bytes:
    """Return an entry of this session from a foreign file: each child's id is prefixed with the
    session's.

    So no imported file can speak in a session that it does not contain.
    """
    if kind == "update":
        return _update_within(session_id, raw) if b'"sub' in raw or b'"session_m' in raw else raw
    if kind != "child":
        return raw
    parts = members(raw)
    if is_opencodes(raw):
        params = parts.get("params", b"")
        ids = {
            name: given
            for name in ("childSessionId", "parentSessionId", "rootSessionId")
            if (given := string(members(params).get(name))) is not None
        }
        root = ids.get("rootSessionId")
        changes = {
            name: encode_text(session_id if given == root else _id_within(session_id, given))
            for name, given in ids.items()
        }
        return opencode_entry(splice(params, changes)) if members(params) else raw
    changes = {}
    if (child := string(parts.get("sessionId"))) is not None:
        changes["sessionId"] = encode_text(_id_within(session_id, child))
    if "update" in parts:
        changes["update"] = _update_within(session_id, parts["update"])
    return splice(raw, changes) if parts else raw


def _update_within(session_id: str, update: bytes) -> bytes:
    if (kind := update_kind(update)) not in SPEAKS_OF_CHILDREN:
        return update
    parts = members(update)
    named = {string(parts.get(name)) for name in (*_MESSAGE_ENDS, *_ID_OF.values())} - {None}
    ids = {given: _id_within(session_id, given) for given in named if given is not None}
    return with_ids(kind, update, ids)


def _id_within(session_id: str, given: str) -> str:
    is_within = given == session_id or given.startswith(f"{session_id}:")
    return given if is_within else f"{session_id}:{given}"


# -- entries --------------------------------------------------------------------------------


class ChildUpdate(Struct, frozen=True):
    """The content of a `child` entry: an update in the session `child`; "" for that of the root."""

    child: str
    update: bytes


def child_update(raw: bytes) -> ChildUpdate:
    """Return the content of a `child` entry; opencode's in the form of the others."""
    parts = members(raw)
    if not is_opencodes(raw):
        return ChildUpdate(string(parts.get("sessionId")) or "", parts.get("update", b""))
    params = members(parts.get("params", b""))
    child = string(params.get("childSessionId")) or ""
    if string(params.get("type")) == "update":
        return ChildUpdate(child, params.get("update", b""))
    parent = string(params.get("parentSessionId")) or ""
    lane = "" if parent == string(params.get("rootSessionId")) else parent
    update = {
        "sessionUpdate": b'"subagent_state_update"',
        "subagentSessionId": encode_text(child),
        "state": params.get("status", b"null"),
        "name": params.get("title", b"null"),
    }
    return ChildUpdate(lane, encode_object({n: v for n, v in update.items() if v != b"null"}))


def opencode_child(params: bytes) -> str:
    """Return the child that a notification of opencode's is about; "" for none."""
    return string(members(params).get("childSessionId")) or ""


def child_entry(child: str, update: bytes) -> bytes:
    """Return the raw of a `child` entry: this update, in that session."""
    return b'{"sessionId":%b,"update":%b}' % (encode_text(child), update)


def is_opencodes(raw: bytes) -> bool:
    """Return True if a `child` entry came as a notification of opencode's."""
    return _METHOD_FIRST.match(raw) is not None


_METHOD_FIRST: Final = re.compile(rb'\{\s*"method"')


def opencode_entry(params: bytes) -> bytes:
    """Return the raw of a `child` entry that came as a notification of opencode's."""
    return b'{"method":"%b","params":%b}' % (OPENCODE_CHILD.encode(), params)


def with_update(raw: bytes, update: bytes) -> bytes:
    """Return a `child` entry with another update in place of its own."""
    if not is_opencodes(raw):
        return splice(raw, {"update": update})
    params = members(raw).get("params", b"{}")
    return splice(raw, {"params": splice(params, {"update": update})})


# -- what is still open -----------------------------------------------------------------------


class OpenChild(Struct, frozen=True):
    """A child of which more is expected: it is at work, or has open tool calls or compactions.

    `parent` is the id of its parent, "" for the session itself; `depth` is 1 for a child of the
    session.
    """

    session_id: str
    parent: str = ""
    depth: int = 1
    spelling: Spelling = "update"
    is_at_work: bool = False
    open_tools: tuple[str, ...] = ()
    open_compactions: tuple[str, ...] = ()
