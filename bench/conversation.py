"""A long conversation as agents stream it: thoughts, words and tool calls, turn after turn."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from acphold.journal.journal import Journal, Lease
from acphold.journal.rows import NewSession, RowChange

WORDS = (
    "the",
    "test",
    "fails",
    "because",
    "session",
    "state",
    "is",
    "read",
    "before",
    "journal",
    "write",
    "returns",
    "so",
    "we",
    "move",
    "commit",
    "first",
    "and",
    "then",
    "deliver",
    "every",
    "update",
    "to",
    "each",
    "attached",
    "client",
    "in",
    "order",
    "with",
    "care",
)
STEPS = 10
"""Steps of a turn: some thoughts, then words, then a tool call."""

THOUGHTS, TEXTS, TOOL_UPDATES = 20, 77, 3
TURN = STEPS * (THOUGHTS + TEXTS + TOOL_UPDATES)
"""Updates in a turn."""


def turns(updates: int, seed: int = 1) -> Iterator[list[bytes]]:
    """About `updates` updates, turn by turn; the same ones for the same seed."""
    dice = random.Random(seed)
    for turn in range(max(1, updates // TURN)):
        yield [raw for step in range(STEPS) for raw in _step(dice, f"call-{turn}-{step}")]


def chunk(dice: random.Random, kind: str = "agent_message_chunk", words: int = 9) -> bytes:
    """A chunk of about fifty characters."""
    text = " ".join(dice.choices(WORDS, k=words)) + " "
    return _encode({"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def _step(dice: random.Random, call: str) -> Iterator[bytes]:
    for _ in range(THOUGHTS):
        yield chunk(dice, "agent_thought_chunk")
    for _ in range(TEXTS):
        yield chunk(dice)
    began = {"title": f"Read {call}.py", "kind": "read", "status": "pending"}
    yield _encode({"sessionUpdate": "tool_call", "toolCallId": call, **began})
    yield _encode(
        {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress"}
    )
    text = " ".join(dice.choices(WORDS, k=200))
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    done = {"status": "completed", "content": content}
    yield _encode({"sessionUpdate": "tool_call_update", "toolCallId": call, **done})


def _encode(update: dict[str, object]) -> bytes:
    return json.dumps(update, separators=(",", ":")).encode()


async def keep(
    journal: Journal,
    session_id: str,
    conversation: Sequence[Sequence[bytes]],
    *,
    at_once: int,
    settle: bool,
    agent: str = "scripted",
    cwd: str = "/tmp",
) -> None:
    """Journal a conversation as `wrap` does, `at_once` updates a commit."""
    lease: Lease = await journal.create(NewSession(session_id, agent, cwd))
    for turn in conversation:
        await journal.append(lease, [("prompt", [b'[{"type":"text","text":"Go on, please."}]'])])
        for start in range(0, len(turn), at_once):
            await journal.append(lease, [("update", turn[start : start + at_once])])
        [end] = await journal.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
        if settle:
            await journal.settle(lease, end.last_seq)
    await journal.change(lease, RowChange(prompted=True))
    await journal.release(lease)
