"""Sessions in a journal for the command line to look at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from tests.empty_journal import empty
from tests.raw_entries import Raw


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
    journal = open_journal(empty(path))
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
