"""Comparing what was seen of a session with what is there after a restart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from acphold.journal.fold import SessionState
from acphold.journal.settings import FINAL_STATUSES
from acphold.journal.timeline import Item, Message, ToolCall


def lost(seen: SessionState, replayed: SessionState) -> list[str]:
    """What was seen and is not back as it was, named; empty when all is.

    The message that was cut off may be longer in the replay: what is in the journal need not
    have arrived yet. The status of a tool call that was open may have changed.
    """
    last = len(seen.timeline) - 1
    back = [*replayed.timeline, *[None] * len(seen.timeline)]
    gone = [
        _named(item)
        for place, item in enumerate(seen.timeline)
        if not _is_back(item, back[place], cut_off=place == last)
    ]
    return gone if _value(seen.plan) == _value(replayed.plan) else [*gone, "the plan"]


def left_open(seen: SessionState, replayed: SessionState) -> list[str]:
    """Tool calls that were open when they were last seen, and are not marked failed now."""
    failed = {
        item.tool_call_id
        for item in replayed.timeline
        if isinstance(item, ToolCall) and item.status == "failed"
    }
    return [tool for tool in open_tools(seen.timeline) if tool not in failed]


def open_tools(timeline: Sequence[Item]) -> list[str]:
    """The ids of the tool calls that have not come to an end."""
    return [
        item.tool_call_id
        for item in timeline
        if isinstance(item, ToolCall) and item.status not in FINAL_STATUSES
    ]


def last_said(state: SessionState) -> str:
    """The end of the last message of the agent."""
    said = [item.text for item in state.timeline if isinstance(item, Message)]
    return said[-1] if said else ""


def _is_back(item: Item, other: Item | None, *, cut_off: bool) -> bool:
    if isinstance(item, Message) and isinstance(other, Message):
        same = other.text.startswith(item.text) if cut_off else other.text == item.text
        return item.role == other.role and same
    if isinstance(item, ToolCall) and isinstance(other, ToolCall):
        names = {*item.fields} - ({"status"} if open_tools([item]) else set())
        same = all(_value(item.fields[name]) == _value(other.fields.get(name)) for name in names)
        return item.tool_call_id == other.tool_call_id and same
    return False


def _named(item: Item) -> str:
    if isinstance(item, ToolCall):
        return f"tool call {item.title!r}"
    return f"{item.role}: {item.text}"


def _value(raw: bytes | None) -> object:
    return None if raw is None else msgspec.json.decode(raw)
