"""Conversations for the bridges, and the rules of every service for the messages it gets."""

from __future__ import annotations

import json
import re
from typing import Any

from acphold.conversation.history.entries import PROMPT, TURN_END, UPDATE, Entry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.timeline import Item

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def said(words: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    """A piece of text."""
    return {"sessionUpdate": kind, "content": {"type": "text", "text": words}}


def called(tool_call_id: str, **fields: Any) -> dict[str, Any]:
    """A tool call as it ended."""
    title = {"title": tool_call_id, "status": "completed"}
    return {"sessionUpdate": "tool_call", "toolCallId": tool_call_id, **title, **fields}


def prompt(*blocks: Any) -> tuple[str, Any]:
    """A prompt of the person, from texts or blocks."""
    return PROMPT, [{"type": "text", "text": it} if isinstance(it, str) else it for it in blocks]


def end(reason: str = "end_turn") -> tuple[str, Any]:
    """The end of a turn."""
    return TURN_END, {"stopReason": reason}


def timeline(*happened: Any) -> tuple[Item, ...]:
    """The timeline of a session in which this has happened."""
    entries = [one if isinstance(one, tuple) else (UPDATE, one) for one in happened]
    state = fold(
        Entry(seq, kind, 0, json.dumps(what).encode())
        for seq, (kind, what) in enumerate(entries, 1)
    )
    return state.timeline


EVERYTHING = timeline(
    prompt("Look at this", IMAGE, {"type": "resource_link", "name": "a", "uri": "file:///a"}),
    said("Hm.", "agent_thought_chunk"),
    said("I look."),
    called("read/1", name="read file", rawInput={"path": "a"}, rawOutput="one"),
    called("shot", rawInput=[1], content=[{"type": "content", "content": IMAGE}]),
    said("I see it."),
    called("cut", status="in_progress"),
    end("cancelled"),
    prompt("Something bad"),
    said("Never!"),
    end("refusal"),
    prompt("And now?"),
    called("bad", status="failed", rawOutput={"code": 1}),
    said("It did not work."),
    end(),
)
"""Thoughts, images, calls with and without a result, a cancelled and a refused turn."""

ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
