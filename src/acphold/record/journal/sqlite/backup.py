"""Backups of the journal: a copy made while sessions run, and putting one back.

SQLite keeps the latest writes in a log beside the file, and would apply the log of one file to
another of the same name. So the backup is checked and prepared elsewhere. It replaces the journal
in one step, while nobody has the journal open and it has no log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct

from acphold.errors import JournalBusyError, JournalError, JournalUnavailableError
from acphold.record.journal import bounds
from acphold.record.journal.sqlite import checks, eras, file_system, leases
from acphold.record.journal.sqlite.connection import Connection, connect, is_busy, writing
from acphold.record.journal.sqlite.file import FAULTS, JournalFile, failure, log_files, upgrade
from acphold.record.journal.sqlite.revocations import carry_over


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
            f"cannot write the copy {path}: {error}; free space on its disk, or name another place"
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
                f"the copy is damaged ({found[0]}); check the journal itself with "
                "`acphold doctor --deep`"
            )
        eras.renew_era(copied)  # positions that the journal gives out later are not in the copy


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


class Restored(Struct, frozen=True):
    """A journal was restored: the new path of the `former` file, if there was one. `is_known` is
    True if what it had revoked was carried over, and so the tokens and shares may be good."""

    former: str | None
    is_known: bool


def restore_file(path: str, backup: str, *, carries_over: bool) -> Restored:
    """Replace the journal at `path` with a copy of `backup`.

    With `carries_over`, what was revoked in the former journal stays so; otherwise tokens, shares
    and rules are those of the backup. All tokens and shares are held then. Raises JournalBusyError
    if anybody has it open, with nothing changed, and JournalError.
    """
    if not os.path.isfile(backup):
        raise JournalUnavailableError(f"{backup} does not exist or is not a file; name a backup")
    if os.path.exists(path) and os.path.samefile(path, backup):
        raise JournalUnavailableError(f"{backup} is the journal itself; name its backup")
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".acphold-restore-") as made:
            ready = os.path.join(made, "journal.db")
            for suffix in ("", "-wal"):
                with suppress(*(FileNotFoundError,) if suffix else ()):
                    shutil.copyfile(f"{backup}{suffix}", f"{ready}{suffix}")
            _make_ready(ready, backup)
            with _alone(path) as former:
                is_known = carries_over and carry_over(former, ready)
                write_out(ready)
                aside = _set_aside(path)
                os.replace(ready, path)
        write_out(folder)
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot replace {path} with {backup}: {error.strerror or error}; free space on its "
            "disk, or make its folder writable"
        ) from error
    return Restored(aside, is_known)


def _make_ready(path: str, backup: str) -> None:
    """Check that it is a whole journal, migrate it, and begin a new era."""
    try:
        file = JournalFile.open(path, create=False, busy_seconds=bounds.BUSY_SECONDS)
        if file.connection.older:
            file.close()
            upgrade(path, bounds.BUSY_SECONDS)
            file = JournalFile.open(path, create=False, busy_seconds=bounds.BUSY_SECONDS)
    except FAULTS as error:
        raise failure(error, backup) from error
    except JournalError as error:  # its words are about the copy, which nobody knows
        raise type(error)(str(error).replace(path, backup)) from error
    try:
        if damage := checks.damage(file.connection):
            raise JournalUnavailableError(
                f"the backup {backup} is damaged ({damage[0]}); restore another one"
            )
        with writing(file.connection):
            eras.renew_era(file.connection)
        file.stand_alone()
    except FAULTS as error:
        raise failure(error, backup) from error
    finally:
        file.close()


@contextmanager
def _alone(path: str) -> Iterator[Connection | None]:
    """During the block nobody else has the journal open, and it has no log; yield a connection to
    it, None if there is no journal or it cannot be read. Raises JournalBusyError."""
    if any(leases.lives(path, id_) for id_ in leases.owner_ids(path)):
        raise _busy(path)
    if not os.path.exists(path):
        yield None
        return
    with ExitStack() as stack:
        former: Connection | None = None
        try:
            file_system.hold(path)
            stack.callback(file_system.let_go, path)  # which would end the connection's locks
            connection = stack.enter_context(closing(connect(path, 0.0)))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # Leaving write-ahead logging takes exclusive access, and keeps others out.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            former = connection
        except sqlite3.Error as error:
            if is_busy(error):
                raise _busy(path) from error
            # It is damaged, maybe the reason for restoring: its log is set aside with it.
        yield former


def _busy(path: str) -> JournalBusyError:
    return JournalBusyError(
        f"the journal {path} is in use; close the editors that use it, stop `acphold serve`, and "
        "try again with --stop, which also stops background processes"
    )


def _set_aside(path: str) -> str | None:
    """Give the journal another name, together with its other files; None if there is no journal."""
    if not os.path.exists(path):
        return None
    aside = f"{path}-before-{datetime.now():%Y-%m-%d-%H%M%S.%f}"
    for file in log_files(path):
        os.replace(file, f"{aside}{file.removeprefix(path)}")
    os.link(path, aside)  # a link, so that there is a journal under the name at all times
    return aside
