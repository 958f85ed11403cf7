"""The journal of a command, and the reader of its sessions."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from acphold.errors import NoJournalError, SilentDaemonError
from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit, UsageError
from acphold.faces.cli.settings import agent_name, agent_names, near_to
from acphold.faces.cli.terminal_text import folder, on_one_line, quantity, tell
from acphold.journal.journal import Journal, Sessions
from acphold.journal.rows import ListFilter, ListKey, SessionRow
from acphold.journal.seams import InFile
from acphold.journal_location import VARIABLE, default_location
from acphold.live.reading.listed_sessions import SHORT_ID
from acphold.live.reading.local_reader import existing_journal
from acphold.reader import open, reader_of

if TYPE_CHECKING:
    from acphold.live.reading.local_reader import LocalReader


BEGIN: Final = "Nothing here yet{}: acphold import, or acphold setup."
"""What a list says where there is no session, or no journal."""


def tells_how_to_begin(
    command: Callable[..., Coroutine[Any, Any, int | None]],
) -> Callable[..., Coroutine[Any, Any, int | None]]:
    """Decorate a command: without a journal, it explains how to begin a session."""

    @wraps(command)
    async def run(**arguments: object) -> int | None:
        try:
            return await command(**arguments)
        except NoJournalError as none:
            is_named = os.environ.get(VARIABLE) or none.place != default_location()
            tell(BEGIN.format(f" (no journal at {none.place})" if is_named else ""))
            return Exit.OK

    return run


@asynccontextmanager
async def journal_if_any() -> AsyncIterator[Journal | None]:
    """Open the journal as `existing_journal` does; None if there is none yet."""
    async with AsyncExitStack() as stack:
        try:
            kept = await stack.enter_async_context(existing_journal())
        except NoJournalError:
            kept = None
        yield kept


def file_of(journal: Journal, wanted: str, instead: str) -> InFile:
    """Return the file that the journal is in. UsageError if it is in none: it names the command
    `wanted`, and what to do `instead`."""
    if journal.file is None:
        raise UsageError(f"{wanted} needs a journal in a file, which this one is not: {instead}")
    return journal.file


async def sessions(
    journal: Sessions, wanted: ListFilter, after: ListKey | None = None
) -> AsyncIterator[SessionRow]:
    """Yield the wanted sessions behind a place of the list, newest first."""
    while rows := await journal.page(wanted, after, bounds.SESSIONS_AT_ONCE):
        for row in rows:
            yield row
        after = rows[-1].key


UNREAD = ListFilter(archived="include", unread=True)
"""Sessions that an import has listed and not read."""


async def unread_remark(journal: Sessions, otherwise: str = "") -> str:
    """Return a remark about sessions that an import has only listed; "" when there are none.

    `otherwise` is what happens next, if not the advice to run `acphold import`.
    """
    count = len(await journal.page(UNREAD, limit=sys.maxsize))
    if not count:
        return ""
    return (
        f"{quantity(count, 'conversation')} listed but not read yet, so not included in searches "
        f"and sums; {otherwise or '`acphold import` continues reading'}"
    )


async def short_id(journal: Sessions, session_id: str) -> str:
    """Return the shortest unique prefix of an id, at least SHORT_ID characters, to be shown."""
    return on_one_line((await journal.short_ids([session_id], SHORT_ID))[0])


async def lasting_id(journal: Sessions, session_id: str) -> str:
    """Return the word that will still find a session when there are more: of a random id the
    shortest unique prefix, all of another one, which those after it may begin like."""
    short = await short_id(journal, session_id)
    return short if _RANDOM_ID.fullmatch(session_id) else shlex.quote(on_one_line(session_id))


_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def text_to_match(row: SessionRow) -> str:
    """Return the text that words of a list are matched with: title, agent, folder and tags
    as shown."""
    return f"{row.title}\0{agent_name(row.agent)}\0{folder(row.cwd)}\0{row.hashtags}"


@asynccontextmanager
async def reading() -> AsyncIterator[LocalReader]:
    """Read the journal for the block; the errors of `acphold.open`, and SilentDaemonError behind
    the block if a daemon was asked and is silent."""
    async with open() as history:
        reader = reader_of(history)
        reader.said = text_to_match
        yield reader
    for each in reader.silent:
        raise SilentDaemonError(f"{each.words}. What only it knows is missing above")


@asynccontextmanager
async def sessions_here() -> AsyncIterator[tuple[LocalReader, Journal]]:
    """Read the journal for the block, to change it; the errors of `acphold.open`."""
    async with open() as history:
        reader = reader_of(history)
        reader.index_seconds = 0.0  # a list that is searched at each key waits for nothing
        yield reader, reader.journal


async def require_agent(reader: LocalReader, name: str | None) -> None:
    """Raise UsageError for a name that no agent has: none that acphold knows, none of the settings,
    and none of the conversations here."""
    known = {each.casefold() for each in agent_names()}
    if name is None or name.casefold() in known:
        return
    keys = await reader.agents()
    names = sorted({agent_name(key) for key in keys})
    if name in (*keys, *names):
        return
    here = f"; conversations here are with {on_one_line(', '.join(names))}" if names else ""
    raise UsageError(f"no agent {name!r}{near_to(name, [*names, *agent_names()])}{here}")
