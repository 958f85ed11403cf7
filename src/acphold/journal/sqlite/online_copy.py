"""A copy of the journal, made while sessions run: for `acphold backup`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Final

from acphold.errors import JournalUnavailableError
from acphold.journal.sqlite import leases


def copy_to(connection: sqlite3.Connection, path: str) -> int:
    """Copy the journal to the file `path`, whole and checked, or not at all; return its size in
    bytes.

    The copy is of one moment, even while others write, and nobody waits for it. It needs no other
    file beside it, and only its owner can read it. Raises JournalUnavailableError if it cannot be
    written, and sqlite3 errors of the journal itself.
    """
    folder = os.path.dirname(path) or "."
    try:
        # A folder, because SQLite makes files beside the one that it writes.
        with TemporaryDirectory(dir=folder, prefix=".acphold-backup-") as made:
            temporary = os.path.join(made, "copy.db")
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            _copy(connection, temporary)
            size = os.stat(temporary).st_size
            write_out(temporary)
            os.replace(temporary, path)
        write_out(folder)
    except _WritingError as error:
        raise JournalUnavailableError(
            f"cannot write the copy {path}: {error}; make room on its disk, or name another place"
        ) from error
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot write the copy {path}: {error.strerror or error}; name another place"
        ) from error
    return size


class _WritingError(Exception):
    """SQLite failed to write the copy; the journal itself is not at fault."""


def _copy(connection: sqlite3.Connection, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as copied:
        try:
            # In one step: with several, each write of another process would make it start over.
            connection.backup(copied)
        except sqlite3.Error as error:
            # These errors come from the copy: the journal is only read.
            if getattr(error, "sqlite_errorcode", None) in _OF_WRITING:
                raise _WritingError(str(error)) from error
            raise
        try:
            # Complete without a log; opening it as a journal turns write-ahead logging on again.
            copied.execute("PRAGMA journal_mode = DELETE")
            found = [line for (line,) in copied.execute("PRAGMA quick_check(1)")]
        except sqlite3.Error as error:
            raise _WritingError(str(error)) from error
        if found != ["ok"]:
            raise JournalUnavailableError(
                f"the copy is not whole ({found[0]}); `acphold doctor` looks at the journal itself"
            )
        leases.renew_era(copied)  # positions that the journal gives out later are not in the copy


_OF_WRITING: Final = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}


def write_out(path: str) -> None:
    """Flush a file or folder to the disk, so that it survives a power failure."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
