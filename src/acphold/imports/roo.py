"""Roo Code: an editor extension, once a copy of Cline, that keeps its tasks in the same format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.cline import read_task, task_sources
from acphold.imports.readers import Reader
from acphold.imports.sources import Home, Source

NAME: Final = "roo"
KEY: Final = "roo"
"""Our own name: it is no ACP agent."""

EXTENSIONS: Final = ("rooveterinaryinc.roo-cline", "rooveterinaryinc.roo-code-nightly")


def find(home: Home) -> Iterator[Source]:
    """Yield the tasks of its command line, and of the extension and its nightly version."""
    own: Path | None = home.path / ".vscode-mock/global-storage"
    for extension in EXTENSIONS:
        yield from task_sources(NAME, home.path, extension, own)
        own = None


READER: Final = Reader(NAME, KEY, find, read_task)
