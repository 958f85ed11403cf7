"""`acphold archive`: hide sessions from the list, or show them again."""

from __future__ import annotations

import asyncio

from acphold.faces.cli.command_line import Exit, Parser
from acphold.faces.cli.journals import opened
from acphold.faces.cli.places import named
from acphold.faces.cli.terminal_text import counted
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.neighbours import tell_owner
from acphold.record.journal import RowChange


def parser() -> Parser:
    """The arguments of `archive`."""
    made = Parser(archive, "archive", "[OPTIONS] ID...")
    made.add_value("session_ids", "ID", "a session's id, or a prefix of it", nargs="+")
    made.add_flag("--undo", "show archived sessions in the list again")
    made.add_journal()
    return made


async def archive(*, session_ids: list[str], undo: bool = False, journal: str | None) -> int:
    """Hide sessions from the list.

    An archived session appears in no list, here or in an editor, until `archive --undo` or its next
    prompt restores it. Nothing is lost: `list --archived` shows it, and `show`, `search` and an
    editor that knows its id still find it. Clients that have it open are not affected. If one of
    the IDs matches no session or several, nothing changes.
    """
    async with opened(journal) as kept:
        does = "restores it" if undo else "archives it"
        rows = [await named(LocalReader(kept), given, does, archived=undo) for given in session_ids]
        found = {row.session_id for row in rows if row.archived is undo}
        for session_id in found:
            await kept.change(session_id, RowChange(archived=not undo))
        # If one is live, its next prompt has to bring it back, however soon it comes.
        owners = {session_id: await kept.owner(session_id) for session_id in found}
        await asyncio.gather(*(tell_owner(whose, it) for it, whose in owners.items()))
    if found:
        some = counted(len(found), "session")
        print(f"Restored {some} to the list." if undo else f"Archived {some}.")
    if others := len({row.session_id for row in rows} - found):
        state = "not archived" if undo else "already archived"
        print(f"{counted(others, 'session')} {'was' if others == 1 else 'were'} {state}.")
    return Exit.OK
