"""The beginnings of transcripts, from which conversations are listed before they are read.

Reading a gigabyte takes a minute, reading only the beginnings of its transcripts two seconds.
Agent, folder, time and title are known after the first prompt. If the beginning does not contain
them, the conversation is listed once it is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import Origin, PastEntry
from acphold.conversation.history.titles import title_of_prompt
from acphold.errors import HeldElsewhereError, LeaseLostError, UnknownSessionError
from acphold.imports.joins import Joins, read_beginning
from acphold.imports.readers import reader
from acphold.imports.sources import Facts, ImportSelection, Source
from acphold.journal.journal import Journal, session_of, take_lease
from acphold.journal.rows import Listed, ListFilter, NewSession, RowChange

WORTH_LISTING: Final = 16 << 20
"""Size from which listing first pays off: it takes over a second to read."""

NOT_BY_HEADS: Final = frozenset({"acpx", "acphold"})
"""Readers whose sources need reading as a whole to be listed."""

AT_ONCE: Final = 64
"""Rows per transaction: others wait for it."""


async def enlist(journal: Journal, new: Iterable[Source], selection: ImportSelection) -> None:
    """List the conversations that can be listed from their beginnings, the newest first; without
    titles, if these may contain what is left out."""
    rows, joins = list[Listed](), Joins(journal)
    for source in sorted(new, key=lambda source: -source.changed_at):
        if source.reader in NOT_BY_HEADS:
            continue
        facts, prompts = read_beginning(source, reader(source.reader))
        if row := list_row(source, facts, prompts, selection):
            if await joins.find(source, facts, prompts) is not None:
                continue
            for origin in row.new.origins:
                ours = await session_of(journal, origin.agent, origin.session_id)
                origins = (replace(origin, session_id=ours or origin.session_id),)
                row = replace(row, new=replace(row.new, origins=origins))
            rows.append(row)
        if len(rows) >= AT_ONCE:
            await journal.links.enlist(rows)
            rows = []
    await journal.links.enlist(rows)


class _Unread(Struct):
    source: Source
    redact: bool


async def give_up_lost(journal: Journal) -> None:
    """Give up sessions listed by an import that was killed, and deleted from the disk since."""
    unread = ListFilter(archived="include", unread=True)
    for row in await journal.page(unread, limit=sys.maxsize):
        if row.unread is not None and _is_deleted(unread_in(row.unread)[0]):
            await give_up(journal, row.session_id)


def _is_deleted(source: Source) -> bool:
    return not os.path.lexists(source.paths[0])


async def give_up(journal: Journal, session_id: str) -> None:
    """Stop reading an unread session: it keeps what it has, or is deleted if that is nothing.

    Does nothing while somebody has it open.
    """
    with suppress(UnknownSessionError, HeldElsewhereError, LeaseLostError):
        lease = await take_lease(journal, session_id, yields=True)
        if lease.next_seq > 1:
            await journal.change(lease, RowChange(unread=None))
            await journal.release(lease)
        else:
            await journal.delete(lease)


def list_row(
    source: Source, facts: Facts, prompts: Sequence[PastEntry], selection: ImportSelection
) -> Listed | None:
    """Return a conversation's row for the list, from its beginning.

    None if the beginning does not suffice, cannot be read, or is of another folder than selected.
    """
    if not prompts or selection.cwd not in (None, facts.named_folder):
        return None
    hides = selection.redact or bool(selection.marks)
    title = None if hides else facts.title or title_of_prompt(prompts[-1].raw)
    changed_at = source.changed_at // 1_000_000
    created_at = facts.created_at or changed_at
    origins = (Origin(facts.begun_as, facts.agent, 0),) if facts.begun_as else ()
    new = NewSession(
        *(facts.session_id, facts.agent, facts.folder, (), title, created_at),
        origins=origins,
        by_program=facts.by_program,
    )
    # A title kept elsewhere is looked up again when all of it can be searched for secrets.
    unread = _Unread(replace(source, title=None) if hides else source, selection.redact)
    return Listed(new, facts.session_id, changed_at, msgspec.msgpack.encode(unread))


def unread_in(unread: bytes, *, redact: bool = False) -> tuple[Source, bool]:
    """Return the source of a listed session, and True if secrets are to be left out.

    They are if it was listed so, or with `redact`. See `SessionRow.unread`.
    """
    found = msgspec.msgpack.decode(unread, type=_Unread)
    return found.source, found.redact or redact
