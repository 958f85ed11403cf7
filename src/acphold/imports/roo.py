"""Roo Code: an extension of editors, a copy of Cline at first, that keeps its tasks alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from acphold.imports.cline_tasks import read_task, task_sources
from acphold.imports.readers import Reader
from acphold.imports.sources import Home, Source

NAME: Final = "roo"
KEY: Final = "roo"
"""It is no ACP agent, so nobody else calls it anything."""

EXTENSIONS: Final = ("rooveterinaryinc.roo-cline", "rooveterinaryinc.roo-code-nightly")


def find(home: Home) -> Iterator[Source]:
    """The tasks of its command line, and of the extension and its nightly version in editors."""
    own: Path | None = home.path / ".vscode-mock/global-storage"
    for extension in EXTENSIONS:
        yield from task_sources(NAME, home.path, extension, own)
        own = None


READER: Final = Reader(NAME, KEY, find, read_task)
