"""The thread in which a journal does what takes its time: checkpoints, settling, searching.

The thread of the event loop appends and reads pages, so that clients do not wait for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from acphold.journal.sqlite.connection import PIECE_SECONDS, Connection, connect
from acphold.journal.sqlite.file import FAULTS, JournalFile, abandon, failure

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

CHECKPOINT_BYTES: Final = 4 << 20
"""Growth of the write-ahead log after which it is copied into the journal file."""

PIECE_BYTES: Final = 512 << 10
"""What a piece of work adds to the log, more or less."""

LOG_PAGES_AT_MOST: Final = 16_384
"""Length of the write-ahead log (64 MiB) from which on writes rest now and then, so that it starts
over."""

LOG_BYTES_KEPT: Final = 16 << 20
"""Size of the log that is kept for the next writes when a burst is over."""

log = logging.getLogger(__name__)


class Background:
    """One thread with a connection of its own; both begin with the first piece of work.

    `file` gives the journal, opened if need be. Work that writes gives way to the connection that
    the loop has.
    """

    def __init__(self, file: Callable[[], JournalFile], busy_seconds: float) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._executor: ThreadPoolExecutor | None = None
        self._connection: Connection | None = None
        self._grown = 0
        self._rest: Future[None] | None = None

    async def run(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, which is given the connection in the thread; JournalError."""
        return await asyncio.wrap_future(self._submit(work))

    async def in_pieces(
        self, work: Callable[[Connection], Iterator[None]], seconds: float = inf
    ) -> None:
        """Do all of some work, or what there is time for; in between, what else is asked for.

        The work is given the connection in the thread, and does a piece with each step; short ones
        are done in a row.
        """
        deadline = time.monotonic() + seconds
        pieces: Iterator[None] | None = None

        def step(connection: Connection) -> bool:
            nonlocal pieces
            if pieces is None:
                pieces = work(connection)
            until = min(deadline, time.monotonic() + PIECE_SECONDS)
            return any(time.monotonic() >= until for _ in pieces)

        while await self.run(step) and time.monotonic() < deadline:
            self.has_grown(PIECE_BYTES)

    @property
    def rests(self) -> bool:
        """Whether nothing should be written just now: see `rested`."""
        return self._rest is not None

    async def rested(self) -> None:
        """Wait until all of a long log is copied, which is soon; the next write begins it anew."""
        if (rest := self._rest) is not None:
            await asyncio.shield(asyncio.wrap_future(rest))

    def has_grown(self, size: int) -> None:
        """So many bytes more are in the log; when they are many, they are copied, soon."""
        self._grown += size
        if self._grown > CHECKPOINT_BYTES:
            self._grown = 0
            self._submit(self._checkpoint).add_done_callback(_report)

    async def shorten_log(self) -> None:
        """Give back to the disk what a burst has made of the log."""
        await self.run(self._shorten)

    async def aclose(self) -> None:
        """Finish what was submitted, then end the thread."""
        if self._executor is None:
            return
        try:
            await asyncio.wrap_future(self._executor.submit(self._disconnect))
        except RuntimeError:  # the interpreter ends, and has ended the thread before us
            self._disconnect()
        self._executor.shutdown()
        self._executor = None

    def _submit(self, work: Callable[[Connection], T]) -> Future[T]:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "acphold journal")
        return self._executor.submit(self._do, work)

    def _do(self, work: Callable[[Connection], T]) -> T:
        file = self._file()
        # Before anything is read: SQLite would take the log of the journal that was here for that
        # of the file that is here now.
        file.verify()
        try:
            if self._connection is None:
                self._connection = connect(
                    file.path,
                    self._busy_seconds,
                    file.connection.alone,
                    gives_way=True,
                    access=file.connection.access,
                )
            try:
                return work(self._connection)
            finally:
                # Behind it: whether it failed or not, it has seen rows of this version or a newer.
                self._connection.refuse_newer()
        except FAULTS as error:
            raise failure(error, file.path) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            if self._file().is_overwritten():
                abandon(self._connection)  # see `JournalFile.close`
            else:
                self._connection.close()
            self._connection = None

    def _checkpoint(self, connection: Connection) -> None:
        """Copy the log into the file, beside whoever reads and writes.

        The log starts over with the first write that finds all of it copied. Under a flood none
        does: so, when it has become long, this process writes nothing during another pass, which
        is short. Not when somebody else reads in the log, and has kept it from being copied: the
        writers would rest in vain.
        """
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == copied and pages > LOG_PAGES_AT_MOST:
            with self._writers_rest(connection):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _shorten(self, connection: Connection) -> None:
        try:
            if os.stat(f"{connection.path}-wal").st_size <= LOG_BYTES_KEPT:
                return
        except FileNotFoundError:
            return
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == copied:
            # The file system takes its time to free so much; where somebody reads on in it, it
            # stays as it is.
            with self._writers_rest(connection), connection.at_once():
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    @contextmanager
    def _writers_rest(self, connection: Connection) -> Iterator[None]:
        """A block in which the loop's connection writes nothing, while the loop goes on."""
        from concurrent.futures import Future

        rest: Future[None] = Future()
        self._rest = rest
        try:
            with connection.alone:
                pass  # a write that had begun is over
            yield
        finally:
            self._rest = None
            rest.set_result(None)


def _report(done: Future[None]) -> None:
    # Nothing is lost when a checkpoint fails: the log keeps what the file does not have yet.
    if not done.cancelled() and (error := done.exception()):
        log.warning("checkpoint of the journal failed: %s", error)
