"""`acphold delete`: delete sessions permanently."""

from __future__ import annotations

import asyncio
import sys

from acphold.faces.cli.command_line import Exit, Parser, UsageError, is_confirmed
from acphold.faces.cli.findings import removed_from_disk
from acphold.faces.cli.journals import opened
from acphold.faces.cli.places import named
from acphold.faces.cli.terminal_text import age, counted, on_one_line
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.neighbours import tell_owner
from acphold.record.history.entries import now_ms
from acphold.record.journal.owners import other_owner


def parser() -> Parser:
    """The arguments of `delete`."""
    made = Parser(delete, "delete", "[OPTIONS] ID...")
    made.add_value("session_ids", "ID", "a session's id, or a prefix of it", nargs="+")
    made.add_sure()
    made.add_journal()
    return made


def delete(*, session_ids: list[str], sure: bool, journal: str | None) -> int:
    """Delete sessions permanently.

    Each ID can be any unique prefix; if one matches no session or several, nothing is deleted. The
    conversation is removed from the journal, from lists and from the search index. The agent's own
    copy stays on disk, but acphold does not list it again. Clients that have the session open are
    notified, and a running turn ends with an error.
    """
    found = asyncio.run(_found(journal, session_ids))
    if not sure and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask for confirmation; use --yes to delete")
    # Asked outside of any event loop: a loop would hold back a Ctrl-C until it is too late.
    if not sure and not is_confirmed(f"Delete {counted(len(found), 'session')}?"):
        print("Nothing was deleted.", file=sys.stderr)
        return Exit.ERROR

    async def delete_all() -> None:
        async with opened(journal) as kept:
            for session_id in found:
                whose = await kept.owner(session_id)
                await kept.delete(session_id)
                await tell_owner(whose, session_id)  # and through it every client that has it open
            await removed_from_disk(kept)

    asyncio.run(delete_all())
    print(f"Deleted {counted(len(found), 'session')}.")
    return Exit.OK


async def _found(location: str | None, session_ids: list[str]) -> list[str]:
    """Show each session to the person; returns their ids."""
    async with opened(location) as journal:
        rows = {
            (row := await named(LocalReader(journal), given, "deletes it")).session_id: row
            for given in session_ids
        }
        for row in rows.values():
            facts = f"{counted(row.message_count, 'message')}, {age(row.updated_at, now_ms())}"
            line = f"{on_one_line(row.title or '(no title)')}\n  {on_one_line(row.session_id)}  "
            if (owner := other_owner(await journal.owner(row.session_id))) is not None:
                facts += f"\n  it is running in {on_one_line(str(owner))}"
            print(line + facts, file=sys.stderr)
    return list(rows)
