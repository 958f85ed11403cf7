"""The journal as a file: creating it, opening it, and explaining its errors.

A file that is not a journal is refused before SQLite may write to it. In a place where nothing can
be written, a journal can still be opened for reading, unless the caller would create it; and one of
an earlier release is only read until somebody has to write: see `upgrade`.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from acphold import errors
from acphold.journal import bounds
from acphold.journal.sql.entry_rows import renew_titles
from acphold.journal.sqlite import file_system, leases
from acphold.journal.sqlite.connection import (
    ALONE,
    READ_ONLY,
    READ_WRITE,
    Connection,
    OpenMode,
    appearance_of,
    connect,
    primary_code,
)
from acphold.journal.sqlite.file_system import network_type
from acphold.journal.sqlite.migrations import (
    complete,
    migrate,
    refuse_altered,
    refuse_newer,
    version_of,
)
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stored_history import DamagedRowError
from acphold.journal_location import NAMED_BY

APPLICATION_ID: Final = 0x61637068
"""`acph`, at offset 68 of every journal. Source: sqlite.org, Database File Format, 1.3."""

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
log = logging.getLogger(__name__)


class LogDeletedError(errors.JournalUnavailableError):
    """The log was deleted under an open journal: close it, and open it again."""


class JournalFile:
    """An open journal.

    `was_open_to_others` is True if anybody else could read it before it was opened now.
    """

    def __init__(
        self, path: str, connection: Connection, held: file_system.HeldJournal, *, was_open: bool
    ) -> None:
        self.path = path
        self._held = held
        self.connection = connection
        self.was_open_to_others = was_open
        self._has_log = connection.access.writes
        self._identity = _identity(path)
        self._own_log = {file: _identity(file) for file in log_files(path)}
        self._log_path = f"{path}-wal"
        self._log = self._own_log.get(self._log_path) if self._has_log else None
        self._has_foreign_log = False
        self._changes = 0

    @classmethod
    def open(cls, path: str, *, create: bool, busy_seconds: float) -> JournalFile:
        """Open the journal at `path`, creating it if needed; one of an earlier release for reading.

        The file gets mode 0600, a missing folder 0700. With `create=False`, a journal in a folder
        without write permission can be read, and one on a full disk by one process at a time.
        Raises JournalBusyError, JournalUnavailableError, NotAJournalError and NewerJournalError;
        then only the file's mode may have changed.
        """
        try:
            return cls._open(path, None, create=create, busy_seconds=busy_seconds)
        except errors.JournalUnavailableError as error:
            # SQLite cannot make the index of its log.
            if create or primary_code(error.__cause__ or error) not in _NO_ROOM:
                raise
            return cls._open(path, ALONE, create=False, busy_seconds=busy_seconds)

    @classmethod
    def _open(
        cls, path: str, access: OpenMode | None, *, create: bool, busy_seconds: float
    ) -> JournalFile:
        with ExitStack() as undo:
            held = file_system.hold(path)
            undo.callback(file_system.let_go, path)
            fresh = _inspect(path, create=create)
            was_open = _make_private(path)
            index = LogIndex.of(path)
            access = access or (READ_WRITE if create else _access(path))
            if access.writes:
                file_system.keep_name(path)
            if other := file_system.other_name(path):
                raise errors.JournalUnavailableError(
                    f"the journal {path} is the same file as {other}, a hard link, and each name "
                    f"would have a log of its own; nothing was changed. Use {other}; or remove "
                    f"{path}, the name that was asked for"
                )
            try:
                connection = connect(path, busy_seconds, access=access)
                undo.callback(connection.close)
                if fresh:
                    # Before write-ahead logging begins, so that the mark is in the file itself from
                    # the start.
                    connection.execute("BEGIN EXCLUSIVE")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute("COMMIT")
                    # This lets the file give room back in pieces, but only once it is rewritten: do
                    # it now, while it is empty. Setting it before the mark would write the file
                    # without the mark.
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    connection.execute("VACUUM")
                refuse_altered(connection, path)
                if access.writes:
                    _write_ahead(connection, path, busy_seconds)
                    if not version_of(connection):
                        # A connection keeps its statements, so these get one of their own.
                        with closing(connect(path, busy_seconds)) as making:
                            migrate(making, path)
                    if index is not None and index.has_lost_to(LogIndex.of(path)):
                        log.error(
                            "the end of %s-wal is missing; the most recent writes are lost", path
                        )
                        with suppress(sqlite3.Error):  # the next one to open it reports it again
                            leases.renew_era(connection)
                            connection.execute(
                                "INSERT OR REPLACE INTO meta VALUES ('log_cut_at', ?)",
                                (time.time_ns() // 1_000_000,),
                            )
                connection.older = complete(connection, path)
                # From here on the connection itself retries.
                connection.execute("PRAGMA busy_timeout = 0")
            except FAULTS as error:
                raise failure(error, path) from error
            undo.pop_all()
        return cls(path, connection, held, was_open=was_open)

    def verify(self) -> None:
        """Raise JournalUnavailableError unless this is still the file at its path, and
        LogDeletedError if its log is gone."""
        self._verify_file()
        self.verify_log()

    def _verify_file(self) -> None:
        """Raise JournalUnavailableError unless this is still the file at its path.

        SQLite continues with a file that was deleted or replaced, and a second connection by the
        same path would apply the log of one file to the other. The check takes 2 µs.
        """
        if _identity(self.path) != self._identity:
            raise errors.JournalUnavailableError(
                f"the journal {self.path} was deleted or replaced while it was in use, so acphold "
                "no longer writes to it; put it back, or restart acphold"
            )
        if self._has_other_content():
            self._set_own_log_aside()
            raise errors.JournalUnavailableError(
                f"the journal {self.path} was overwritten while it was in use, so acphold no "
                "longer writes to it; stop all acphold processes, and restore the backup with "
                "`acphold journal restore`"
            )

    def verify_log(self) -> None:
        """Raise LogDeletedError if the log is not at its path any more; the check takes 1 µs.

        SQLite continues with a log that was deleted, which goes with its last process, while others
        start one of their own. So first all of it is copied into the journal, unless somebody has
        written to another log: with our index that begins only once everything was copied. Raises
        JournalBusyError while a reader delays the copying, and JournalUnavailableError if the
        index, too, is another: then the two logs go apart.
        """
        if self._log is None or (found := _identity(self._log_path)) == self._log:
            return
        log_path, index_path = self._log_path, f"{self.path}-shm"
        self._verify_file()  # the log of a file that was overwritten is set aside
        if found is not None and os.path.getsize(log_path):
            self._has_foreign_log = True
            if _identity(index_path) != self._own_log.get(index_path):
                raise errors.JournalUnavailableError(
                    f"the log {log_path} was deleted while it was in use, and another program has "
                    "begun a new one, so acphold no longer writes to this journal; restart acphold"
                )
        else:
            with self.connection.alone:
                copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if copied[1] != copied[2]:
                raise errors.JournalBusyError(
                    f"the log {log_path} was deleted while a program reads it; try again"
                )
        raise LogDeletedError(
            f"the log {log_path} was deleted while in use; the journal has all that was in it"
        )

    def is_overwritten(self) -> bool:
        """True if the file has other content under the same inode: a backup was copied over it.

        A journal in use has write-ahead logging, and our backups do not. An earlier copy of the
        journal itself has a lower change counter, which otherwise only goes up. Source: sqlite.org,
        Database File Format, 1.3.3 and 1.3.7.
        """
        return _identity(self.path) == self._identity and self._has_other_content()

    def _has_other_content(self) -> bool:
        """The same, for the file that is at its path."""
        if not self._has_log or self._identity is None:
            return False
        changes = self._changes  # before the file is read: another thread may raise it meanwhile
        try:
            header = self._held.read(self.path, self._identity, _HEADER_BYTES)
        except OSError:
            return True
        found = _changes(header)
        if _without_log(header) or found < changes:
            return True
        if found > changes:
            self._changes = found
            file_system.note(self.path, file_system.CHANGES, found)
        return False

    def stays_open(self) -> bool:
        """True if SQLite must not close this file: it would copy the log, if it is the last one to
        close it, into other content, or by the index of another log. So it stays open until the
        process ends, which closes files without SQLite."""
        return self._has_foreign_log or self.is_overwritten()

    def stand_alone(self) -> None:
        """Make the file complete without other files beside it; nobody else may have it open."""
        self.connection.execute("PRAGMA journal_mode = DELETE")
        self._has_log, self._log = False, None

    def close(self) -> None:
        """Close the file, and leave any file that has replaced it untouched.

        For a file that was moved or deleted SQLite takes care of this: it neither copies nor
        removes the log then.
        """
        if self.stays_open():
            if not self._has_foreign_log:
                self._set_own_log_aside()
            abandon(self.connection)
            return
        self.connection.close()
        file_system.let_go(self.path)

    def _set_own_log_aside(self) -> None:
        """Set the log aside unless another process has done that, and has a log of its own now."""
        _set_aside(file for file, own in self._own_log.items() if _identity(file) == own)


def upgrade(path: str, busy_seconds: float) -> None:
    """Bring the journal at `path` to this release, if nobody owns a session in it.

    An owner of an earlier release could not go on, and its editor's next prompt would fail. Raises
    OlderJournalError then, with nothing changed, and FAULTS.
    """
    with closing(connect(path, busy_seconds)) as connection:

        def refuse_owned() -> None:
            # A process that makes its file after this is told that the journal has been upgraded:
            # it becomes an owner in a transaction after ours.
            alive = [id_ for id_ in leases.owner_ids(path) if leases.lives(path, id_)]
            if not alive:
                return
            pids = [
                str(pid)
                for id_, pid in connection.execute("SELECT id, pid FROM owners ORDER BY pid")
                if id_ in alive
            ]
            raise errors.OlderJournalError(path, pids)

        titles = partial(renew_titles, SqliteTables(connection))
        migrate(connection, path, refuse_owned, titles)


def _changes(header: bytes) -> int:
    """SQLite's change counter in this header of a file."""
    return int.from_bytes(header[24:28], "big")


def _without_log(header: bytes) -> bool:
    """True if this header is not of a journal in use; an empty file is about to be written."""
    return header[18:20] != b"\2\2"


def log_files(path: str) -> list[str]:
    """The files that SQLite keeps beside a journal and that exist: its log, and the index of the
    log."""
    return [file for suffix in ("-wal", "-shm") if os.path.exists(file := f"{path}{suffix}")]


def _set_aside(files: Iterable[str]) -> None:
    """Rename files of a log that does not belong to the journal; programs that have them open keep
    them."""
    for file in files:
        with suppress(OSError):
            os.replace(file, f"{file}-of-another-{time.time_ns()}")
            log.error("%s does not belong to the journal beside it, and was renamed", file)


def abandon(connection: sqlite3.Connection) -> None:
    """Keep the connection from ever being closed: see `JournalFile.close`."""
    import ctypes  # late, for a quick start: rarely needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# -- before it is opened ------------------------------------------------------------------------


def _inspect(path: str, *, create: bool) -> bool:
    """True if the file still has to be made a journal; raises if it never can be."""
    if (type_ := network_type(path)) is not None:
        raise errors.JournalUnavailableError(
            f"the journal {path} is on a network file system ({type_}), where neither locks nor "
            f"SQLite's log are reliable; put it on a disk of this machine ({NAMED_BY})"
        )
    with suppress(OSError):
        is_there = os.path.exists(path) and os.stat(path).st_size > 0
        if not is_there and os.stat(f"{path}-wal").st_size > 0:  # SQLite would delete it
            raise errors.JournalUnavailableError(
                f"the journal {path} is gone, but its log {path}-wal still exists and holds the "
                "most recent writes; nothing was changed. Move the journal back, or move the log "
                f"next to the journal. To start a new journal here, move {path}-wal away"
            )
    header, size, has_log, changes = _beginning(path, create=create)
    if not header:
        if not create:
            raise errors.JournalUnavailableError(
                f"the journal {path} is empty; delete the file, or name another ({NAMED_BY})"
            )
        return True
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise errors.NotAJournalError(
            f"{path} is not an acphold journal; it was not changed. Name another file ({NAMED_BY})"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise errors.NotAJournalError(
            f"{path} is a database of another program; it was not changed. "
            f"Name another file ({NAMED_BY})"
        )
    refuse_newer(int.from_bytes(header[60:64], "big"), path)
    changes_now = _changes(header)
    if has_log and (_without_log(header) or changes_now < changes):
        # A backup was copied over a journal in use, or after a crash: SQLite would mix them up.
        _set_aside(log_files(path))
        has_log = False
    if changes_now < changes:
        # Otherwise the next process to open the file would take its log for that of another file.
        file_system.note(path, file_system.CHANGES, changes_now)
    if not has_log and not _has_log(path):
        # A truncated file: SQLite would notice only after writing to it.
        page_bytes = int.from_bytes(header[16:18], "big")
        pages = int.from_bytes(header[28:32], "big")
        if pages * (page_bytes if page_bytes > 1 else 65536) > size:
            raise _damage_error(path, f"it should have {pages} pages, but is shorter")
    return False


def _beginning(path: str, *, create: bool) -> tuple[bytes, int, bool, int]:
    """Create the file if it is missing and `create` is set.

    Return its header and its size; if it has a log, and the change counter noted by other
    processes, both read before the header: somebody may be starting a log and changing the file.
    """
    try:
        if create:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            # SQLite gives the files beside this one the same mode. An existing file is not opened:
            # see raw_bytes.
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
                    if os.access(path, os.R_OK, effective_ids=True):
                        raise errors.ReadOnlyJournalError.of(path) from None
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise errors.NotAJournalError(
                f"{path} is not a regular file; name another ({NAMED_BY})"
            )
        has_log = _has_log(path)
        changes = file_system.read_note(path, file_system.CHANGES)
        header = file_system.read_beside(path, _HEADER_BYTES)
        return header, os.stat(path).st_size, has_log, changes
    except FileNotFoundError as error:
        if not create:
            raise errors.NoJournalError(path) from error
        raise errors.JournalUnavailableError(
            f"cannot create the folder of the journal {path}; name another ({NAMED_BY})"
        ) from error
    except IsADirectoryError as error:
        raise errors.NotAJournalError(
            f"{path} is a folder; name a file in it ({NAMED_BY})"
        ) from error
    except OSError as error:
        raise errors.JournalUnavailableError(
            f"cannot open the journal {path}: {error.strerror}; "
            f"make it readable and writable, or name another ({NAMED_BY})"
        ) from error


def _access(path: str) -> OpenMode:
    """Choose how to open a journal that must not be created; JournalUnavailableError if impossible.

    In a folder without write permission, SQLite cannot make the index of its log. If somebody has
    the journal open, log and index exist already. If neither exists, nobody is writing.
    """
    if os.access(os.path.dirname(path), os.W_OK | os.X_OK, effective_ids=True):
        return READ_WRITE
    if os.path.exists(f"{path}-shm") and os.path.exists(f"{path}-wal"):
        return READ_ONLY
    if _has_log(path):
        raise errors.JournalUnavailableError(
            f"the most recent writes to the journal {path} are in the log beside it, and the "
            "folder is not writable; copy both into a writable folder, and name the copy with "
            "--journal"
        )
    return OpenMode("immutable=1", appearance_of(path))


def _has_log(path: str) -> bool:
    """True if the file is incomplete without its log.

    That is the write-ahead log, or the rollback journal of an interrupted rewrite.
    """
    for suffix in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            if os.stat(f"{path}{suffix}").st_size > 0:
                return True
    return False


def _make_private(path: str) -> bool:
    """Remove the permissions of everybody but the owner; True if there were any."""
    was_open = False
    for file in (path, f"{path}-wal", f"{path}-shm", f"{path}-reserve"):
        # The file may not be ours to change, or not exist.
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(file).st_mode)
            if mode & 0o077:
                os.chmod(file, mode & 0o700)
                was_open = True
    return was_open


def _write_ahead(connection: sqlite3.Connection, path: str, busy_seconds: float) -> None:
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait while another process makes the same change.
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(bounds.LOG_MODE_RETRY_SECONDS)
    if mode != "wal":
        raise errors.JournalUnavailableError(
            f"the folder of {path} does not support write-ahead logging, like some network "
            f"folders; name a local file ({NAMED_BY})"
        )


class LogIndex(Struct, frozen=True):
    """The state of the write-ahead log, according to its index.

    The index outlives a killed process, and lists only what was committed. The log has `frames`, of
    which `copied` are in the journal too. `file` distinguishes one index from the next: the last
    one to close a journal copies everything and removes the index. Source: sqlite.org, WAL-mode
    File Format, 2.
    """

    file: tuple[int, int] | None
    salts: bytes
    frames: int
    copied: int

    @classmethod
    def of(cls, path: str) -> LogIndex | None:
        file = _identity(f"{path}-shm")
        try:
            raw = file_system.read_beside(path, 100, "-shm")
        except OSError:
            return None
        if len(raw) < 100:
            return None
        frames, copied = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (16, 96))
        return cls(file, raw[32:40], frames, copied)

    def has_lost_to(self, found: LogIndex | None) -> bool:
        """True if SQLite, after reading the log, found fewer frames than there were."""
        if found is None or found.file != self.file or self.copied >= self.frames:
            return False
        # A log that was started over has other salts; one that cannot be read has none.
        same = found.salts in (self.salts, bytes(8))
        return same and found.frames < self.frames


# -- errors -------------------------------------------------------------------------------------


Fault: TypeAlias = sqlite3.Error | UnicodeError | msgspec.MsgspecError | DamagedRowError

FAULTS: Final = (sqlite3.Error, UnicodeError, msgspec.MsgspecError, DamagedRowError)
"""Errors of work on a journal: from SQLite; for text that cannot be stored; and, from a damaged
file, for bytes that nobody wrote."""


def failure(error: Fault, path: str) -> errors.JournalError:
    """Turn an error into one for people: which file, what is wrong, what to do."""
    if isinstance(error, UnicodeEncodeError):
        return errors.IllegibleNameError(
            f"{error.object!r} cannot be stored: it is not valid Unicode; correct it"
        )
    if not isinstance(error, sqlite3.Error):
        return _damage_error(path, str(error))
    code = primary_code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _NO_TEXT in str(error):
        return _damage_error(path, str(error))
    advice = _ADVICE.get(code, f"name another journal ({NAMED_BY})")
    kind = _KINDS.get(code, errors.JournalUnavailableError)
    return kind(f"the journal {path} cannot be used: {error}; {advice}")


def _damage_error(path: str, how: str) -> errors.NotAJournalError:
    return errors.NotAJournalError(
        f"the journal {path} is damaged ({how}); nothing was changed. Keep a copy, then recover "
        f"what is readable with `sqlite3 {path} .recover`, or name another journal ({NAMED_BY})"
    )


_KINDS: Final = {
    sqlite3.SQLITE_BUSY: errors.JournalBusyError,
    sqlite3.SQLITE_LOCKED: errors.JournalBusyError,
    sqlite3.SQLITE_READONLY: errors.ReadOnlyJournalError,
}

_ADVICE: Final = {
    sqlite3.SQLITE_BUSY: "another program holds it; close that program or try again",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that program or try again",
    sqlite3.SQLITE_FULL: "nothing was half written; free 8 MiB on its disk",
    sqlite3.SQLITE_IOERR: "nothing was half written; check its disk, which is full or failing",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable",
    sqlite3.SQLITE_PERM: "make the file and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "make the file and its folder readable and writable",
}


_NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}

_NO_TEXT: Final = "Could not decode to UTF-8"
"""The message of Python's sqlite3 for text that is not UTF-8; SQLite itself has no code for it."""
