"""The thread in which a journal does what takes its time: checkpoints, settling, searching.

The thread of the event loop appends and reads pages, so that clients do not wait for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from acphold.journal.file import FAULTS, connect, failure

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

CHECKPOINT_BYTES: Final = 4 << 20
"""Growth of the write-ahead log after which it is copied into the journal file."""

LOG_PAGES_AT_MOST: Final = 16_384
"""Length of the write-ahead log (64 MiB) at which appends wait until it starts over."""

log = logging.getLogger(__name__)


class Background:
    """One thread with a connection of its own; both begin with the first piece of work.

    `writing` is held by whichever connection of this process writes: a thread that waits for it
    is woken at once, whereas SQLite's own lock is only looked at again after a sleep. `verify`
    raises when the file at `path` is no longer the journal.
    """

    def __init__(
        self,
        path: str,
        busy_seconds: float,
        writing: threading.Lock,
        verify: Callable[[], None],
    ) -> None:
        self._path = path
        self._verify = verify
        self._busy_seconds = busy_seconds
        self._writing = writing
        self._executor: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`, which is given the connection in the thread; JournalError."""
        return await asyncio.wrap_future(self._submit(work))

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the journal file, some time soon."""
        self._submit(self._checkpoint).add_done_callback(_report)

    async def aclose(self) -> None:
        """Finish what was submitted, then end the thread."""
        if self._executor is None:
            return
        await asyncio.wrap_future(self._executor.submit(self._disconnect))
        self._executor.shutdown()
        self._executor = None

    def _submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, "acphold journal")
        return self._executor.submit(self._do, work)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # Before anything is read: SQLite would take the log of the journal that was here for that
        # of the file that is here now.
        self._verify()
        try:
            if self._connection is None:
                self._connection = connect(self._path, self._busy_seconds)
            return work(self._connection)
        except FAULTS as error:
            raise failure(error, self._path) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > copied:
            # What was appended meanwhile. The log only starts over once all of it is copied, and
            # this second, short pass has a better chance to find it at rest.
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > max(copied, LOG_PAGES_AT_MOST):
            with self._writing:
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def _report(done: Future[None]) -> None:
    # Nothing is lost when a checkpoint fails: the log keeps what the file does not have yet.
    if not done.cancelled() and (error := done.exception()):
        log.warning("checkpoint of the journal failed: %s", error)
