"""`acphold unarchive`: archived sessions in the list again."""

from __future__ import annotations

import asyncio

from acphold.cli.archive import put, taking_ids
from acphold.cli.command_line import Exit, Parser
from acphold.cli.terminal_text import counted


def parser() -> Parser:
    """The arguments of `unarchive`."""
    return taking_ids(Parser(unarchive, "unarchive", "[OPTIONS] ID..."))


def unarchive(*, session_ids: list[str], journal: str | None) -> int:
    """Put archived sessions back into the list.

    They stand where they stood. If one of the IDs fits no session or several, nothing changes.
    """
    changed = asyncio.run(put(journal, session_ids, archived=False))
    print(f"{counted(changed, 'session')} back in the list.")
    return Exit.OK
