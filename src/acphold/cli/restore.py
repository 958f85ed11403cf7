"""`acphold restore`: a backup in the place of the journal."""

from __future__ import annotations

import os

from acphold.cli.command_line import Exit, Parser, UsageError, add_journal
from acphold.cli.journals import path_of
from acphold.cli.terminal_text import folder, visible
from acphold.journal import stores
from acphold.journal.location import scheme_of


def parser() -> Parser:
    """The arguments of `restore`."""
    made = Parser(restore, "restore", "[OPTIONS] FILE")
    made.add_argument("path", metavar="FILE", help="the backup file")
    add_journal(made)
    return made


def restore(*, path: str, journal: str | None) -> int:
    """Put a backup in the place of the journal.

    Nobody may have the journal open. FILE stays as it is: a copy is checked, and takes the place of
    the journal when it is whole. The former journal is kept beside it, under another name.
    """
    if scheme_of(path_of(journal)) is not None:
        raise UsageError(
            "restore is for a journal in a file, and this one is in none: restore it as your other "
            "databases, or bring a file into it with `acphold journal copy`"
        )
    aside = stores.restore(journal, os.path.abspath(os.path.expanduser(path)))
    print(visible(f"Restored the journal from {folder(path)}."))
    if aside is not None:
        print(visible(f"The former one is {folder(aside)}; delete it when you need it no more."))
    return Exit.OK
