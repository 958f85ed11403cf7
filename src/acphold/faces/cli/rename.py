"""`acphold rename`: gives a session a title that no agent replaces."""

from __future__ import annotations

from acphold.faces.cli.command_line import Exit, Parser, UsageError, a_text
from acphold.faces.cli.journals import opened
from acphold.faces.cli.places import named
from acphold.faces.cli.terminal_text import on_one_line
from acphold.live.hub.session_list import given_title
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.neighbours import tell_owner
from acphold.record.journal import RowChange


def parser() -> Parser:
    """The arguments of `rename`."""
    made = Parser(rename, "rename", "[OPTIONS] ID TITLE...")
    made.add_value("session_id", "ID", "the session's id, or a prefix of it")
    made.add_value("words", "TITLE", "the new title, quoted or not", nargs="+", type=a_text)
    made.add_journal()
    return made


async def rename(*, session_id: str, words: list[str], journal: str | None) -> int:
    """Rename a session.

    Your title stays, whatever the agent calls the session later. ID may be any unique prefix. A
    running session keeps running, and everybody who has it open sees the new title.
    """
    title = given_title(" ".join(words))
    if title is None:
        raise UsageError("a title needs at least one letter or digit")
    async with opened(journal) as found:
        row = await named(LocalReader(found), session_id, "renames it")
        await found.change(row.session_id, RowChange(given=title))
        await tell_owner(await found.owner(row.session_id), row.session_id)
    print(f"{on_one_line(row.title or '(no title)')}\n  is now {on_one_line(title)}")
    return Exit.OK
