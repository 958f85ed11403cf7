"""What tests of the search have in common."""

from __future__ import annotations

from acphold.history import PastEntry
from acphold.journal import Journal, NewSession, RowChange
from tests.journal.conversations import chunk, encode


async def said(
    journal: Journal, session_id: str, *values: object, agent: str = "a", cwd: str = "/w"
) -> None:
    """A settled session in which these updates came, after a prompt if one is a list."""
    lease = await journal.create(NewSession(session_id, agent, cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])])
    await journal.settle(lease, lease.next_seq - 1)


async def found(journal: Journal, words: str) -> list[tuple[str, int]]:
    """Where the words are."""
    return [(hit.session_id, hit.seq) for hit in await journal.search(words)]


async def told(journal: Journal, session_id: str, *times: int) -> None:
    """A session that was imported: an entry at each of these times (ms)."""
    lease = await journal.create(NewSession(session_id, "a", "/w"))
    raws = [encode(chunk("agent_message", f"word{n}", messageId=str(n))) for n in range(len(times))]
    past = [PastEntry("update", at, raw) for at, raw in zip(times, raws, strict=True)]
    await journal.take_in(lease, past)


async def running(journal: Journal, session_id: str, *values: object, cwd: str = "/w") -> None:
    """A session whose last turn is not settled, as if its process had been killed."""
    lease = await journal.create(NewSession(session_id, "a", cwd))
    for value in values:
        kind = "prompt" if isinstance(value, list) else "update"
        await journal.append(lease, [(kind, [encode(value)])], RowChange(prompted=True))


def text(words: str) -> list[object]:
    return [{"type": "text", "text": words}]
