"""Kinds of updates, by the effect that they have on a session: see `acp_wire.schema.updates`."""

from __future__ import annotations

from typing import Final

from msgspec import MsgspecError, json

from acp_wire.schema.updates import UPDATE_KINDS, UpdateForm, has_capability

TOOL_KINDS: Final = ("tool_call", "tool_call_update")
"""The kinds for tool calls."""

CHILD: Final = "subagent_update"
"""The kind that announces a sub-agent: a client without it gets nothing of the sub-agent."""

OPENCODE_CHILD: Final = "opencode/session/child_update"
"""opencode's notification about sub-agents.

It is no `session/update`, and has a capability key of its own.
"""

_OPENCODE_CHILDREN: Final = ("_meta", "opencode/child-session-updates")


def is_for_the_moment(name: str) -> bool:
    """Return True if this kind is for connected clients only, and not part of history."""
    kind = UPDATE_KINDS.get(name)
    return kind is not None and kind.form is UpdateForm.MOMENT


OFFERS: Final = frozenset(
    {place for kind in UPDATE_KINDS.values() for place in kind.needs} | {_OPENCODE_CHILDREN}
)
"""The places in `clientCapabilities` where a client offers to show kinds of updates."""


def kinds_about(*subjects: str) -> frozenset[str]:
    """Return the names of the kinds about one of these subjects."""
    return frozenset(kind.name for kind in UPDATE_KINDS.values() if kind.subject in subjects)


ATTRIBUTE_KINDS: Final = kinds_about("choices", "commands", "cost", "title")
"""Kinds about the state of a session, whenever they come; all others belong to a turn."""


def kinds_to_withhold(capabilities: bytes) -> frozenset[str]:
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
        name for name, places in needs.items() if not any(has_capability(can, *it) for it in places)
    )
