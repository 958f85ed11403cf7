"""The journal that a command works on: opened, and read in pages."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acphold.journal import Entry, Journal, ListFilter, ListKey, SessionRow, SqliteJournal, history
from acphold.journal.location import default_location, journal_path

PAGE = 200
"""Sessions asked of the journal at once."""


def path_of(journal: str | None) -> str:
    """The file that `--journal` names, or the default one; JournalUnavailableError."""
    return journal_path(journal or default_location())


def exists(journal: str | None) -> bool:
    """Whether there is a journal to read, so that looking does not make one."""
    return os.path.exists(path_of(journal))


@asynccontextmanager
async def opened(journal: str | None) -> AsyncIterator[SqliteJournal]:
    """The journal for the block; JournalUnavailableError when there is none yet."""
    found = SqliteJournal.open(path_of(journal), create=False)
    try:
        yield found
    finally:
        await found.aclose()


async def sessions(
    journal: Journal, wanted: ListFilter, limit: int | None = None
) -> AsyncIterator[SessionRow]:
    """The sessions that are wanted, newest first, `limit` of them at most."""
    after: ListKey | None = None
    left = limit
    while left is None or left > 0:
        rows = await journal.page(wanted, after, PAGE if left is None else min(PAGE, left))
        for row in rows:
            yield row
        if not rows:
            return
        after = rows[-1].key
        left = None if left is None else left - len(rows)


async def entries(journal: Journal, session_id: str) -> AsyncIterator[Entry]:
    """All entries of a session but void ones, oldest first, a page in memory at a time."""
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            if entry.raw:
                yield entry
