"""Reading databases that other programs have open, without a lock and without changing a byte.

Opening a database in place would make or change the files beside it. So it is copied with them,
and the copy is opened. SQLite writes a change into the log (`-wal`) or what it is about to change
into the journal (`-journal`) before it touches the file. So a copy made of the file first and of
those behind it is whole, unless one of them was begun anew meanwhile; then we copy again.
A database without them is read in place, as immutable.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from errno import EBUSY, EIO
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

ATTEMPTS: Final = 10
"""How often a copy is made anew before the database counts as too busy to be read."""

_BESIDE: Final = ("-wal", "-journal")

_HEAD: Final = 32
"""The bytes at the head of a log or journal that hold its salt; each restart changes them."""

_Mark = tuple[int, int]
"""Size and time (ns) of a file."""


def rows(path: Path, query: str, *arguments: str) -> Iterator[tuple[Any, ...]]:
    """What a query finds in the database as it is now; raises OSError when it cannot be read."""
    try:
        yield from _opened(path).execute(query, arguments)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its message may be none
        raise OSError(EIO, f"the database cannot be read: {error}", str(path)) from error


def _opened(path: Path) -> sqlite3.Connection:
    """The same connection as before, as long as nothing has changed."""
    marks = [_mark(file) for file in (path, *_beside(path))]
    return _snapshot(str(path), tuple(marks)).connection


class _Snapshot:
    """A database as it was; the copy's folder is gone as soon as the copy is open."""

    def __init__(self, path: Path) -> None:
        if any(_mark(file)[0] for file in _beside(path)):
            with tempfile.TemporaryDirectory(prefix="acphold-") as folder:
                copy = _copied(path, Path(folder, "copy.db"))
                with closing(sqlite3.connect(copy)) as connection:
                    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                self.connection = _immutable(copy)
        else:
            self.connection = _immutable(path)
        # What a broken program wrote is read as far as it can be.
        self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def __del__(self) -> None:
        if connection := getattr(self, "connection", None):
            connection.close()


@lru_cache(maxsize=2)
def _snapshot(path: str, marks: tuple[_Mark, ...]) -> _Snapshot:
    return _Snapshot(Path(path))


def _immutable(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)


def _copied(path: Path, copy: Path) -> Path:
    for _ in range(ATTEMPTS):
        before = _mark(path)
        shutil.copyfile(path, copy)
        unchanged = [
            _copied_beside(file, ours)
            for file, ours in zip(_beside(path), _beside(copy), strict=True)
        ]
        if all(unchanged) and _mark(path) == before:
            return copy
    raise OSError(EBUSY, "it changes too quickly to be read; close its program", str(path))


def _copied_beside(file: Path, copy: Path) -> bool:
    """Whether the copy is of one log; one that is not there any more was put into the database."""
    try:
        shutil.copyfile(file, copy)
        return _head(file) == _head(copy)
    except FileNotFoundError:
        copy.unlink(missing_ok=True)
        return True


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in _BESIDE]


def _mark(path: Path) -> _Mark:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)
