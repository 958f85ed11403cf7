"""The tool calls of a session, as its updates and its permission requests describe them.

A permission request describes its call as an update does, and some agents mention a call in no
other way before it was allowed (ACP v1 schema, `RequestPermissionRequest`). Clients take it that
way. New fields are published as an update before the question, so that clients that are not asked,
and a replay, have them, too.

Tool calls, compactions and sub-agents get an end from us if their own will never be reported: their
agent has ended, was cancelled, or was not allowed to go on. Without it, clients would show them as
running for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acphold.conversation.history.children import OpenChild, child_entry, opencode_entry
from acphold.conversation.history.entries import CHILD, UPDATE
from acphold.conversation.history.fold import Fold
from acphold.conversation.history.raw_update import (
    encode_object,
    encode_text,
    is_same_json,
    members,
    string,
    update_kind,
)
from acphold.conversation.history.timeline import FINAL_STATUSES, ToolCall, with_those_inside
from acphold.live.hub import bounds
from acphold.live.hub.annotations import end_child, end_compaction, fail_tool
from acphold.live.hub.session import HubSession


async def calls_since(session: HubSession, since: int) -> dict[str, ToolCall]:
    """Return the tool calls by their ids, as described by updates after `since`.

    That includes updates that are held back. Raises JournalError.
    """
    calls, _ = await _read_calls(session, since)
    return calls


async def _read_calls(session: HubSession, since: int) -> tuple[dict[str, ToolCall], set[str]]:
    """Return the calls as in `calls_since`, and the ids of those that have begun after `since`."""
    folding = Fold()
    begun = set()
    held = session.updates_held_back()
    async for segment in session.segments(since):
        if b'"toolCallId"' in segment.raw:
            for entry in segment.entries():
                folding.add(entry)
                if entry.kind == UPDATE and update_kind(entry.raw) == "tool_call":
                    begun.add(string(members(entry.raw).get("toolCallId")) or "")
    for entry in held:
        folding.add(entry)
    calls = {
        item.tool_call_id: item
        for item in with_those_inside(folding.state().timeline)
        if isinstance(item, ToolCall)
    }
    return calls, begun


async def read_additions(session: HubSession, asked: Mapping[str, bytes], since: int) -> bytes:
    """Return an update with what a permission request adds to its call, `asked`; b"" for nothing.

    Updates of the call lie after `since`. Raises JournalError.
    """
    if not (id_ := string(asked.get("toolCallId"))):
        return b""
    known, is_open = (await calls_since(session, since)).get(id_), False
    if known is None:
        summary = await session.summary()
        inside = (id_ in child.open_tools for child in summary.open_children)
        is_open = id_ in summary.open_tools or any(inside)
    return additions(asked, known, is_open=is_open)


def additions(asked: Mapping[str, bytes], known: ToolCall | None, *, is_open: bool) -> bytes:
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
    if known is not None and known.status in FINAL_STATUSES:
        fields = {}
    elif known is not None:  # what differs; the status is the question's own while it is open
        fields = {
            name: value
            for name, value in fields.items()
            if name not in ("status", "_meta") and not is_same_json(value, known.fields.get(name))
        }
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


async def close_open(
    session: HubSession, why: str, since: int = 0, *, cancelled: bool = False
) -> None:
    """Publish an end, with the reason, for everything that is open.

    That is: tool calls, with what updates after `since` said of them; compactions; and
    sub-agents with such things of their own. Raises JournalError.
    """
    summary = await session.summary()
    opened, calls = summary.open_tools, dict[str, ToolCall]()
    back = bounds.CALLS_LOOKED_BACK
    while opened:  # most have begun a moment ago: look at the end first, and then at more
        begin = max(since, session.last_seq - back)
        calls, begun = await _read_calls(session, begin)
        if begin == since or begun >= {*opened}:
            break
        back *= 8
    tools = [calls.get(id_, ToolCall(id_, {})) for id_ in opened]
    await close_children(session, why, summary.open_children, cancelled=cancelled)
    closing = [
        *(fail_tool(tool, why) for tool in tools),
        *(end_compaction(id_, why, cancelled=cancelled) for id_ in summary.open_compactions),
    ]
    if closing:
        await session.publish("update", closing)


async def close_refused(session: HubSession, refused: Mapping[tuple[str, str], str]) -> None:
    """Publish the end of calls that were not allowed, if their agent has not reported it.

    `refused` maps (sub-agent, tool call id) to the reason. Raises JournalError.
    """
    summary = await session.summary()
    opened = {("", id_) for id_ in summary.open_tools}
    for child in summary.open_children:
        opened |= {(child.session_id, id_) for id_ in child.open_tools}
    for (child_id, id_), why in refused.items():
        if (child_id, id_) in opened:
            await _publish(session, child_id, [fail_tool(ToolCall(id_, {}), why)])


async def close_children(
    session: HubSession, why: str, open_children: Sequence[OpenChild], *, cancelled: bool = False
) -> None:
    """Publish the end of sub-agents, innermost first, and of what is open in them.

    Raises JournalError.
    """
    for child in sorted(open_children, key=lambda child: -child.depth):
        inside = [
            *(fail_tool(ToolCall(id_, {}), why) for id_ in child.open_tools),
            *(end_compaction(it, why, cancelled=cancelled) for it in child.open_compactions),
        ]
        if inside:
            await _publish(session, child.session_id, inside)
        if not child.is_at_work:
            continue
        ended = end_child(child, session.id, why, cancelled=cancelled)
        if child.spelling == "opencode":
            await session.publish(CHILD, [opencode_entry(ended)])
        else:
            await _publish(session, child.parent, [ended])


async def _publish(session: HubSession, child: str, updates: Sequence[bytes]) -> None:
    """Publish updates of a sub-agent, "" for the agent itself."""
    if child:
        await session.publish(CHILD, [child_entry(child, update) for update in updates])
    else:
        await session.publish("update", updates)
