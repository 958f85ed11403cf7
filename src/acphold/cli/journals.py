"""The journal of a command: opened, read in pages, searched for places that a person names."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from acphold.cli.command_line import UsageError
from acphold.cli.terminal_text import counted
from acphold.errors import JournalUnavailableError, NoJournalError, UnknownSessionError
from acphold.history import Entry
from acphold.journal import (
    Free,
    Index,
    Journal,
    ListFilter,
    ListKey,
    Owners,
    Readable,
    SearchHit,
    SessionRow,
    Sessions,
    Sought,
    history,
    stores,
)
from acphold.journal.in_file import InFile
from acphold.journal.stores import open_journal

CATCH_UP_SECONDS = 1.0
"""A search first spends at most this long on making everything searchable."""

PAGE = 200
"""Sessions read from the journal at once."""


def path_of(journal: str | None) -> str:
    """Return the file that `--journal` names, or the default one; JournalUnavailableError."""
    return stores.named(journal)


def exists(journal: str | None) -> bool:
    """Return False if there is no journal; of a database, only opening it tells."""
    return stores.exists(journal)


@asynccontextmanager
async def opened(journal: str | None) -> AsyncIterator[Journal]:
    """Open the journal for the block; NoJournalError if there is none: none is created."""

    async def read_transcript(path: str, session_id: str) -> None:
        from acphold.imports import read_beside  # late: next to nobody needs one

        await read_beside(path, session_id)

    found = open_journal(path_of(journal), create=False, read_transcript=read_transcript)
    try:
        if found.file is None:  # its store has not looked yet
            await found.cursor_secret()
        yield found
    finally:
        await found.aclose()


@asynccontextmanager
async def opened_if_any(journal: str | None) -> AsyncIterator[Journal | None]:
    """Open the journal as `opened` does; None if there is none yet."""
    async with AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(opened(journal))
        except NoJournalError:
            found = None
        yield found


def file_of(journal: Journal, wanted: str, instead: str) -> InFile:
    """Return the file that the journal is in. UsageError if it is in none: it names the command
    `wanted`, and what to do `instead`."""
    if journal.file is None:
        raise UsageError(f"{wanted} is for a journal in a file, and this one is in none: {instead}")
    return journal.file


async def sessions(
    journal: Sessions, wanted: ListFilter, limit: int | None = None
) -> AsyncIterator[SessionRow]:
    """Yield the wanted sessions, newest first, at most `limit`."""
    async for rows in pages(journal, wanted, limit):
        for row in rows:
            yield row


async def pages(
    journal: Sessions, wanted: ListFilter, limit: int | None = None
) -> AsyncIterator[list[SessionRow]]:
    """Yield the same sessions in pages."""
    after: ListKey | None = None
    left = limit
    while left is None or left > 0:
        rows = await journal.page(wanted, after, PAGE if left is None else min(PAGE, left))
        if not rows:
            return
        yield rows
        after = rows[-1].key
        left = None if left is None else left - len(rows)


async def rows_of(journal: Sessions, session_ids: Iterable[str]) -> AsyncIterator[SessionRow]:
    """Yield those of these sessions that are in the journal."""
    for session_id in session_ids:
        with suppress(UnknownSessionError):
            yield await journal.session(session_id)


async def is_live(journal: Owners, session_id: str) -> bool:
    """Return True if a living process has the session."""
    return not isinstance(await journal.owner(session_id), Free)


async def entries(journal: Readable, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
    """Yield the entries of a session above `after`, oldest first, without void ones; one page is in
    memory at a time."""
    async for segment in history(journal, session_id, after):
        for entry in segment.entries():
            if entry.raw and entry.seq > after:
                yield entry


async def whole(journal: Journal, row: SessionRow) -> SessionRow:
    """Return the session, reading it first if an import has only listed it; TranscriptError."""
    if not row.is_unread:
        return row
    await journal.complete(row.session_id)
    return await journal.session(row.session_id, counted=True)


UNREAD = ListFilter(archived="include", unread=True)
"""Sessions that an import has listed and not read."""


async def unread_remark(journal: Sessions, otherwise: str = "") -> str:
    """Return a remark about sessions that an import has only listed; "" when there are none.

    `otherwise` says who reads them, if it is not left to the person.
    """
    count = len(await journal.page(UNREAD, limit=sys.maxsize))
    if not count:
        return ""
    return (
        f"{counted(count, 'conversation')} listed and not read yet: nothing in them is found or "
        f"added up; {otherwise or '`acphold import` goes on reading'}"
    )


async def searched(journal: Index, sought: Sought) -> list[SearchHit]:
    """Return the hits, after a moment of indexing what is not searchable yet."""
    await caught_up(journal, CATCH_UP_SECONDS)
    return await journal.search(sought)


async def caught_up(journal: Index, seconds: float) -> int:
    """Index for this long; return the number of sessions that still lag. A journal that cannot be
    written right now can still be read."""
    lagging = await journal.catch_up(0)
    if lagging:
        with suppress(JournalUnavailableError):
            lagging = await journal.catch_up(seconds)
    return lagging
