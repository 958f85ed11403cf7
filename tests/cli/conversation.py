"""Conversations for the command line to look at."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from acphold.record.journal.rows import NewSession, RowChange
from acphold.record.journal.stores import open_journal

Raw = tuple[str, bytes]
"""Kind and bytes of a journal entry."""

DIFF = {"type": "diff", "path": "/home/me/hello.py", "oldText": "hi\n", "newText": "hello\n"}


def prompt(text: str) -> Raw:
    """A prompt of the person."""
    return "prompt", json.dumps([{"type": "text", "text": text}]).encode()


def update(session_update: str, /, **fields: object) -> Raw:
    """A `session/update` of this kind."""
    return "update", json.dumps({"sessionUpdate": session_update, **fields}).encode()


def said(text: str, kind: str = "agent_message_chunk") -> Raw:
    """A chunk of the agent's text."""
    return update(kind, content={"type": "text", "text": text})


def ended(**how: object) -> Raw:
    """The end of a turn, by default a good one."""
    return "turn_end", json.dumps(how or {"stopReason": "end_turn"}).encode()


def plan(status: str) -> Raw:
    """A plan with one step."""
    step = {"content": "Change the greeting", "priority": "high", "status": status}
    return update("plan", entries=[step])


CONVERSATION = (
    prompt("Make it friendlier"),
    said("A thought.", "agent_thought_chunk"),
    plan("in_progress"),
    said("I will "),
    said("change **it**."),
    update("tool_call", toolCallId="t1", title="Edit hello.py", kind="edit"),
    update("tool_call_update", toolCallId="t1", status="completed", content=[DIFF]),
    plan("completed"),
    said("Done."),
    ended(),
)


def remember(
    journal: Path,
    session_id: str,
    *entries: Raw,
    agent: str = "scripted",
    cwd: str = "/home/me",
    title: str | None = None,
    at: int | None = None,
) -> None:
    """Put a session into a journal; `at` is when it began, in ms since the epoch."""
    new = NewSession(session_id, agent, cwd, title=title, created_at=at)
    asyncio.run(_remember(journal, new, entries))


async def _remember(path: Path, new: NewSession, entries: tuple[Raw, ...]) -> None:
    journal = open_journal(path)
    try:
        lease = await journal.create(new)
        for kind, raw in entries:
            await journal.append(lease, [(kind, [raw])])
        if entries:
            await journal.change(lease, RowChange(prompted=True))
            await journal.settle(lease, lease.next_seq - 1)
        await journal.release(lease)
    finally:
        await journal.aclose()
