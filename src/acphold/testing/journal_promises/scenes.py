"""Contents of the sessions in these promises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acphold.history import Entry, PastEntry, Segment
from acphold.journal import Journal, Lease, NewSession, RowChange

Json = dict[str, object]


def chunk(role: str, text: str, **more: object) -> Json:
    """Return a chunk of text by `role` ("user_message", "agent_message", "agent_thought")."""
    return {
        "sessionUpdate": f"{role}_chunk",
        "content": {"type": "text", "text": text},
        **{name: value for name, value in more.items() if value is not None},
    }


def encode(value: object) -> bytes:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def entries_of(segments: Sequence[Segment]) -> list[Entry]:
    """Return all entries of these segments, in order."""
    return [entry for segment in segments for entry in segment.entries()]


Pieces = list[tuple[str, list[bytes]]]


def turn(prompt: str, *updates: object) -> Pieces:
    """Return a whole turn, each update appended by itself."""
    return [
        ("prompt", [encode([{"type": "text", "text": prompt}])]),
        *[("update", [encode(update)]) for update in updates],
        ("turn_end", [b'{"stopReason":"end_turn"}']),
    ]


async def append(journal: Journal, lease: Lease, pieces: Pieces) -> int:
    """Append all; return the number of the last entry."""
    for kind, raws in pieces:
        await journal.append(lease, [(kind, raws)])
    return lease.next_seq - 1


async def begun(journal: Journal, session_id: str = "s1", agent: str = "a") -> Lease:
    """Make a new session."""
    return await journal.create(NewSession(session_id, agent, "/w"))


def past(pieces: Pieces) -> list[PastEntry]:
    """Return these as past entries, a second apart."""
    raws = [(kind, raw) for kind, raws in pieces for raw in raws]
    return [PastEntry(kind, 1000 * n, raw) for n, (kind, raw) in enumerate(raws, 1)]


def used(total: int, **more: int) -> dict[str, Any]:
    """Return the `usage` of an answer."""
    return {"usage": {"inputTokens": total - 10, "outputTokens": 10, "totalTokens": total, **more}}


def cost(amount: float, currency: str = "USD") -> tuple[str, bytes]:
    """Return a `usage_update`."""
    paid = {"amount": amount, "currency": currency}
    update = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": paid}
    return "update", encode(update)


async def put(
    journal: Journal,
    session_id: str,
    updated_at: int,
    *,
    agent: str = "a",
    cwd: str = "/w",
    prompted: bool = True,
) -> None:
    """Put a session into the list."""
    lease = await journal.create(NewSession(session_id, agent, cwd, created_at=updated_at))
    await journal.change(lease, RowChange(prompted=prompted))


async def said(
    journal: Journal, session_id: str, *values: object, agent: str = "a", cwd: str = "/w"
) -> None:
    """Make a settled session with these updates, after a prompt if one is a list."""
    lease = await journal.create(NewSession(session_id, agent, cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])])
    await journal.settle(lease, lease.next_seq - 1)


async def found(journal: Journal, words: str) -> list[tuple[str, int]]:
    """Return the places of the words."""
    return [(hit.session_id, hit.seq) for hit in await journal.index.search(words)]


async def told(journal: Journal, session_id: str, *times: int) -> None:
    """Make an imported session: an entry at each of these times (ms)."""
    lease = await journal.create(NewSession(session_id, "a", "/w"))
    raws = [encode(chunk("agent_message", f"word{n}", messageId=str(n))) for n in range(len(times))]
    past = [PastEntry("update", at, raw) for at, raw in zip(times, raws, strict=True)]
    await journal.take_in(lease, past)


async def running(journal: Journal, session_id: str, *values: object, cwd: str = "/w") -> None:
    """Make a session with an unsettled last turn, as if its process had been killed."""
    lease = await journal.create(NewSession(session_id, "a", cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])], RowChange(prompted=True))


def text(words: str) -> list[object]:
    return [{"type": "text", "text": words}]
