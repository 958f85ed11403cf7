"""Connections to the database, and retries of work when a connection is lost.

The loop itself sends the questions that each update waits for: see `pipelines`. Everything else
runs in threads, so that the loop never blocks. Each working thread has a connection to itself, the
most recently used of the free ones. Short work has its own threads, so that it does not wait for
slow work.

A transaction is retried for `RETRY_SECONDS` if the connection was lost, or if the server shuts
down, starts up, has no connection left or cancels the query. If the answer to a commit was lost, it
may have succeeded: work that must not be done twice checks that itself (see `store`). Every wait
has a bound: a connection that stays silent for `QUICK_SECONDS` is cut, because a stopped server
would never answer.

Passwords, `sslmode` and the rest are up to libpq: the URL, `PGPASSWORD`, `~/.pgpass`, a service
file.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from acphold import errors
from acphold.conversation.history.entries import now_ms
from acphold.journal import bounds
from acphold.journal.postgresql.migrations import Line, migrate
from acphold.journal.postgresql.pipelines import Answer, Pipelines
from acphold.journal.postgresql.session_rows import NOW_MS, PostgresqlTables
from acphold.journal.sql.entry_rows import renew_titles
from acphold.journal.sql.store import report_failure
from acphold.journal.stored_history import DamagedRowError
from acphold.journal_location import NAMED_BY

T = TypeVar("T")

_PASSING: Final = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "53300",  # too many connections
        "55P03",  # a lock is not available: somebody is upgrading the journal
        "57014",  # the query was cancelled
        "57P01",  # an administrator shuts the server down
        "57P02",  # another process of the server has crashed
        "57P03",  # the server is starting up, or recovering
        "57P05",  # an idle connection was closed
        "25P03",  # a transaction was idle for too long
    }
)
"""Codes of errors that may pass in a moment. Source: PostgreSQL, appendix A, Error Codes."""

_PASSING_WORDS: Final = (
    *("starting up", "shutting down", "in recovery", "not yet accepting", "not accepting"),
    *("too many", "connection slots", "terminating"),
)
"""Words in the messages of such errors when they occur during connecting."""

Fault = psycopg.Error | UnicodeError | DamagedRowError

FAULTS: Final = (psycopg.Error, UnicodeError, DamagedRowError)
"""Errors of work on a journal."""


class Database:
    """The database at a URL, for one process; creates or upgrades the journal in it."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.url = url
        self.name = public_url(url)
        self._create = create
        self._is_ready = False
        self._preparing = threading.Lock()
        self._quick = _Threads(self, bounds.QUICK_THREADS, bounds.QUICK_SECONDS)
        self._slow = _Threads(self, bounds.SLOW_THREADS, bounds.SLOW_SECONDS)
        self.pipelines = Pipelines(self.connect)
        self._open: set[Line] = set()
        self._free: list[Line] = []
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time there, in ms since the epoch; ours until there was a connection."""
        return now_ms() + self._ahead_ms

    def note_clock(self, theirs: int, began: int) -> None:
        """Note the time that was told there since our `began`. What may be the way to it is no
        difference."""
        ended = now_ms()
        ahead = theirs - (began + ended) // 2
        is_ours = abs(ahead) <= bounds.SAME_CLOCK_MS + ended - began
        self._ahead_ms = 0 if is_ours else ahead

    async def run(self, work: Callable[[Line], T], *, slow: bool = False) -> T:
        """Run `work` with a connection, in a thread; return its result or raise JournalError.

        Returns only when the work is over: a cancellation meanwhile takes effect afterwards.
        """
        lines = self._slow if slow else self._quick
        loop = asyncio.get_running_loop()
        answer: Answer[Future[T]] = Answer()

        def over(future: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(answer.set_result, future)

        lines.submit(work).add_done_callback(over)
        return (await answer.wait()).result()

    def later(self, work: Callable[[Line], object]) -> None:
        """Do slow work in a thread for which nobody waits, and without which nothing is lost."""
        with suppress(errors.JournalUnavailableError):  # it is being closed
            self._slow.submit(work).add_done_callback(report_failure)

    def connect(self) -> Line:
        """Open a new connection, to a journal of this version."""
        given = conninfo_to_dict(self.url)
        more = {name: value for name, value in _DEFAULTS.items() if name not in given}
        if "," in str(given.get("host", "")):  # choose the host that accepts writes
            more.setdefault("target_session_attrs", "read-write")
        line = psycopg.connect(self.url, autocommit=True, prepare_threshold=None, **more)
        try:
            # Behind a pooler the announced process differs from the one that answers. Then nothing
            # is prepared: the next statement may go to yet another one.
            began = now_ms()
            with _Bound(line, bounds.QUICK_SECONDS):
                idle = f"set_config('{_IDLE}', '{bounds.IDLE_SECONDS:g}s', false)"
                row = line.execute(
                    f"SELECT pg_backend_pid(), {NOW_MS},"
                    f" CASE pg_backend_pid() WHEN %s THEN {idle} END",
                    (line.info.backend_pid,),
                ).fetchone()
            assert row is not None
            self.note_clock(row[1], began)
            if row[0] == line.info.backend_pid:
                line.prepare_threshold = 2
            with self._preparing:
                if not self._is_ready:
                    with _Bound(line, bounds.SLOW_SECONDS):
                        titles = partial(renew_titles, PostgresqlTables(line))
                        migrate(line, self.name, titles, create=self._create)
                    self._is_ready = True
        except BaseException:
            line.close()
            raise
        return line

    def take(self) -> tuple[Line, bool]:
        """Take a free connection, or open one; the thread has it until `put_back`. The second value
        is False for a new one."""
        while self._free:
            with suppress(IndexError):  # another thread was quicker
                return self._free.pop(), True
        line = self.connect()
        self._open.add(line)
        return line, False

    def put_back(self, line: Line) -> None:
        """Make the connection free again, or drop it if it is closed."""
        if line.closed:
            self._open.discard(line)
        else:
            self._free.append(line)

    def close_free(self) -> None:
        """Close the free connections: whoever needs one opens another."""
        while self._free:
            with suppress(IndexError):  # another thread was quicker
                line = self._free.pop()
                line.close()
                self.put_back(line)

    async def aclose(self) -> None:
        """Finish the work in progress, and close all connections."""
        await self.pipelines.aclose()
        await asyncio.gather(self._quick.aclose(), self._slow.aclose())
        self._free.clear()
        while self._open:
            self._open.pop().close()


_IDLE: Final = "idle_in_transaction_session_timeout"

_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "acphold",
    "connect_timeout": bounds.CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "client_encoding": "utf8",
}


class Presence:
    """A connection that shows others that this process lives: it holds a lock until it ends.

    `keep_open` opens it again after a loss, with another lock: the server may keep the former one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key = 0
        self._line: Line | None = None
        self._changing = threading.Lock()

    def keep_open(self, beside: Line) -> int | None:
        """Make sure that the connection exists; return the key of its lock, None if it cannot have
        one. If it was lost, the one `beside` it may be as dead, and is cut.

        Call it in a thread. Behind a pooler the lock would belong to whoever gets the connection
        next.
        """
        with self._changing:
            if self._line is not None:
                with suppress(psycopg.Error), _Bound(self._line, bounds.CONNECT_SECONDS):
                    self._line.execute("SELECT 1")
                    return self._key
                self._line.close()
                self._line = None
                _cut(beside)
            line = self._database.connect()
            if line.prepare_threshold is None:
                line.close()
                return None
            key = secrets.randbits(62)
            try:
                with _Bound(line, bounds.CONNECT_SECONDS):
                    line.execute("SELECT pg_advisory_lock(%s)", (key,))
            except psycopg.Error:
                line.close()
                raise
            self._line, self._key = line, key
            return key

    def close(self) -> None:
        """Release the lock: this owner has ended."""
        with self._changing:
            if self._line is not None:
                self._line.close()
                self._line = None


class _Threads:
    """Threads that work on the database."""

    def __init__(self, database: Database, threads: int, bound: float) -> None:
        self._database = database
        self._threads = threads
        self._bound = bound
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._failed_at = -bounds.RETRY_SECONDS

    def submit(self, work: Callable[[Line], T]) -> Future[T]:
        if self._is_closed:  # nobody would close a connection that is opened now
            raise errors.JournalUnavailableError(f"the journal in {self._database.name} is closed")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, "acphold journal")
        return self._executor.submit(self._do, work)

    def _do(self, work: Callable[[Line], T]) -> T:
        name = self._database.name
        # After a recent failure there is no second long wait.
        began = time.monotonic()
        patience = bounds.RETRY_SECONDS if began - self._failed_at > bounds.RETRY_SECONDS else 0.0
        while True:
            line, was_free = None, False
            tried = time.monotonic()
            try:
                line, was_free = self._database.take()
                with _Bound(line, self._bound):
                    done = work(line)
                self._failed_at = -bounds.RETRY_SECONDS
                return done
            except FAULTS as error:
                if line is not None and not line.closed:
                    # Roll back an interrupted transaction. If that fails, libpq may still wait for
                    # the answer to a command that is lost, and refuses all others.
                    with suppress(psycopg.Error):
                        if line.info.transaction_status != pq.TransactionStatus.IDLE:
                            line.rollback()
                    if line.info.transaction_status != pq.TransactionStatus.IDLE:
                        line.close()
                if not is_passing(error):
                    raise failure(error, name) from error
                # Slow work that was cut for its time would be so again.
                is_slow = time.monotonic() - tried >= self._bound > bounds.QUICK_SECONDS
                if was_free and line is not None and line.closed and not is_slow:
                    # So may be the others, as in a machine that has slept. Finding that out has
                    # used up the patience.
                    self._database.close_free()
                elif time.monotonic() >= began + patience:
                    self._failed_at = time.monotonic()
                    raise failure(error, name) from error
            finally:
                if line is not None:
                    self._database.put_back(line)
            time.sleep(bounds.RETRY_PAUSE_SECONDS)

    async def aclose(self) -> None:
        self._is_closed = True
        if (executor := self._executor) is not None:
            self._executor = None
            await asyncio.to_thread(executor.shutdown)


class _Bound:
    """Cuts the connection if the block takes too long; one thread serves all such blocks."""

    _waiting: Final[set[_Bound]] = set()
    _changed: Final = threading.Lock()
    _thread: threading.Thread | None = None

    def __init__(self, line: Line, seconds: float) -> None:
        self._line = line
        self._until = time.monotonic() + seconds

    def __enter__(self) -> None:
        with _Bound._changed:
            _Bound._waiting.add(self)
            if _Bound._thread is None:
                _Bound._thread = threading.Thread(
                    target=_Bound._watch, name="acphold alarm", daemon=True
                )
                _Bound._thread.start()

    def __exit__(self, *raised: object) -> None:
        with _Bound._changed:
            _Bound._waiting.discard(self)

    @classmethod
    def _watch(cls) -> None:
        while True:
            with cls._changed:
                now = time.monotonic()
                for late in [bound for bound in cls._waiting if bound._until <= now]:
                    cls._waiting.discard(late)
                    _cut(late._line)
                if not cls._waiting:
                    cls._thread = None
                    return
            time.sleep(1.0)


def _cut(line: Line) -> None:
    with suppress(OSError, psycopg.Error):
        # Not `close`, which belongs to the thread that is reading: a shutdown wakes it, and
        # `detach` leaves the descriptor to libpq.
        whole = socket.socket(fileno=line.fileno())
        try:
            whole.shutdown(socket.SHUT_RDWR)
        finally:
            whole.detach()


def public_url(url: str) -> str:
    """The URL as people may see it: without password and options.

    Raises JournalUnavailableError if libpq does not understand it.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # The message of libpq contains the URL, so it is not shown.
        raise errors.JournalUnavailableError(
            "PostgreSQL does not understand the URL of the journal; give "
            "postgresql://USER@HOST/DATABASE"
        ) from error
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = parts.get("host") or ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parts.get('dbname') or ''}"


def is_passing(error: Fault) -> bool:
    """True if a retry may succeed in a moment: the connection was lost, or the server is busy."""
    if isinstance(error, psycopg.Error) and (code := error.sqlstate) is not None:
        return code in _PASSING or code.startswith("08")
    if not isinstance(error, psycopg.OperationalError):
        return False
    # libpq gives no code for errors during connecting.
    told = str(error)
    return "FATAL:" not in told or any(words in told for words in _PASSING_WORDS)


def failure(error: Fault, name: str) -> errors.JournalError:
    """Turn an error into one for people: which journal, what is wrong, what to do."""
    if isinstance(error, UnicodeEncodeError):
        return errors.IllegibleNameError(
            f"{error.object!r} cannot be stored: it is not valid Unicode; correct it"
        )
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return errors.IllegibleNameError(
            "a name that contains a NUL character cannot be stored; correct it"
        )
    if isinstance(error, DamagedRowError | UnicodeError):
        return errors.NotAJournalError(
            f"the journal in {name} is damaged ({error}); nothing was changed. Restore a backup, "
            f"or name another journal ({NAMED_BY})"
        )
    assert isinstance(error, psycopg.Error)
    code = error.sqlstate or ""
    usual = errors.JournalUnavailableError, f"name another journal ({NAMED_BY})"
    kind, advice = _ADVICE.get(code, usual)
    if code in _PASSING or code.startswith("08"):
        advice = "try again"
    elif not code:
        # libpq gives no code for errors during connecting.
        advice = next(
            (what for words, what in _REFUSED.items() if words in str(error)),
            "start the server, or check that this machine can reach it",
        )
    if is_passing(error):
        kind = errors.JournalBusyError
    told = error.diag.message_primary or "; ".join(map(str.strip, str(error).splitlines()))
    return kind(f"the journal in {name} cannot be used: {told}; {advice}")


_REFUSED: Final = {
    "password": "give the password of this role in ~/.pgpass or PGPASSWORD",
    "no pg_hba.conf entry": "allow this role to connect from here, in the server's pg_hba.conf",
    "does not exist": "create it there, or name another one (ACPHOLD_JOURNAL)",
}
"""Advice for messages of a server that refuses a connection."""

_ADVICE: Final[dict[str, tuple[type[errors.JournalUnavailableError], str]]] = {
    "25006": (errors.ReadOnlyJournalError, "name the server that accepts writes"),
    "42501": (errors.JournalUnavailableError, "grant this role its permissions: see docs/team.md"),
    "53100": (errors.JournalUnavailableError, "free space on its disk"),
    "53200": (errors.JournalUnavailableError, "give it more memory"),
}
