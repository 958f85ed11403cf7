"""The tool calls of a session, as its updates and its permission requests describe them.

A permission request describes its call as an update does, and some agents mention a call in no
other way before it was allowed (ACP v1 schema, `RequestPermissionRequest`). Clients take it that
way. New fields are published as an update before the question, so that clients that are not asked,
and a replay, have them, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from acphold.history import ToolCall
from acphold.history.fold import Fold
from acphold.history.raw_update import UNREADABLE, encode_object, encode_text, string
from acphold.history.timeline import FINAL_STATUSES, with_those_inside
from acphold.hub.session import HubSession


async def calls_since(session: HubSession, since: int) -> dict[str, ToolCall]:
    """Return the tool calls by their ids, as described by updates behind `since`.

    That includes updates that are held back. Raises JournalError.
    """
    folding = Fold()
    held = session.held_updates()
    async for segment in session.segments(since):
        if b'"toolCallId"' in segment.raw:
            for entry in segment.entries():
                folding.add(entry)
    for entry in held:
        folding.add(entry)
    return {
        item.tool_call_id: item
        for item in with_those_inside(folding.state().timeline)
        if isinstance(item, ToolCall)
    }


async def added_by_request(session: HubSession, asked: Mapping[str, bytes], since: int) -> bytes:
    """Return an update with what a permission request adds to its call, `asked`; b"" for nothing.

    Updates of the call lie behind `since`. Raises JournalError.
    """
    if not (id_ := string(asked.get("toolCallId"))):
        return b""
    known, is_open = (await calls_since(session, since)).get(id_), False
    if known is None:
        summary = await session.summary()
        inside = (id_ in child.open_tools for child in summary.open_children)
        is_open = id_ in summary.open_tools or any(inside)
    return said_anew(asked, known, is_open=is_open)


def said_anew(asked: Mapping[str, bytes], known: ToolCall | None, *, is_open: bool) -> bytes:
    """Return an update with what a request adds to its call, `asked`; b"" for nothing.

    `known` is the call as updates of this turn describe it. `is_open` says that it was reported
    earlier.
    """
    id_ = string(asked.get("toolCallId"))
    fields = {
        name: value
        for name, value in asked.items()
        if name not in ("sessionUpdate", "toolCallId") and value != b"null"
    }
    kind = "tool_call_update"
    if known is not None:
        fields = {} if known.status in FINAL_STATUSES else _others(fields, known)
    elif is_open:
        fields.pop("status", None)
    elif string(fields.get("title")) is not None:
        kind = "tool_call"
    else:
        return b""  # a call that no client has seen, without anything to show
    if not id_ or not fields:
        return b""
    head = {"sessionUpdate": encode_text(kind), "toolCallId": encode_text(id_)}
    return encode_object({**head, **fields})


def _others(fields: Mapping[str, bytes], known: ToolCall) -> dict[str, bytes]:
    """Return the fields that differ from what is known, but not the status, which is the question's
    own while it is open, nor `_meta`."""
    return {
        name: value
        for name, value in fields.items()
        if name not in ("status", "_meta") and not _is_same(value, known.fields.get(name))
    }


def _is_same(value: bytes, known: bytes | None) -> bool:
    """Return True if two JSON values are equal, however they are written."""
    if known is None:
        return False
    try:
        return value == known or bool(msgspec.json.decode(value) == msgspec.json.decode(known))
    except UNREADABLE:
        return False
