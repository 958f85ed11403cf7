"""The thread for slow work on a journal: checkpoints, settling, searching; and when to sweep.

The thread of the event loop appends and reads pages, so clients do not wait for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from acphold.errors import JournalError
from acphold.journal import bounds
from acphold.journal.sql.store import report_failure
from acphold.journal.sqlite import file_system
from acphold.journal.sqlite.connection import Connection, OlderFile, connect
from acphold.journal.sqlite.file import FAULTS, JournalFile, abandon, failure
from acphold.journal.sqlite.migrations import complete

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    class HasFile(Protocol):
        """The journal of a file."""

        path: str

        @property
        def is_alone(self) -> bool:
            """True if one connection has the file open alone: then it does all work, in the thread
            of the loop."""

        def connect(self) -> JournalFile:
            """Return the file, which is opened first if it is not open."""

        async def upgrade(self) -> None:
            """Upgrade a file of an earlier release, and open it again."""


T = TypeVar("T")

log = logging.getLogger(__name__)


class Background:
    """One thread with its own connection; both start with the first piece of work.

    Work that writes gives way to the connection of the loop. While there is a `rest`, nothing
    should be written: see `wait_for_rest`.
    """

    def __init__(self, journal: HasFile, busy_seconds: float) -> None:
        self._journal = journal
        self._busy_seconds = busy_seconds
        self._executor: ThreadPoolExecutor | None = None
        self._connection: Connection | None = None
        self._grown = 0
        self.rest: Future[None] | None = None

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread, with the connection; return its result or raise
        JournalError."""
        while True:
            try:
                return await asyncio.wrap_future(self._submit(work))
            except OlderFile:
                await self._journal.upgrade()

    async def in_pieces(
        self,
        work: Callable[[Connection], Iterator[None]],
        seconds: float = inf,
        *,
        makes_room: bool = False,
    ) -> None:
        """Do all of the work, or as much as `seconds` allow; other requests are served in between.
        Work that makes room has the reserve on a full disk.

        `work` gets the connection in the thread, and does one piece with each step. Several short
        pieces are done in a row.
        """
        deadline = time.monotonic() + seconds
        pieces: Iterator[None] | None = None

        def step(connection: Connection) -> bool:
            nonlocal pieces
            if pieces is None:
                pieces = work(connection)
            connection.is_full = is_full
            until = min(deadline, time.monotonic() + connection.piece_seconds)
            try:
                return any(time.monotonic() >= until for _ in pieces)
            except OlderFile:
                pieces = None
                raise

        while True:
            if makes_room:
                file_system.release_reserve(self._journal.path)
            if is_full := file_system.is_nearly_full(self._journal.path):
                self.later(self._checkpoint)  # what is written next takes no room
            if not await self.run(step) or time.monotonic() >= deadline:
                return
            self.has_grown(bounds.PIECE_BYTES // 2)

    async def wait_for_rest(self) -> None:
        """Wait, briefly, until all of a long log is copied; the next write then starts the log
        over."""
        if (rest := self.rest) is not None:
            await asyncio.shield(asyncio.wrap_future(rest))

    def has_grown(self, size: int) -> None:
        """Note that the log grew by `size` bytes; once it has grown enough, it is copied soon."""
        self._grown += size
        if self._grown > bounds.CHECKPOINT_BYTES:
            self._grown = 0
            self.later(self._checkpoint)

    def later(self, work: Callable[[Connection], object]) -> None:
        """Do work in the thread for which nobody waits, and without which nothing is lost."""
        self._submit(work).add_done_callback(report_failure)

    async def shorten_log(self, kept: int | None = None) -> None:
        """Return the room of a log to the disk that takes more than is to be kept."""
        most = bounds.LOG_BYTES_KEPT if kept is None else kept
        await self.in_pieces(lambda db: self._shorten(db, most))

    async def aclose(self) -> None:
        """Finish the submitted work, then end the thread."""
        if self._executor is None:
            return
        try:
            await asyncio.wrap_future(self._executor.submit(self._disconnect))
        except RuntimeError:  # the interpreter ends, and has ended the thread before us
            self._disconnect()
        self._executor.shutdown()
        self._executor = None

    def _submit(self, work: Callable[[Connection], T]) -> Future[T]:
        if self._journal.is_alone:
            from concurrent.futures import Future

            done: Future[T] = Future()
            try:
                done.set_result(self._do(work))
            except Exception as error:
                done.set_exception(error)
            return done
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "acphold journal")
        return self._executor.submit(self._do, work)

    def _do(self, work: Callable[[Connection], T]) -> T:
        file = self._journal.connect()
        # Before anything is read: if the file was replaced, SQLite would apply the log of the old
        # file to the new one.
        file.verify()
        try:
            if self._connection is None and file.connection.access.is_alone:
                self._connection = file.connection
            elif self._connection is None:
                self._connection = connect(
                    file.path,
                    self._busy_seconds,
                    file.connection.alone,
                    gives_way=True,
                    access=file.connection.access,
                )
                if older := file.connection.older:
                    self._connection.older = older
                    if complete(self._connection, file.path) != older:
                        raise OlderFile
            try:
                return work(self._connection)
            finally:
                # Afterwards, even if it failed: it may have seen rows of a newer version.
                self._connection.refuse_newer()
        except FAULTS as error:
            raise failure(error, file.path) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            if self._journal.connect().stays_open():
                abandon(self._connection)
            elif not self._journal.is_alone:
                self._connection.close()
            self._connection = None

    def _checkpoint(self, connection: Connection) -> None:
        """Copy the log into the file, while others read and write.

        Under constant writing no write finds all of it copied, and starts it over. So once it is
        long, what was written last is copied while nobody can write, in any process.
        """
        from acphold.journal.sqlite import write_ahead_log  # late, for a quick start

        if write_ahead_log.copy(connection, bounds.LOG_PAGES_AT_MOST):
            with self._writers_rest(connection):
                write_ahead_log.start_over(connection)

    def _shorten(self, connection: Connection, kept: int) -> Iterator[None]:
        try:
            if os.stat(f"{connection.path}-wal").st_size <= kept:
                return
        except FileNotFoundError:
            return
        from acphold.journal.sqlite import write_ahead_log  # late, for a quick start

        if write_ahead_log.copy(connection):
            # If somebody reads in it, it keeps its length.
            with self._writers_rest(connection):
                write_ahead_log.start_over(connection)
            yield from write_ahead_log.cut(connection, kept)

    @contextmanager
    def _writers_rest(self, connection: Connection) -> Iterator[None]:
        """Keep the loop's connection from writing during the block, while the loop goes on."""
        from concurrent.futures import Future

        rest: Future[None] = Future()
        self.rest = rest
        try:
            with connection.alone:
                pass  # wait for a write in progress
            yield
        finally:
            self.rest = None
            rest.set_result(None)


class Sweeps:
    """The sweeps of the file by this process: up to a minute after a deletion, so that a volume
    of words is rewritten once for all sessions that leave it.

    It looks for what others have deleted, too; what is there when it looks first was left by
    processes that have ended, and waits no longer.
    """

    def __init__(
        self, has_remains: Callable[[], Awaitable[bool]], sweep: Callable[[], Awaitable[None]]
    ) -> None:
        self._has_remains = has_remains
        self._sweep = sweep
        self._sweeping: asyncio.Task[None] | None = None
        self._first: float | None = 0.0
        self.has_deleted = False
        """True if this process has deleted anything since the last sweep."""

    async def look(self) -> None:
        """Begin a sweep if one is due; to be called every `RENEW_SECONDS`."""
        if self._sweeping is not None and not self._sweeping.done():
            return
        now = time.monotonic()
        try:
            has_remains = await self._has_remains()
        except JournalError:  # the next look may succeed
            return
        if not has_remains:
            self._first = None
        elif self._first is None:
            self._first = now
        elif now - self._first >= bounds.GATHERED_SECONDS - bounds.RENEW_SECONDS:
            self._first = None
            self._sweeping = asyncio.create_task(self._try(), name="sweep")

    async def aclose(self, is_last: Callable[[], bool]) -> None:
        """Sweep now if nobody else is there who will."""
        if self._sweeping is not None:
            await self._sweeping
        if is_last():
            await self._try()

    async def _try(self) -> None:
        try:
            if await self._has_remains():
                self.has_deleted = False
                await self._sweep()
        except JournalError as error:  # whoever opens the journal next does it
            log.warning("deleted sessions are not overwritten yet: %s", error)
