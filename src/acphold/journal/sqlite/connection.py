"""A connection to the journal's file: its settings, its transactions, and its turn to write.

Of all connections to a file, in any process, one writes at a time; the others retry until it is
done. Live work, such as an append while a client watches, must not wait long for slow work. So slow
work *gives way*. It is done in pieces, each a transaction of some milliseconds
(`while_there_is_time`). It retries less often. And once it has held the lock for as long as a piece
takes, it leaves the lock alone for a moment, in which all others get it.

A newer release may change the meaning of rows while this process has the file open. So after each
write by others, a connection checks that the file still has a version that this release knows. A
file of an older release is only read: see `journal.sqlite.migrations`.

If there is no room for the index of SQLite's log, one connection opens the file alone. If nothing
can be written, the file is opened as *immutable*: as a file that nobody writes. SQLite then checks
neither for locks nor for changes, so we do.
"""

# See docs/decisions.md, 12.

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeVar

from msgspec import Struct

from acphold.errors import JournalUnavailableError, ReadOnlyJournalError
from acphold.journal import bounds
from acphold.journal.sqlite.migrations import refuse_newer_by_now

T = TypeVar("T")


class OpenMode(Struct, frozen=True):
    """A way to open a file, in SQLite's terms (sqlite.org, URI Filenames).

    `appearance` is that of an immutable file when it was opened. One connection that `is_alone`
    keeps the index of the log in memory, and all others out. Source: sqlite.org, Write-Ahead
    Logging, 8.
    """

    words: Literal["mode=rw", "mode=ro", "immutable=1"]
    appearance: tuple[int, ...] | None = None
    is_alone: bool = False

    @property
    def writes(self) -> bool:
        return self.words == "mode=rw"


READ_WRITE: Final = OpenMode("mode=rw")
ALONE: Final = OpenMode("mode=rw", is_alone=True)
READ_ONLY: Final = OpenMode("mode=ro")


class OlderFile(Exception):
    """A file of an older release has to be opened again: it was upgraded meanwhile; or it has to
    be upgraded before anything is written."""


class Connection(sqlite3.Connection):
    """A connection made by `connect`; see the module.

    `alone` is held by the connection of this process that writes; a thread that waits for it wakes
    at once. `patience` is how many seconds to block for other programs: 0 in the thread of the
    loop, where `store` waits instead. `writes_of_others` is SQLite's counter of writes by others,
    at the last check. `older` is the version of a file of an earlier release, otherwise 0.
    While it is `beside_turns`, a piece of work holds the lock for less time; while its disk
    `is_full`, a piece is as small as it can be, and so is what it adds to the log.
    """

    path: str
    alone: threading.Lock
    patience: float
    gives_way: bool
    access: OpenMode
    older: int = 0
    beside_turns = False
    is_full = False
    writes_of_others: int | None = None
    _keeps_more = False
    _began = _ended = _held = 0.0

    @property
    def piece_seconds(self) -> float:
        """Time for which a piece of work holds the lock, beyond the step it is in."""
        if self.is_full:
            return 0.0
        return bounds.PIECE_BESIDE_TURNS if self.beside_turns else bounds.PIECE_SECONDS

    def fit_cache(self, sessions: int) -> None:
        """Use a larger cache if one transaction writes to this many sessions."""
        if sessions > bounds.CROWD and not self._keeps_more:
            self._keeps_more = True
            self.execute(f"PRAGMA cache_size = -{bounds.CROWD_CACHE_KIB}")

    def refuse_newer(self) -> None:
        """Raise NewerJournalError if a newer release has upgraded the file.

        Raises OlderFile if this release, or one between, has upgraded an older file; and
        JournalUnavailableError if a file opened as immutable was written.
        """
        looked = self.access.appearance
        if looked is not None and looked != appearance_of(self.path):
            raise JournalUnavailableError(
                f"the journal {self.path} is in a folder where only others can write, and one of "
                "them just did; try again"
            )
        (writes,) = self.execute("PRAGMA data_version").fetchone()
        if writes != self.writes_of_others:
            version = refuse_newer_by_now(self, self.path)
            if self.older and version != self.older:
                raise OlderFile
            self.writes_of_others = writes

    def look(self, question: Callable[[Connection], T]) -> T:
        """Return the answer to a question, which writes nothing."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                answer = question(self)
            except sqlite3.Error as error:
                self._wait(deadline, error)
            else:
                self.refuse_newer()  # afterwards: so the rows just read are of a version we know
                return answer

    def write(self, statement: str, values: tuple[object, ...]) -> int:
        """Execute a statement that is a transaction by itself; return the number of rows written.

        The version is not checked: the statement writes nothing unless a lease stands, and an
        upgrade of the file ends all leases.
        """
        deadline = 0.0
        while True:
            try:
                with self.alone:
                    return self.execute(statement, values).rowcount
            except sqlite3.Error as error:
                deadline = deadline or time.monotonic() + self.patience
                self._wait(deadline, error)

    def begin(self) -> None:
        """Begin a write transaction, and hold `alone`; raises ReadOnlyJournalError, and OlderFile
        if the file has to be upgraded first."""
        if not self.access.writes:  # SQLite would refuse the first statement that writes
            raise ReadOnlyJournalError.of(self.path)
        if self.older:
            raise OlderFile
        if self.gives_way:
            self.rest()
        deadline = time.monotonic() + self.patience
        while True:
            self.alone.acquire()
            try:
                self._began = time.monotonic()
                if self.gives_way:
                    self.execute("PRAGMA busy_timeout = 0")
                self.execute("BEGIN IMMEDIATE")
                self._began = time.monotonic()
                self.refuse_newer()
                return
            except BaseException as error:
                self.end()
                if not isinstance(error, sqlite3.Error):
                    raise
                self._wait(deadline, error)

    def end(self) -> None:
        """End the transaction and release `alone`; uncommitted changes are rolled back."""
        try:
            # A full disk ends the transaction by itself.
            if self.in_transaction:
                self.execute("ROLLBACK")
            if self.gives_way:
                self._be_patient()
        finally:
            self._ended = time.monotonic()
            self._held += self._ended - self._began
            self.alone.release()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Hold `alone` during the block, and wait for no other program."""
        with self.alone:
            self._began = time.monotonic()
            self.execute("PRAGMA busy_timeout = 0")
            try:
                yield
            finally:
                self._be_patient()
                self._ended = time.monotonic()
                self._held += self._ended - self._began

    def rest(self) -> None:
        """Leave the lock alone for a moment, once it was held for as long as a piece takes; beside
        turns for as long as it was: on a busy machine others get to run seldom."""
        rest = max(bounds.REST_SECONDS, self._held if self.beside_turns else 0.0)
        pause = time.monotonic() - self._ended
        if pause < rest and self._held >= self.piece_seconds:
            time.sleep(rest - pause)
        elif pause < rest:
            return
        self._held = 0.0

    def while_there_is_time(self, waiting: deque[T]) -> Iterator[T]:
        """Take items out of `waiting` and yield them, at least one, while this transaction has
        time.

        Others wait for the transaction to end.
        """
        while waiting:
            yield waiting.popleft()
            if not self.has_time():
                return

    def has_time(self) -> bool:
        """True if this transaction has time for another step."""
        return time.monotonic() - self._began < self.piece_seconds

    def _wait(self, deadline: float, error: sqlite3.Error) -> None:
        """Pause if another program holds the file; raise the error if it is another, or time is
        up."""
        if not is_busy(error):
            self.refuse_newer()  # a newer version may be the cause
            raise error
        if time.monotonic() > deadline:
            raise error
        time.sleep(bounds.SELDOM_SECONDS if self.gives_way else bounds.TRY_SECONDS)

    def _be_patient(self) -> None:
        # For reads between transactions: there SQLite itself waits.
        self.execute(f"PRAGMA busy_timeout = {round(self.patience * 1000)}")


def connect(
    path: str,
    patience: float,
    alone: threading.Lock | None = None,
    *,
    gives_way: bool = False,
    access: OpenMode = READ_WRITE,
) -> Connection:
    """Open a connection with our settings; the caller begins and ends transactions."""
    named = path
    if access is not READ_WRITE:
        from pathlib import Path  # late, for a quick start: rarely needed

        named = f"{Path(path).as_uri()}?{access.words}"
    connection = sqlite3.connect(
        named,
        uri=access is not READ_WRITE,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    connection.path = path
    connection.alone = threading.Lock() if alone is None else alone
    connection.patience = patience
    connection.gives_way = gives_way
    connection.access = access
    try:
        _set_up(connection)
    except sqlite3.Error:
        connection.close()  # before the error is handled: it may have a lock
        raise
    return connection


def _set_up(connection: Connection) -> None:
    if connection.access.is_alone:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    # NORMAL: a commit survives a killed process, not a power cut; FULL costs ten times as much.
    connection.execute("PRAGMA synchronous = NORMAL")
    # A checkpoint on a busy disk takes 150 ms, so the background connection does them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    # A commit that frees a hundred megabytes of the log takes 50 to 140 ms; see Background.
    connection.execute("PRAGMA journal_size_limit = -1")
    # Overwrite deleted content: otherwise deleted conversations stay readable in free pages.
    connection.execute("PRAGMA secure_delete = ON")
    # The file may come from elsewhere: it calls none of our functions, and its pages are checked.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = -{bounds.CACHE_KIB}")


class writing:
    """A transaction that commits at the end of the block; an exception rolls it back.

    It holds `connection.alone`, so long work has to give way.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        self._connection.begin()
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            self._connection.end()


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """All reads in the block see the file as of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def appearance_of(path: str) -> tuple[int, ...]:
    """Attributes of a file that any write to it would change."""
    try:
        found = os.stat(path)
    except OSError:  # it is gone
        return ()
    is_open = os.path.exists(f"{path}-shm")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, is_open


def is_busy(error: Exception) -> bool:
    """True if another program held the journal."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: BaseException) -> int:
    """The primary result code of an error from SQLite; 1 (SQLITE_ERROR) if there is none."""
    # The low byte; the others say more about it. Source: sqlite.org, Result and Error Codes.
    return (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
