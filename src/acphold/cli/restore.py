"""`acphold restore`: replaces the journal with a backup."""

from __future__ import annotations

import asyncio
import os

from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.stop import stop_all_of
from acphold.cli.terminal_text import folder, visible
from acphold.journal import stores
from acphold.journal.location import scheme_of


def parser() -> Parser:
    """The arguments of `restore`."""
    made = Parser(restore, "restore", "[OPTIONS] FILE")
    made.add_value("path", "FILE", "the backup file")
    made.add_flag("--stop", "first stop the background agents of this journal")
    made.add_journal()
    return made


def restore(*, path: str, stop: bool, journal: str | None) -> int:
    """Put a backup in the place of the journal.

    Nobody may have the journal open. --stop ends background agents, as `acphold stop` does; close
    editors, and end `acphold serve`, yourself. FILE stays as it is: a copy is checked, and takes
    the place of the journal when it is whole. The former journal is kept beside it, under another
    name.
    """
    if scheme_of(stores.named(journal)) is not None:
        raise UsageError(
            "restore is for a journal in a file, and this one is in none: restore it as your other "
            "databases, or bring a file into it with `acphold copy-journal`"
        )
    if stop and (code := asyncio.run(stop_all_of(journal))) != Exit.OK:
        return code
    # In an event loop a Ctrl-C would come only when the journal has been replaced.
    aside = stores.restore(journal, os.path.abspath(os.path.expanduser(path)))
    print(visible(f"Restored the journal from {folder(path)}."))
    if aside is not None:
        print(visible(f"The former one is {folder(aside)}; delete it when you no longer need it."))
    return Exit.OK
