"""Ends for tool calls, compactions and sub-agents whose own end will never be reported.

Their agent has ended, was cancelled, or was not allowed to go on. Without an end, clients would
show them as running for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acphold.history import ToolCall
from acphold.history.children import OpenChild, child_entry, opencode_entry
from acphold.history.entries import CHILD
from acphold.hub.annotations import ended_child, ended_compaction, failed_tool
from acphold.hub.session import HubSession
from acphold.hub.tool_calls import calls_since


async def close_open(
    session: HubSession, why: str, since: int = 0, *, cancelled: bool = False
) -> None:
    """Publish an end, with the reason, for everything that is open.

    That is: tool calls, with what updates behind `since` said of them; compactions; and
    sub-agents with such things of their own. Raises JournalError.
    """
    found = await session.summary()
    told = await calls_since(session, since) if found.open_tools else {}
    tools = [told.get(id_, ToolCall(id_, {})) for id_ in found.open_tools]
    await close_children(session, why, found.open_children, cancelled=cancelled)
    closing = [
        *(failed_tool(tool, why) for tool in tools),
        *(ended_compaction(id_, why, cancelled=cancelled) for id_ in found.open_compactions),
    ]
    if closing:
        await session.publish("update", closing)


async def close_refused(session: HubSession, refused: Mapping[tuple[str, str], str]) -> None:
    """Publish the end of calls that were not allowed, if their agent has not reported it.

    `refused` maps (sub-agent, tool call id) to the reason. Raises JournalError.
    """
    found = await session.summary()
    opened = {("", id_) for id_ in found.open_tools}
    for child in found.open_children:
        opened |= {(child.session_id, id_) for id_ in child.open_tools}
    for (child_id, id_), why in refused.items():
        if (child_id, id_) in opened:
            await _publish(session, child_id, [failed_tool(ToolCall(id_, {}), why)])


async def close_children(
    session: HubSession, why: str, open_children: Sequence[OpenChild], *, cancelled: bool = False
) -> None:
    """Publish the end of sub-agents, innermost first, and of what is open in them.

    Raises JournalError.
    """
    for child in sorted(open_children, key=lambda child: -child.depth):
        inside = [
            *(failed_tool(ToolCall(id_, {}), why) for id_ in child.open_tools),
            *(ended_compaction(it, why, cancelled=cancelled) for it in child.open_compactions),
        ]
        if inside:
            await _publish(session, child.session_id, inside)
        if not child.is_at_work:
            continue
        ended = ended_child(child, session.id, why, cancelled=cancelled)
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
