"""Entries of conversations, by what is said in them."""

from __future__ import annotations

import json

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
