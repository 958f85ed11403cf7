"""`acphold backup`: a copy of the journal, made while it is in use."""

from __future__ import annotations

import os
from datetime import datetime

from acphold.faces.cli.command_line import Exit, Parser, UsageError
from acphold.faces.cli.journals import file_of, opened
from acphold.faces.cli.terminal_text import folder, size, visible


def parser() -> Parser:
    """The arguments of `backup`."""
    made = Parser(backup, "backup", "[OPTIONS] FILE")
    made.add_value("path", "FILE", "the backup file, or a folder for one named by date")
    made.add_flag("--force", "replace FILE if it exists")
    made.add_journal()
    return made


async def backup(*, path: str, force: bool, journal: str | None) -> int:
    """Back up the journal while sessions run.

    The copy is a snapshot of one moment. acphold checks it before it replaces FILE, and only you
    can read it. To use it, name it with --journal.
    """
    target = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(target):
        target = os.path.join(target, f"journal-{datetime.now():%Y-%m-%d-%H%M%S}.db")
    elif path.endswith("/"):
        raise UsageError(f"the folder {path} does not exist; create it or name another")
    async with opened(journal) as found:
        instead = (
            "back it up like your other databases, or copy it to a file with `acphold copy-journal`"
        )
        file = file_of(found, "backup", instead)
        if os.path.exists(target) and os.path.samefile(target, file.path):
            raise UsageError(f"{path} is the journal itself; name another file")
        if os.path.exists(target) and not os.path.isfile(target):
            raise UsageError(f"{path} is not a file; choose another place")
        if os.path.lexists(target) and not force:
            raise UsageError(f"{path} already exists; choose another file or use --force")
        copied = await file.copy_to(target)
    print(visible(f"Copied the journal to {folder(target)}, {size(copied)}."))
    return Exit.OK
