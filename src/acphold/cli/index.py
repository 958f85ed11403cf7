"""`acphold index`: what the search index lacks is put into it, here or beside other work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress

from acphold.cli.command_line import Exit, Parser, add_journal
from acphold.cli.journals import opened
from acphold.cli.terminal_text import counted

STEP_SECONDS = 0.5
"""Between two looks at how far it is."""

NICENESS = 10
"""Beside other work: only time that nobody else wants."""


def parser() -> Parser:
    """The arguments of `index`."""
    made = Parser(index, "index")
    add_journal(made)
    return made


def index(*, journal: str | None) -> int:
    """Make all that was imported searchable.

    Turns are searchable a moment after they are over, and imported conversations of the last 30
    days at once. The others follow while acphold is used; `import` starts this command in the
    background for them. Call it yourself to wait for the end of it. Old turns are packed then,
    too, so that they take less room.
    """
    asyncio.run(_index(journal))
    print("Everything is searchable.")
    return Exit.OK


async def _index(location: str | None) -> None:
    on_terminal = sys.stderr.isatty()
    async with opened(location) as journal:
        for work in (journal.catch_up, journal.pack):
            while left := await work(STEP_SECONDS):
                if on_terminal:
                    print(f"\r\x1b[K{counted(left, 'session')} to go", end="", file=sys.stderr)
    if on_terminal:
        print("\r\x1b[K", end="", file=sys.stderr)


def index_beside(location: str) -> None:
    """Start the command in the background: a process of its own, which ends by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "acphold", "index", "--journal", location],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    # It outlives us, so nobody here waits for it.
    process.returncode = 0
