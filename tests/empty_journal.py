"""A journal without sessions: to copy its tables takes a third of the time of making them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from acphold.journal.sqlite.file import JournalFile


@cache
def _content() -> bytes:
    with TemporaryDirectory() as folder:
        JournalFile.open(f"{folder}/journal.db", create=True, busy_seconds=1).close()
        return Path(folder, "journal.db").read_bytes()


def empty(path: Path) -> Path:
    """Put an empty journal here, unless there is one; return its path."""
    if not path.exists():
        path.touch(0o600)
        path.write_bytes(_content())
    return path
