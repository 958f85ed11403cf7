"""A connection to the journal's file: its settings, its transactions, and how several take turns.

Of all connections to a file, in whatever process, one writes at a time; the others try again and
again until it is done. What is live, such as an append while a client looks on, must not wait long
for work that takes its time. So that work *gives way*: it is done in pieces, each of them a
transaction of some milliseconds (`while_there_is_time`); it tries more seldom; and once it has had
the lock for as long as a piece takes, it leaves it alone for a moment, in which all others get it.

A newer release may change what rows mean while this process has the file open. So whoever finds
that others have written looks whether the file is still of a version that this release knows.

Where nothing can be written, not even SQLite's log and its index, a file is read as *immutable*: as
one that nobody writes. SQLite then looks neither for locks nor for changes, so we do.
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
from typing import Final, Literal, NamedTuple, TypeVar

from acphold.errors import JournalUnavailableError, ReadOnlyJournalError
from acphold.journal.sqlite.migrations import refuse_newer_by_now

T = TypeVar("T")


class Access(NamedTuple):
    """How a file is opened, in words of SQLite's (sqlite.org, URI Filenames).

    `appearance` is what an immutable one looked like then.
    """

    words: Literal["mode=rw", "mode=ro", "immutable=1"]
    appearance: tuple[int, ...] | None = None

    @classmethod
    def immutable(cls, path: str) -> Access:
        """That of a file which nobody writes."""
        return cls("immutable=1", _appearance(path))


READ_WRITE: Final = Access("mode=rw")
READ_ONLY: Final = Access("mode=ro")

CACHE_KIB: Final = 2 * 1024
"""What a connection keeps of the file in memory, at most."""

CROWD: Final = 32
CROWD_CACHE_KIB: Final = 8 * 1024
"""The same once more sessions than `CROWD` are written to together. Hundreds that stream write to a
page each: with 2 MiB it was read again for each piece."""

PIECE_SECONDS: Final = 0.01
"""How long a piece of work has the lock, beyond the one step that it is in."""

REST_SECONDS: Final = 0.005
"""How long what gives way leaves the lock alone once it has had it for so long."""

TRY_SECONDS: Final = 0.0005
"""Between two tries to get the lock; several fit into a rest."""

SELDOM_SECONDS: Final = 0.005
"""Between two tries of what gives way."""


class Connection(sqlite3.Connection):
    """See the module; `connect` makes one.

    `alone` is held by whichever connection of this process writes: a thread that waits for it is
    woken at once. `patience` is how many seconds to wait for other programs, in the thread: 0 in
    that of the loop, where `store` waits. `writes_of_others`
    is a number that was another one when somebody else had written, at the last look.
    """

    path: str
    alone: threading.Lock
    patience: float
    gives_way: bool
    access: Access
    writes_of_others: int | None = None
    _keeps_more = False
    _began = _ended = _held = 0.0

    def written_together(self, sessions: int) -> None:
        """So many are written to in one transaction: keep more of the file in memory for many."""
        if sessions > CROWD and not self._keeps_more:
            self._keeps_more = True
            self.execute(f"PRAGMA cache_size = -{CROWD_CACHE_KIB}")

    def refuse_newer(self) -> None:
        """Raise NewerJournalError when a newer release has brought the file to its own version.

        And JournalUnavailableError when a file is written that was taken for immutable.
        """
        looked = self.access.appearance
        if looked is not None and looked != _appearance(self.path):
            raise JournalUnavailableError(
                f"the journal {self.path} lies where only others can write, and they did; try again"
            )
        (writes,) = self.execute("PRAGMA data_version").fetchone()
        if writes != self.writes_of_others:
            refuse_newer_by_now(self, self.path)
            self.writes_of_others = writes

    def look(self, question: Callable[[Connection], T]) -> T:
        """The answer to a question, which writes nothing."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                answer = question(self)
            except sqlite3.Error as error:
                self._wait(deadline, error)
            else:
                self.refuse_newer()  # behind it: what was read then is of a version that we know
                return answer

    def write(self, statement: str, values: tuple[object, ...]) -> int:
        """Execute a statement that is a transaction by itself; how many rows it wrote.

        It writes nothing unless a lease stands, and a new version of the file ends all leases.
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
        """Begin a transaction that writes, and hold `alone`; ReadOnlyJournalError."""
        if self.access is not READ_WRITE:  # SQLite would refuse the first statement that writes
            raise ReadOnlyJournalError(
                f"the journal {self.path} can only be read; make the file and its folder writable"
            )
        if self.gives_way:
            self._rest()
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
        """Let go of `alone`; what was not committed is undone."""
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
        """A block with `alone` held in which no other program is waited for."""
        with self.alone:
            self.execute("PRAGMA busy_timeout = 0")
            try:
                yield
            finally:
                self._be_patient()

    def while_there_is_time(self, waiting: deque[T]) -> Iterator[T]:
        """What waits, taken out one by one: as much as this transaction can do, the first at least.

        Others wait for its end.
        """
        while waiting:
            yield waiting.popleft()
            if time.monotonic() - self._began >= PIECE_SECONDS:
                return

    def _rest(self) -> None:
        pause = time.monotonic() - self._ended
        if pause < REST_SECONDS:
            if self._held < PIECE_SECONDS:
                return
            time.sleep(REST_SECONDS - pause)
        self._held = 0.0

    def _wait(self, deadline: float, error: sqlite3.Error) -> None:
        """Wait a moment for another program; raises the error if it is another, or time is up."""
        if not is_busy(error):
            self.refuse_newer()  # which may be why
            raise error
        if time.monotonic() > deadline:
            raise error
        time.sleep(SELDOM_SECONDS if self.gives_way else TRY_SECONDS)

    def _be_patient(self) -> None:
        # For what is read between two transactions: SQLite itself waits there.
        self.execute(f"PRAGMA busy_timeout = {round(self.patience * 1000)}")


def connect(
    path: str,
    patience: float,
    alone: threading.Lock | None = None,
    *,
    gives_way: bool = False,
    access: Access = READ_WRITE,
) -> Connection:
    """A connection with our settings; the caller opens and closes transactions itself."""
    named = path
    if access is not READ_WRITE:
        from pathlib import Path  # rare, and an editor waits

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
    # NORMAL: a commit survives a killed process, not a power cut; FULL costs ten times as much.
    connection.execute("PRAGMA synchronous = NORMAL")
    # A checkpoint behind a dirty disk takes 150 ms; the background connection makes them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    # To free a hundred megabytes of the log takes a commit 50 to 140 ms; see Background.
    connection.execute("PRAGMA journal_size_limit = -1")
    # What is deleted is overwritten: a deleted conversation is not left in pages that are free.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


@contextmanager
def writing(connection: Connection) -> Iterator[Connection]:
    """A transaction that commits at the end of the block, or is rolled back by an exception.

    It is alone with `connection.alone`; whoever wants that for a long time has to give way.
    """
    connection.begin()
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.end()


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """A block in which all that is read is of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _appearance(path: str) -> tuple[int, ...]:
    """What a write would change of a file that nobody has open."""
    try:
        found = os.stat(path)
    except OSError:  # it is there no more
        return ()
    is_open = os.path.exists(f"{path}-shm")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, is_open


def is_busy(error: Exception) -> bool:
    """Whether another program held the journal."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: Exception) -> int:
    """The primary result code of an error of SQLite's; 1 (SQLITE_ERROR) when there is none."""
    # The low byte; the others say more about it. Source: sqlite.org, Result and Error Codes.
    return (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
