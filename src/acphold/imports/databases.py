"""Reading databases that other programs have open, without a lock and without changing a byte.

A database in WAL mode is its file and the log beside it; opening it in place would make or change
a third file. So both are copied, and the copy is opened. The log is only ever appended to, but
for a checkpoint, which changes the file, and a restart, which changes the log's head: when either
happens while we copy, we copy again. A database without a log is read in place, as immutable.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

ATTEMPTS: Final = 10
"""How often a copy is made anew before the database counts as too busy to be read."""

_LOG_HEAD: Final = 32
"""The bytes of a log's head; they hold a salt that each restart changes."""

_Mark = tuple[int, int]
"""Size and time (ns) of a file."""


def opened(path: Path) -> sqlite3.Connection:
    """The database as it is now; raises OSError and sqlite3.Error.

    The same connection as before, as long as nothing has changed.
    """
    return _snapshot(str(path), _mark(path), _mark(_log(path))).connection


class _Snapshot:
    """A copy that goes with the last reference to it."""

    def __init__(self, path: Path) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        source = path
        if _mark(_log(path))[0]:
            self._folder = tempfile.TemporaryDirectory(
                prefix="acphold-", ignore_cleanup_errors=True
            )
            source = _copied(path, Path(self._folder.name, "copy.db"))
        mode = "mode=rw" if self._folder else "mode=ro&immutable=1"
        self.connection = sqlite3.connect(f"{source.as_uri()}?{mode}", uri=True)
        # What a broken program wrote is read as far as it can be.
        self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def __del__(self) -> None:
        if connection := getattr(self, "connection", None):
            connection.close()


@lru_cache(maxsize=2)
def _snapshot(path: str, file: _Mark, log: _Mark) -> _Snapshot:
    return _Snapshot(Path(path))


def _copied(path: Path, copy: Path) -> Path:
    for _ in range(ATTEMPTS):
        before = _mark(path)
        shutil.copyfile(path, copy)
        try:
            shutil.copyfile(_log(path), _log(copy))
            same_log = _head(_log(path)) == _head(_log(copy))
        except FileNotFoundError:  # a last checkpoint removed it
            _log(copy).unlink(missing_ok=True)
            same_log = True
        if same_log and _mark(path) == before:
            return copy
    raise OSError(f"{path} changes too quickly to be read; close the program that uses it")


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _mark(path: Path) -> _Mark:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LOG_HEAD)
