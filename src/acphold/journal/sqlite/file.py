"""The journal as a file: where it is made, how it is opened, and what its errors mean.

A file that is not a journal of this release is refused before SQLite may write to it. One that lies
where nothing can be written is opened by who makes none, to be read.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import sys
import time
from contextlib import ExitStack, suppress
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from acphold.errors import (
    IllegibleNameError,
    JournalBusyError,
    JournalError,
    JournalUnavailableError,
    NoJournalError,
    NotAJournalError,
    ReadOnlyJournalError,
)
from acphold.journal.location import NAMED_BY
from acphold.journal.packing import DamagedRowError
from acphold.journal.sqlite import file_notes, raw_bytes
from acphold.journal.sqlite.connection import (
    READ_ONLY,
    READ_WRITE,
    Access,
    Connection,
    connect,
    primary_code,
)
from acphold.journal.sqlite.file_system import network_type
from acphold.journal.sqlite.migrations import migrate, refuse_newer, refuse_other

APPLICATION_ID: Final = 0x61637068
"""`acph`, at offset 68 of every journal; source: sqlite.org, Database File Format, 1.3."""

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_RETRY_SECONDS: Final = 0.01

log = logging.getLogger(__name__)


class JournalFile:
    """An open journal.

    `was_open_to_others` tells whether anybody else could read it before it was opened now.
    """

    def __init__(self, path: str, connection: Connection, *, was_open: bool) -> None:
        self.path = path
        self.connection = connection
        self.was_open_to_others = was_open
        self._has_log = connection.access is READ_WRITE
        self._identity = _identity(path)
        self._changes = 0

    @classmethod
    def open(cls, path: str, *, create: bool, busy_seconds: float) -> JournalFile:
        """The journal at `path`, made and migrated if need be.

        The file gets mode 0600, a folder that was missing 0700. Unless it is to be made where it
        is missing, one in a folder that cannot be written to can be read. Raises JournalBusyError,
        JournalUnavailableError, NotAJournalError and NewerJournalError; then the file is as it
        was, but for its mode.
        """
        with ExitStack() as undo:
            raw_bytes.hold(path)
            undo.callback(raw_bytes.let_go, path)
            fresh = _inspect(path, create=create)
            was_open = _made_private(path)
            index = _LogIndex.of(path)
            access = READ_WRITE if create else _access(path)
            try:
                connection = connect(path, busy_seconds, access=access)
                undo.callback(connection.close)
                if fresh:
                    _claim(connection)
                if access is READ_WRITE:
                    _write_ahead(connection, path, busy_seconds)
                    migrate(connection, path)
                    if index is not None and index.has_lost_to(_LogIndex.of(path)):
                        log.error(
                            "the end of %s-wal is missing; what was written last is lost", path
                        )
                        with suppress(sqlite3.Error):  # it is told again by who opens it next
                            connection.execute("DELETE FROM meta WHERE name = 'era'")
                            connection.execute(
                                "INSERT OR REPLACE INTO meta VALUES ('log_cut_at', ?)",
                                (time.time_ns() // 1_000_000,),
                            )
                else:
                    refuse_other(connection, path)
                # From here on the connection itself tries again.
                connection.execute("PRAGMA busy_timeout = 0")
            except FAULTS as error:
                raise failure(error, path) from error
            undo.pop_all()
        return cls(path, connection, was_open=was_open)

    def verify(self) -> None:
        """Raise JournalUnavailableError unless this is still the file at its path.

        SQLite goes on with a file that was deleted or replaced, and a second connection by the same
        path would apply the log of the one to the other. A look takes 2 µs.
        """
        if _identity(self.path) != self._identity:
            raise JournalUnavailableError(
                f"the journal {self.path} was deleted or replaced while it was in use, and takes "
                "nothing more; put it back, or start acphold again"
            )
        if self.is_overwritten():
            _set_log_aside(self.path)
            raise JournalUnavailableError(
                f"the journal {self.path} was overwritten while it was in use, and takes nothing "
                "more; end all of acphold and put the backup there with `acphold restore`"
            )

    def is_overwritten(self) -> bool:
        """Whether the file is another one now under the same number: a backup was copied over it.

        A journal in use has write-ahead logging, and no backup of ours has. In an earlier copy of
        the journal itself the counter of changes is lower, which only goes up. Source: sqlite.org,
        Database File Format, 1.3.3 and 1.3.7.
        """
        if not self._has_log or _identity(self.path) != self._identity:
            return False
        changes = self._changes  # before the file is read: another thread may see more of them
        try:
            header = raw_bytes.read(self.path, _HEADER_BYTES)
        except OSError:
            return True
        found = _changes(header)
        if _without_log(header) or found < changes:
            return True
        if found > changes:
            self._changes = found
            file_notes.note(self.path, file_notes.CHANGES, found)
        return False

    def stand_alone(self) -> None:
        """Have it need no other file beside it; for who is alone with it."""
        self.connection.execute("PRAGMA journal_mode = DELETE")
        self._has_log = False

    def close(self) -> None:
        """Let go of the file, and leave alone what has taken its place.

        Which SQLite sees to: it copies and removes no log of a file that was moved or deleted.
        """
        if self.is_overwritten():
            # Who closes it last would copy the log into what is there now. So it stays open until
            # the process ends, which closes nothing in SQLite's way.
            _set_log_aside(self.path)
            abandon(self.connection)
            return
        self.connection.close()
        raw_bytes.let_go(self.path)


def _changes(header: bytes) -> int:
    """SQLite's counter of changes in a file with this header."""
    return int.from_bytes(header[24:28], "big")


def _without_log(header: bytes) -> bool:
    """Whether a file with this header is of no journal in use; an empty one is being written."""
    return header[18:20] != b"\2\2"


def log_files(path: str) -> list[str]:
    """The files of SQLite's beside a journal that are there: its log, and the index of that."""
    return [file for suffix in ("-wal", "-shm") if os.path.exists(file := f"{path}{suffix}")]


def _set_log_aside(path: str) -> None:
    """Take the log away from a file that it is not of; those who have it open keep it."""
    for file in log_files(path):
        with suppress(OSError):
            os.replace(file, f"{file}-of-another-{time.time_ns()}")
            log.error("%s is not the log of the file %s, and was set aside", file, path)


def abandon(connection: sqlite3.Connection) -> None:
    """Never close it: see `JournalFile.close`."""
    import ctypes  # rare, and an editor waits

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# -- before it is opened ------------------------------------------------------------------------


def _inspect(path: str, *, create: bool) -> bool:
    """Whether the file is yet to become a journal; raises for what can never be one."""
    if (type_ := network_type(path)) is not None:
        raise JournalUnavailableError(
            f"the journal {path} lies on a network file system ({type_}), on which neither locks "
            f"nor SQLite's log can be relied on; put it on a disk of this machine ({NAMED_BY})"
        )
    _refuse_left_log(path)
    try:
        if create:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            # SQLite gives the files it keeps beside this one the same mode. One that is there is
            # not opened: see raw_bytes.
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise NotAJournalError(f"{path} is no file; name another ({NAMED_BY})")
        logged = _has_log(path)
        changes = file_notes.noted(path, file_notes.CHANGES)
        header = raw_bytes.read(path, _HEADER_BYTES)
        size = os.stat(path).st_size
    except FileNotFoundError as error:
        if not create:
            raise NoJournalError(path) from error
        raise JournalUnavailableError(
            f"there is no journal at {path}; its folder cannot be made; name another ({NAMED_BY})"
        ) from error
    except IsADirectoryError as error:
        raise NotAJournalError(f"{path} is a folder; name a file in it ({NAMED_BY})") from error
    except OSError as error:
        raise JournalUnavailableError(
            f"cannot open the journal {path}: {error.strerror}; "
            f"make it readable and writable, or name another ({NAMED_BY})"
        ) from error
    if not header:
        if not create:
            raise JournalUnavailableError(
                f"the journal {path} is empty; delete the file, or name another ({NAMED_BY})"
            )
        return True
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise NotAJournalError(
            f"{path} is not an acphold journal; it was left as it is. "
            f"Name another file ({NAMED_BY})"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise NotAJournalError(
            f"{path} is a database of another program; it was left as it is. "
            f"Name another file ({NAMED_BY})"
        )
    refuse_newer(int.from_bytes(header[60:64], "big"), path)
    # In this order: somebody may just begin one, and change the file.
    if logged and (_without_log(header) or _changes(header) < changes):
        # A backup was copied over a journal in use, or after a crash: SQLite would mix the two.
        _set_log_aside(path)
        logged = False
    if not logged and not _has_log(path):
        # One that is shorter than it says: SQLite would find out only after it wrote.
        page_bytes = int.from_bytes(header[16:18], "big")
        pages = int.from_bytes(header[28:32], "big")
        if pages * (page_bytes if page_bytes > 1 else 65536) > size:
            raise _damaged(path, f"it should have {pages} pages, and ends before")
    return False


def _refuse_left_log(path: str) -> None:
    """Raise JournalUnavailableError for a log whose journal is gone: SQLite would delete it."""
    log_path = f"{path}-wal"
    with suppress(OSError):
        if os.path.exists(path) and os.stat(path).st_size > 0:
            return
        if os.stat(log_path).st_size > 0:
            raise JournalUnavailableError(
                f"the journal {path} is gone, and its log {log_path} is still there, with what was "
                "written last; nothing was changed. Move the journal back, or move the log to "
                f"where the journal is now, beside it. To begin anew here, move {log_path} away"
            )


def _access(path: str) -> Access:
    """How a journal can be opened that is not to be made; JournalUnavailableError if in no way.

    In a folder that cannot be written to, SQLite cannot make the index of its log. Whoever has the
    journal open has both there already; if neither is there, nobody writes.
    """
    if os.access(os.path.dirname(path), os.W_OK | os.X_OK, effective_ids=True):
        return READ_WRITE
    if os.path.exists(f"{path}-shm") and os.path.exists(f"{path}-wal"):
        return READ_ONLY
    if _has_log(path):
        raise JournalUnavailableError(
            f"what was written last to the journal {path} is in the log beside it, and its folder "
            "cannot be written to; copy both into a folder that can, and name the copy with "
            "--journal"
        )
    return Access.immutable(path)


def _has_log(path: str) -> bool:
    """Whether the file stands for itself only together with its log.

    That is the write-ahead log; or what a rewriting was to undo that was cut short.
    """
    for suffix in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            if os.stat(f"{path}{suffix}").st_size > 0:
                return True
    return False


def _made_private(path: str) -> bool:
    """Take the journal away from all but its owner; whether it was open to others."""
    was_open = False
    for file in (path, f"{path}-wal", f"{path}-shm"):
        # Not ours to change, or not there.
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(file).st_mode)
            if mode & 0o077:
                os.chmod(file, mode & 0o700)
                was_open = True
    return was_open


def _claim(connection: sqlite3.Connection) -> None:
    # Before write-ahead logging begins, so that the mark is in the file itself from the start.
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    # It can give room back in pieces if it is rewritten with this: at once, while there is nothing
    # in it. Set before the mark, it would be written without it.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")


def _write_ahead(connection: sqlite3.Connection, path: str, busy_seconds: float) -> None:
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself while another process makes the same change.
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
    if mode != "wal":
        raise JournalUnavailableError(
            f"the folder of {path} does not support write-ahead logging, as some network "
            f"folders do not; name a local file ({NAMED_BY})"
        )


class _LogIndex(Struct, frozen=True):
    """What the index of the write-ahead log says of it.

    The index outlives a killed process, and has no more in it than was committed. `frames` are in
    the log; of these `copied` are in the journal too. `file` tells one index from the next: who
    closes a journal last copies all, and removes it. Source: sqlite.org, WAL-mode File Format, 2.
    """

    file: tuple[int, int] | None
    salts: bytes
    frames: int
    copied: int

    @classmethod
    def of(cls, path: str) -> _LogIndex | None:
        file = _identity(f"{path}-shm")
        try:
            raw = raw_bytes.read(path, 100, "-shm")
        except OSError:
            return None
        if len(raw) < 100:
            return None
        frames, copied = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (16, 96))
        return cls(file, raw[32:40], frames, copied)

    def has_lost_to(self, found: _LogIndex | None) -> bool:
        """Whether SQLite, once it has read the log, has found less in it than there was."""
        if found is None or found.file != self.file or self.copied >= self.frames:
            return False
        # A log that was begun anew has other salts; one that cannot be read has none.
        same = found.salts in (self.salts, bytes(8))
        return same and found.frames < self.frames


# -- errors -------------------------------------------------------------------------------------


Fault: TypeAlias = sqlite3.Error | UnicodeError | msgspec.MsgspecError | DamagedRowError

FAULTS: Final = (sqlite3.Error, UnicodeError, msgspec.MsgspecError, DamagedRowError)
"""What the work on a journal fails with: SQLite; text that cannot be kept; and, of a damaged file,
bytes that nobody has written like that."""


def failure(error: Fault, path: str) -> JournalError:
    """What an error means for a person: which file, what is wrong, what to do."""
    if isinstance(error, UnicodeEncodeError):
        return IllegibleNameError(f"{error.object!r} is not text that can be kept; correct it")
    if not isinstance(error, sqlite3.Error):
        return _damaged(path, str(error))
    code = primary_code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _NO_TEXT in str(error):
        return _damaged(path, str(error))
    advice = _ADVICE.get(code, f"name another journal ({NAMED_BY})")
    kind = _KINDS.get(code, JournalUnavailableError)
    return kind(f"the journal {path} cannot be used: {error}; {advice}")


def _damaged(path: str, how: str) -> NotAJournalError:
    return NotAJournalError(
        f"the journal {path} is damaged ({how}); it was left as it is. Keep a copy, then save "
        f"what can be read with `sqlite3 {path} .recover`, or name another journal ({NAMED_BY})"
    )


_KINDS: Final = {
    sqlite3.SQLITE_BUSY: JournalBusyError,
    sqlite3.SQLITE_LOCKED: JournalBusyError,
    sqlite3.SQLITE_READONLY: ReadOnlyJournalError,
}

_ADVICE: Final = {
    sqlite3.SQLITE_BUSY: "another program holds it; close that program or try again",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that program or try again",
    sqlite3.SQLITE_FULL: "free space on its disk; nothing was half written",
    sqlite3.SQLITE_IOERR: "look after its disk (full, or failing); nothing was half written",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable",
    sqlite3.SQLITE_PERM: "make the file and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "make the file and its folder readable and writable",
}


_NO_TEXT: Final = "Could not decode to UTF-8"
"""What Python's sqlite3 says of a text that is none; SQLite itself has no code for that."""
