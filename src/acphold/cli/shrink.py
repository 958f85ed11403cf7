"""`acphold shrink`: room that deleted sessions have left, given back to the disk."""

from __future__ import annotations

import asyncio
import os
import sys

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import file_of, opened
from acphold.cli.terminal_text import size
from acphold.journal import stores


def parser() -> Parser:
    """The arguments of `shrink`."""
    made = Parser(shrink, "shrink")
    add_journal(made)
    return made


def shrink(*, journal: str | None) -> int:
    """Give the disk back what deleted sessions have left.

    What is deleted leaves room in the file, of which some is kept for what comes, and the rest is
    given back by and by. This gives back all of it now, while sessions run. A journal that an
    earlier release has made is rewritten once for that: then nobody else may have it open, and it
    takes up to twice its room meanwhile.
    """
    path, before, is_given_back = asyncio.run(_give_back(journal))
    if not is_given_back:
        print("Rewriting the journal, once …", file=sys.stderr)
        stores.rewrite(journal)
    after = os.path.getsize(path)
    if after < before:
        print(f"The journal takes {size(after)} now; {size(before - after)} were given back.")
    else:
        print(f"The journal takes {size(after)}; there was nothing to give back.")
    return Exit.OK


async def _give_back(location: str | None) -> tuple[str, int, bool]:
    """The file, its size before, and whether that could be done without rewriting it."""
    async with opened(location) as journal:
        file = file_of(journal, "shrink", "a database gives room back by itself (VACUUM)")
        before = os.stat(file.path).st_size
        return file.path, before, await file.give_back()
