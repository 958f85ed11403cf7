"""The journal of a command: opened, read in pages, searched for places that a person names."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from acphold.cli.command_line import UsageError
from acphold.cli.terminal_text import counted
from acphold.errors import NoJournalError
from acphold.journal import (
    Journal,
    ListFilter,
    ListKey,
    Owners,
    SessionRow,
    Sessions,
    stores,
)
from acphold.journal.in_file import InFile
from acphold.journal.owners import is_owned
from acphold.journal.stores import open_journal

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
    after: ListKey | None = None
    left = limit
    while left is None or left > 0:
        rows = await journal.page(wanted, after, PAGE if left is None else min(PAGE, left))
        if not rows:
            return
        for row in rows:
            yield row
        after = rows[-1].key
        left = None if left is None else left - len(rows)


async def is_live(journal: Owners, session_id: str) -> bool:
    """Return True if a living process has the session."""
    return is_owned(await journal.owner(session_id))


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
        f"added up; {otherwise or '`acphold import` continues reading'}"
    )
