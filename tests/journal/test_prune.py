"""Pruning: the deletion of what is old, and of nothing that anybody uses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from acphold.journal import ListFilter, NewSession, RowChange, SqliteJournal
from tests.journal.conversations import chunk, encode


async def remember(journal: SqliteJournal, session_id: str, at: int, *, held: bool = False) -> None:
    lease = await journal.create(NewSession(session_id, "a", "/", created_at=at), "me")
    await journal.append(lease, "update", [encode(chunk("agent_message", f"word{session_id}"))])
    await journal.settle(lease, lease.next_seq - 1)
    await journal.link(lease, "a", f"agents-{session_id}")
    await journal.touch(lease, RowChange(prompted=True, updated_at=at))
    if not held:
        await journal.release(lease)


async def ids(journal: SqliteJournal) -> list[str]:
    return [row.session_id for row in await journal.page(ListFilter())]


async def test_what_is_pruned_is_gone_like_what_is_deleted(path: Path) -> None:
    journal = SqliteJournal.open(path)
    for number in range(5):
        await remember(journal, f"s{number}", 1000 + number)
    assert await journal.prune(["s0", "s1", "s2", "no such"], 5000) == ["s0", "s1", "s2"]
    assert await ids(journal) == ["s4", "s3"]
    assert await journal.is_forgotten("a", "agents-s1")
    assert await journal.search("words1") == []
    assert len(await journal.search("words3")) == 1
    await journal.aclose()
    assert b"words1" not in await asyncio.to_thread(path.read_bytes)


async def test_what_went_on_meanwhile_stays(path: Path) -> None:
    journal = SqliteJournal.open(path)
    await remember(journal, "old", 1000)
    await remember(journal, "new", 3000)
    assert await journal.prune(["old", "new"], 2000) == ["old"]
    assert await ids(journal) == ["new"]
    await journal.aclose()


async def test_what_somebody_holds_stays(path: Path) -> None:
    journal = SqliteJournal.open(path)
    await remember(journal, "held", 1000, held=True)
    assert await journal.prune(["held"], 2000) == []
    assert await ids(journal) == ["held"]
    await journal.aclose()
