"""`acphold archive` and `acphold unarchive`: hide sessions from the list, and show them again."""

from __future__ import annotations

import asyncio

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import opened
from acphold.cli.places import named
from acphold.cli.terminal_text import counted
from acphold.journal import RowChange
from acphold.server.neighbours import tell_owner


def parser() -> Parser:
    """The arguments of `archive`."""
    return _taking_ids(Parser(archive, "archive", "[OPTIONS] ID..."))


def unarchive_parser() -> Parser:
    """The arguments of `unarchive`."""
    return _taking_ids(Parser(unarchive, "unarchive", "[OPTIONS] ID..."))


def _taking_ids(made: Parser) -> Parser:
    made.add_argument(
        "session_ids", metavar="ID", nargs="+", help="a session's id, or a prefix of it"
    )
    add_journal(made)
    return made


def archive(*, session_ids: list[str], journal: str | None) -> int:
    """Hide sessions from the list.

    An archived session is in no list, here or in an editor, until `unarchive` or the next prompt
    brings it back. Nothing is lost: `list --archived` shows it, and `show`, `search` and an editor
    that knows its id still find it. Clients that have it open are not affected. If one of the IDs
    matches no session or several, nothing is archived.
    """
    changed, others = asyncio.run(_put(journal, session_ids, archived=True))
    if changed:
        print(f"Archived {counted(changed, 'session')}.")
    if others:
        print(f"{counted(others, 'session')} {'was' if others == 1 else 'were'} archived before.")
    return Exit.OK


def unarchive(*, session_ids: list[str], journal: str | None) -> int:
    """Show archived sessions in the list again.

    They return to their place. If one of the IDs matches no session or several, nothing changes.
    """
    changed, others = asyncio.run(_put(journal, session_ids, archived=False))
    if changed:
        print(f"{counted(changed, 'session')} back in the list.")
    if others:
        print(f"{counted(others, 'session')} {'was' if others == 1 else 'were'} not archived.")
    return Exit.OK


async def _put(location: str | None, session_ids: list[str], *, archived: bool) -> tuple[int, int]:
    """Archive all of these sessions or none of them; or bring them back. Return how many changed,
    and how many were in that state already."""
    async with opened(location) as journal:
        does = "archives it" if archived else "brings it back"
        rows = [await named(journal, given, does) for given in session_ids]
        found = {row.session_id for row in rows if row.archived != archived}
        for session_id in found:
            await journal.change(session_id, RowChange(archived=archived))
        # If one is live, its next prompt has to bring it back, however soon it comes.
        owners = {session_id: await journal.owner(session_id) for session_id in found}
        await asyncio.gather(
            *(tell_owner(whose, session_id) for session_id, whose in owners.items())
        )
    return len(found), len({row.session_id for row in rows} - found)
