"""Kilo Code: its command line keeps all sessions in one database, `~/.local/share/kilo/kilo.db`.

It is OpenCode's: Kilo began anew as a copy of that, and the extension works on it, too. What both
kept before are tasks in the form of Cline's, from which Kilo had begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports import opencode
from acphold.imports.cline_tasks import SCREEN, read_task, task_sources
from acphold.imports.readers import Reader
from acphold.imports.scribe import Scribe
from acphold.imports.sources import Home, Source

NAME: Final = "kilo"
KEY: Final = "Kilo"

EXTENSION: Final = "kilocode.kilo-code"


def find(home: Home) -> Iterator[Source]:
    """The sessions of the database, then the tasks of the first command line and of editors."""
    yield from opencode.session_sources(NAME, home, "kilo", "KILO_DB")
    yield from task_sources(NAME, home.path, EXTENSION, own=home.path / ".kilocode/cli/global")


def branches(source: Source) -> Iterator[Source]:
    """The session with what its person went back from; a task keeps nothing of that."""
    if Path(source.paths[0]).name != SCREEN:
        yield from opencode.branches(source)


def read(source: Source, scribe: Scribe) -> Iterator[None]:
    """Tell the session, or the task."""
    is_task = Path(source.paths[0]).name == SCREEN
    yield from read_task(source, scribe) if is_task else opencode.read(source, scribe)


READER: Final = Reader(NAME, KEY, find, read, branches)
