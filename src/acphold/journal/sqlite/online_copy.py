"""A copy of the journal, made while sessions run: for `acphold backup`."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, suppress

from acphold.errors import JournalUnavailableError


def copy_to(connection: sqlite3.Connection, path: str) -> int:
    """Copy the journal to the file `path`, whole and checked, or not at all; its size in bytes.

    The copy is of one moment, whoever writes meanwhile, and nobody waits for it. It needs no
    other file beside it, and only its owner can read it. Raises JournalUnavailableError.
    """
    folder = os.path.dirname(path) or "."
    temporary = ""
    try:
        made, temporary = tempfile.mkstemp(dir=folder, prefix=".acphold-backup-")
        os.close(made)
        _copy(connection, temporary)
        size = os.stat(temporary).st_size
        _write_out(temporary)
        os.replace(temporary, path)
        _write_out(folder)
        return size
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot write the copy {path}: {error.strerror or error}; name another place"
        ) from error
    finally:
        if temporary:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def _copy(connection: sqlite3.Connection, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as copied:
        # In one step: with several, each write of somebody else would make it begin anew.
        connection.backup(copied)
        # It stands for itself; who opens it as a journal gets a write-ahead log again.
        copied.execute("PRAGMA journal_mode = DELETE")
        found = [line for (line,) in copied.execute("PRAGMA quick_check(1)")]
        if found != ["ok"]:
            raise JournalUnavailableError(
                f"the copy is not whole ({found[0]}); `acphold doctor` looks at the journal itself"
            )


def _write_out(path: str) -> None:
    """Have the disk keep it, also if the power fails."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
