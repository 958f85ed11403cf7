"""`acphold index`: completes the search index, in the foreground or beside other work."""

from __future__ import annotations

import asyncio
import sys

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.index_beside import index_beside, reading_on
from acphold.cli.journals import opened, path_of
from acphold.cli.terminal_text import counted

STEP_SECONDS = 0.5
"""Pause between two reports of progress."""


def parser() -> Parser:
    """The arguments of `index`."""
    made = Parser(index, "index")
    made.add_argument(
        "--beside",
        action="store_true",
        help="internal, used by `import`: run once per journal until stdin ends and nothing "
        "is left",
    )
    add_journal(made)
    return made


def index(*, beside: bool, journal: str | None) -> int:
    """Build the search index for imported sessions.

    Imported conversations of the last 30 days are searchable at once. The rest is indexed while
    acphold is used; `import` starts this command in the background. Run it yourself to wait until
    it is done. It also reads what an interrupted import has only listed, and packs old turns so
    that they take less room.

    A turn needs no index to be found: it is indexed a moment after its end, and until then a search
    reads the ends of the 20 newest sessions, up to 256 KiB of each.
    """
    if beside:
        asyncio.run(index_beside(path_of(journal)))
        return Exit.OK
    asyncio.run(_index(journal))
    print("Everything is searchable.")
    return Exit.OK


async def _index(location: str | None) -> None:
    on_terminal = sys.stderr.isatty()
    async with opened(location) as journal:

        def told(left: int) -> None:
            if on_terminal:
                print(f"\r\x1b[K{counted(left, 'session')} to go", end="", file=sys.stderr)

        async for left in reading_on(journal):
            told(left)
        for work in (journal.catch_up, journal.tidy):
            while left := await work(STEP_SECONDS):
                told(left)
    if on_terminal:
        print("\r\x1b[K", end="", file=sys.stderr)
