"""`acphold compact`: gives the space of deleted sessions back to the disk."""

from __future__ import annotations

import os

from acphold.cli import bounds
from acphold.cli.command_line import Exit, Parser
from acphold.cli.journals import file_of, opened
from acphold.cli.terminal_text import size


def parser() -> Parser:
    """The arguments of `compact`."""
    made = Parser(compact, "compact")
    made.add_journal()
    return made


async def compact(*, journal: str | None) -> int:
    """Reclaim disk space from deleted sessions.

    Deleted sessions leave free space in the file; part of it is kept for new sessions, the rest is
    returned gradually. This returns all of it now, while sessions run, and does the rest of what is
    otherwise done bit by bit: it packs old turns, and overwrites what an interrupted deletion left.
    """
    async with opened(journal) as found:
        file = file_of(found, "compact", "a database gives space back by itself (VACUUM)")
        path, before = file.path, os.path.getsize(file.path)
        while await found.index.tidy(bounds.INDEX_STEP_SECONDS):
            pass
        given = await file.give_back()
    after = os.path.getsize(path)
    if not given:
        print(f"The journal takes {size(after)}; there is nothing to reclaim.")
    elif after >= before:  # somebody still reads it
        print(
            f"{size(given)} reclaimed; the file gets shorter as soon as the running sessions let "
            "go of them."
        )
    else:
        print(f"The journal takes {size(after)} now; {size(given)} reclaimed.")
    return Exit.OK
