"""`acphold compact`: gives the space of deleted sessions back to the disk."""

from __future__ import annotations

import os

from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit, Parser
from acphold.faces.cli.journals import file_of, opened
from acphold.faces.cli.terminal_text import size


def parser() -> Parser:
    """The arguments of `compact`."""
    made = Parser(compact, "compact")
    made.add_journal()
    return made


async def compact(*, journal: str | None) -> int:
    """Reclaim disk space from deleted sessions.

    Deleted sessions leave free space in the file. acphold keeps part of it for new sessions and
    returns the rest gradually. This command returns all of it now, while sessions run. It also
    finishes other work that is otherwise done gradually: it packs old turns, and overwrites the
    remains of interrupted deletions.
    """
    async with opened(journal) as found:
        file = file_of(found, "compact", "a database reclaims space by itself (VACUUM)")
        path, before = file.path, os.path.getsize(file.path)
        while await found.index.tidy(bounds.INDEX_STEP_SECONDS):
            pass
        given = await file.give_back()
    after = os.path.getsize(path)
    if not given:
        print(f"The journal takes {size(after)}; there is nothing to reclaim.")
    elif after >= before:  # somebody still reads it
        print(
            f"{size(given)} reclaimed; the file shrinks as soon as running sessions release them."
        )
    else:
        print(f"The journal takes {size(after)} now; {size(given)} reclaimed.")
    return Exit.OK
