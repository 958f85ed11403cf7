"""Kilo Code: its command line keeps all sessions in one database, `~/.local/share/kilo/kilo.db`.

It is OpenCode's format: Kilo started over as a copy of that, and its extension uses it, too. Before
that, both kept tasks in Cline's format, from which Kilo had begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from acphold.imports import opencode
from acphold.imports.cline import SCREEN, read_task, task_sources
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import Reader
from acphold.imports.sources import Home, Source

NAME: Final = "kilo"
KEY: Final = "Kilo"

EXTENSION: Final = "kilocode.kilo-code"


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of the database, then the tasks of the old command line and editors."""
    yield from opencode.session_sources(NAME, home, "kilo", "KILO_DB")
    yield from task_sources(NAME, home.path, EXTENSION, own=home.path / ".kilocode/cli/global")


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session, or the task."""
    is_task = source.path.name == SCREEN
    yield from read_task(source, writer) if is_task else opencode.read(source, writer)


READER: Final = Reader(NAME, KEY, find, read)
