"""The journal of a command: opened, read in pages, asked for the places that a person names."""

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
"""How long a search first makes searchable what is not yet, when there is some of that."""

PAGE = 200
"""Sessions asked of the journal at once."""


def path_of(journal: str | None) -> str:
    """The file that `--journal` names, or the default one; JournalUnavailableError."""
    return stores.named(journal)


def exists(journal: str | None) -> bool:
    """Whether there may be a journal to read; of a database only who opens it knows."""
    return stores.exists(journal)


@asynccontextmanager
async def opened(journal: str | None) -> AsyncIterator[Journal]:
    """The journal for the block; NoJournalError when there is none yet, and none is made."""

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
    """The same; None when there is none yet."""
    async with AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(opened(journal))
        except NoJournalError:
            found = None
        yield found


def file_of(journal: Journal, wanted: str, instead: str) -> InFile:
    """The file that it is in; UsageError for a store without one, which `wanted` is not for, and
    what is done `instead`."""
    if journal.file is None:
        raise UsageError(f"{wanted} is for a journal in a file, and this one is in none: {instead}")
    return journal.file


async def sessions(
    journal: Sessions, wanted: ListFilter, limit: int | None = None
) -> AsyncIterator[SessionRow]:
    """The sessions that are wanted, newest first, `limit` of them at most."""
    async for rows in pages(journal, wanted, limit):
        for row in rows:
            yield row


async def pages(
    journal: Sessions, wanted: ListFilter, limit: int | None = None
) -> AsyncIterator[list[SessionRow]]:
    """These sessions, some of them at a time."""
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
    """Those of these sessions that are in the journal."""
    for session_id in session_ids:
        with suppress(UnknownSessionError):
            yield await journal.session(session_id)


async def is_live(journal: Owners, session_id: str) -> bool:
    """Whether a process that lives has the session."""
    return not isinstance(await journal.owner(session_id), Free)


async def entries(journal: Readable, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
    """The entries of a session behind one but void ones, oldest first, a page in memory at a
    time."""
    async for segment in history(journal, session_id, after):
        for entry in segment.entries():
            if entry.raw and entry.seq > after:
                yield entry


async def whole(journal: Journal, row: SessionRow) -> SessionRow:
    """The session, read if an import has only listed it; raises TranscriptError."""
    if not row.is_unread:
        return row
    await journal.complete(row.session_id)
    return await journal.session(row.session_id, counted=True)


UNREAD = ListFilter(archived="include", unread=True)
"""What an import has listed and not read."""


async def unread_remark(journal: Sessions, otherwise: str = "") -> str:
    """What to say of sessions that an import has listed and not read; "" when there are none.

    `otherwise` is what reads them, if it is not left to the person.
    """
    count = len(await journal.page(UNREAD, limit=sys.maxsize))
    if not count:
        return ""
    return (
        f"{counted(count, 'conversation')} listed and not read yet: nothing in them is found or "
        f"added up; {otherwise or '`acphold import` goes on reading'}"
    )


async def searched(journal: Index, sought: Sought) -> list[SearchHit]:
    """The hits, after a moment of catching up with what is not searchable yet."""
    await caught_up(journal, CATCH_UP_SECONDS)
    return await journal.search(sought)


async def caught_up(journal: Index, seconds: float) -> int:
    """How many sessions are not looked through, after so long of that; what is there can be read
    also when nothing can be written just now."""
    lagging = await journal.catch_up(0)
    if lagging:
        with suppress(JournalUnavailableError):
            lagging = await journal.catch_up(seconds)
    return lagging
