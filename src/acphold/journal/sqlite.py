"""The journal in one SQLite file, which several processes on one machine can use at once.

What is short, such as an append or a page, is done in the thread of the event loop; what takes its
time is handed to `journal.background`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeVar

from acphold.errors import JournalBusyError, JournalError
from acphold.journal import (
    leases,
    list_page,
    packed_rows,
    search_index,
    segments,
    session_rows,
    token_usage,
    unread,
    upkeep,
)
from acphold.journal.background import CHECKPOINT_BYTES, Background
from acphold.journal.entries import PastEntry, Run, Segment, in_one
from acphold.journal.file import FAULTS, Fault, JournalFile, failure, is_busy, writing
from acphold.journal.fold import SessionState, Summary
from acphold.journal.journal import (
    LEASE_SECONDS,
    READ_BYTES,
    Holder,
    Lease,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    SearchHit,
    SessionRow,
    SessionUsage,
    Sought,
)
from acphold.journal.location import journal_path
from acphold.journal.migrations import SEQ_BITS
from acphold.journal.segments import CODES
from acphold.journal.session_rows import now_ms

T = TypeVar("T")

BUSY_SECONDS: Final = 5.0
"""How long to wait for another process that writes before an operation fails."""

HURRIED_SECONDS: Final = 0.1
"""How long to wait after having waited in vain."""

VERIFY_MS: Final = 500
"""How long appends may go into a file that was deleted, at most; a look at it takes 2 µs."""

_COMMIT_BYTES: Final = 2 * 4096
"""What a small commit adds to the write-ahead log: two pages, more or less."""


@cache
def appending(number: int) -> str:
    """The statement that writes so many segments at once, if the lease stands."""
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * number)
    return (
        f"INSERT INTO segments (key, first_seq, at, kind, raw) SELECT * FROM (VALUES {rows})"
        " WHERE EXISTS (SELECT 1 FROM leases WHERE session = ? AND epoch = ?)"
    )


class SqliteJournal:
    """A `Journal` in a file.

    Most methods do their work at once, on the thread of the loop: a commit takes less time than a
    change of threads. What may take long (settling, deleting, searching, folding, checkpoints)
    runs in a thread of its own, which begins when there is first need of it.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """A journal that is opened by its first use; raises JournalUnavailableError."""
        self.path = journal_path(location)
        self._create = create
        self._busy_seconds = busy_seconds
        self._file: JournalFile | None = None
        self._writing = threading.Lock()
        self._background = Background(
            self.path, busy_seconds, self._writing, lambda: self.connect().verify()
        )
        self._transcripts = unread.Transcripts(self.path, self.session)
        self._hurried = False
        self._verify_at = 0
        self._grown = 0
        self._cursor_secret: bytes | None = None
        self._seen_version: tuple[int, ...] = ()
        self._verified: set[int] = set()  # epochs of leases that stood at that version

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> SqliteJournal:
        """The journal at a path or `sqlite:` URL, made if it is missing and `create` is set.

        Raises JournalBusyError, JournalUnavailableError, NotAJournalError and NewerJournalError.
        """
        journal = cls(location, create=create, busy_seconds=busy_seconds)
        journal.connect()
        return journal

    def connect(self) -> JournalFile:
        """Open the file, if it is not open yet; raises as `open` does."""
        if self._file is None:
            seconds = HURRIED_SECONDS if self._hurried else self._busy_seconds
            try:
                self._file = JournalFile.open(self.path, create=self._create, busy_seconds=seconds)
            except JournalBusyError:
                self._hurried = True
                raise
            if self._hurried:
                self._wait_for(self._busy_seconds)
        return self._file

    @property
    def was_open_to_others(self) -> bool:
        """Whether others could read the journal until it was opened now."""
        return self.connect().was_open_to_others

    @property
    def log_cut_at(self) -> int | None:
        """When a log was found without its end (ms since the epoch); sessions may be missing."""
        return self._look(lambda _: self.connect().log_cut_at())

    @property
    def cursor_secret(self) -> bytes:
        if self._cursor_secret is None:
            self._cursor_secret = self._look(
                lambda db: db.execute(
                    "SELECT value FROM meta WHERE name = 'cursor_secret'"
                ).fetchone()[0]
            )
        return self._cursor_secret

    # -- owning ---------------------------------------------------------------------------

    async def create(self, new: NewSession, owner: str) -> Lease:
        with self._transaction() as db:
            number = session_rows.create(db, new)
            return leases.grant(db, new.session_id, number, owner)

    async def acquire(self, session_id: str, owner: str, seen: int | None = None) -> Lease:
        self._verified.clear()  # one of them may have been for this session
        with self._transaction() as db:
            return leases.acquire(db, session_id, owner, seen)

    async def holder(self, session_id: str) -> Holder:
        return self._look(lambda db: leases.holder(db, session_id))

    async def verify(self, lease: Lease) -> None:
        # While nobody else has written to the file, what stood still stands: one look at a counter
        # in memory instead of a read of two tables.
        version = self._look(lambda db: (id(db), *db.execute("PRAGMA data_version").fetchone()))
        if version != self._seen_version:
            self._seen_version = version
            self._verified.clear()
        if lease.epoch not in self._verified:
            self._look(lambda db: leases.require(db, lease))
            self._verified.add(lease.epoch)

    async def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        with self._under(lease) as db:
            leases.expire(db, lease, now_ms() + round(seconds * 1000))

    async def release(self, lease: Lease) -> None:
        with self._transaction() as db:
            leases.expire(db, lease, 0)

    # -- writing under a lease ------------------------------------------------------------

    async def append(
        self, lease: Lease, kind: str, raws: Sequence[bytes], change: RowChange | None = None
    ) -> Segment:
        made = in_one(lease.next_seq, kind, raws, now_ms())
        self._append(appending(1), self._row(lease, made), lease, made, change)
        return made

    async def append_all(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        made: list[Segment] = []
        values: tuple[object, ...] = ()
        seq, at = lease.next_seq, now_ms()
        for kind, raws in runs:
            made.append(in_one(seq, kind, raws, at))
            values += self._row(lease, made[-1])
            seq = made[-1].last_seq + 1
        self._append(appending(len(made)), values, lease, made[-1], change)
        return made

    def _row(self, lease: Lease, made: Segment) -> tuple[object, ...]:
        self._grown += len(made.raw)
        key = lease.number << SEQ_BITS | made.last_seq
        raw = bytearray(made.raw)  # for bytes, the module of Python 3.11 looks for an adapter
        return (key, made.first_seq, made.at, CODES.get(made.kind, made.kind), raw)

    def _append(
        self,
        statement: str,
        rows: tuple[object, ...],
        lease: Lease,
        last: Segment,
        change: RowChange | None,
    ) -> None:
        values = (*rows, lease.number, lease.epoch)
        if change is None:
            done = self._append_alone(statement, values, last.at)
        else:
            with self._transaction() as db:
                done = db.execute(statement, values).rowcount
                if done:
                    session_rows.change_row(db, lease.number, change)
        if not done:
            raise self._look(lambda db: leases.lost(db, lease))
        lease.next_seq = last.last_seq + 1
        self._has_grown(_COMMIT_BYTES)

    def _append_alone(self, statement: str, values: tuple[object, ...], at: int) -> int:
        """One statement is a transaction by itself, and checks the lease; rows written."""
        file = self._file or self.connect()
        if not self._verify_at - VERIFY_MS <= at < self._verify_at:  # the clock may be set back
            file.verify()
            self._verify_at = at + VERIFY_MS
        try:
            with self._writing:
                done = file.connection.execute(statement, values).rowcount
        except FAULTS as error:
            raise self._failure(error) from error
        if self._hurried:
            self._wait_for(self._busy_seconds)
        return done

    async def take_in(
        self,
        lease: Lease,
        past: Sequence[PastEntry],
        change: RowChange | None = None,
        link: tuple[str, str] | None = None,
        *,
        instead: bool = False,
        release: bool = False,
    ) -> None:
        first_seq = lease.next_seq

        def work(db: sqlite3.Connection) -> int:
            while upkeep.settle_piece(db, lease, first_seq - 1, self._writing):
                pass
            return upkeep.take_in(
                db, lease, past, change, link, self._writing, instead=instead, release=release
            )

        lease.next_seq = await self._background.run(work) + 1
        self._has_grown(upkeep.PIECE_BYTES)

    async def touch(self, lease: Lease, change: RowChange) -> None:
        with self._under(lease) as db:
            session_rows.change_row(db, lease.number, change)

    async def link(self, lease: Lease, agent: str, downstream_id: str) -> None:
        with self._under(lease) as db:
            session_rows.link(db, agent, downstream_id, lease.number)

    async def settle(
        self, lease: Lease, through: int, compacted: Callable[[], None] = lambda: None
    ) -> None:
        def piece(connection: sqlite3.Connection) -> bool:
            return upkeep.settle_piece(connection, lease, through, self._writing)

        while await self._background.run(piece):
            self._has_grown(upkeep.PIECE_BYTES)
        compacted()
        while await self._index(lambda _: lease.number):
            pass
        # One piece of what lags behind: by and by all of it is caught up with.
        await self.catch_up(0)
        old = now_ms() - packed_rows.OLD_MS
        await self.attend(lambda db, alone: packed_rows.pack_piece(db, lease.number, alone, old))
        await self.pack(0)
        await self._background.run(lambda db: upkeep.sweep(db, self._writing))

    async def abandon(self, lease: Lease) -> bool:
        return await self._background.run(lambda db: upkeep.abandon(db, lease, self._writing))

    # -- sessions that an import has listed -----------------------------------------------

    async def enlist(self, found: Sequence[Listed]) -> None:
        await self._background.run(lambda db: unread.enlist(db, found, self._writing))

    async def unread(self, session_id: str) -> bytes | None:
        return self._look(lambda db: unread.source(db, session_id))

    async def all_unread(self) -> dict[str, bytes]:
        return self._look(unread.sources)

    async def give_up(self, session_id: str) -> None:
        await self._background.run(lambda db: unread.give_up(db, session_id, self._writing))

    async def complete(self, session_id: str) -> None:
        if await self.unread(session_id) is not None:
            await self._transcripts.read(session_id)

    # -- reading --------------------------------------------------------------------------

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        return self._look(lambda db: session_rows.find(db, session_id, counted=counted))

    async def resolve(self, prefix: str) -> SessionRow:
        return self._look(lambda db: session_rows.resolve(db, prefix))

    async def read(
        self, session_id: str, after: int, limit_bytes: int = READ_BYTES
    ) -> list[Segment]:
        return self._look(lambda db: _read_on(db, session_id, after, limit_bytes))

    async def followers(self, session_id: str) -> int:
        return self._look(lambda db: upkeep.followers(db, session_id))

    async def is_exact(self, session_id: str, after: int) -> bool:
        return await self._background.run(lambda db: upkeep.is_exact(db, session_id, after))

    async def summary(self, session_id: str) -> Summary:
        if self._look(lambda db: upkeep.unsettled_bytes(db, session_id)) > READ_BYTES:
            return await self._background.run(lambda db: upkeep.summary(db, session_id))
        return self._look(lambda db: upkeep.summary(db, session_id))

    async def state(self, session_id: str, through: int | None = None) -> SessionState:
        return await self._background.run(lambda db: upkeep.state(db, session_id, through))

    async def page(
        self, filter: ListFilter, after: ListKey | None = None, limit: int = 50
    ) -> list[SessionRow]:
        return self._look(lambda db: list_page.page(db, filter, after, limit))

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        from acphold.journal import search  # an editor waits for what is imported above

        asked = Sought(sought) if isinstance(sought, str) else sought
        return await self._background.run(lambda db: search.search(db, asked))

    async def usage(self, *, cwd: str | None = None, since: int = 0) -> list[SessionUsage]:
        return await self._background.run(lambda db: token_usage.usage(db, cwd, since))

    async def lagging(self) -> int:
        return self._look(search_index.lagging)

    async def catch_up(self, seconds: float, since: int = 0) -> int:
        deadline = time.monotonic() + seconds
        while await self._index(lambda db: search_index.newest_lagging(db, since)):
            if time.monotonic() >= deadline:
                break
        return await self.lagging()

    async def _index(self, which: Callable[[sqlite3.Connection], int | None]) -> bool:
        """Index a piece of a session, which is told by its number; False when nothing was left."""

        def piece(db: sqlite3.Connection) -> bool:
            session = which(db)
            return session is not None and search_index.index_piece(db, session, self._writing)

        some = await self._background.run(piece)
        self._has_grown(search_index.PIECE_BYTES)
        return some

    async def pack(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        before = now_ms() - packed_rows.OLD_MS

        def piece(db: sqlite3.Connection) -> bool:
            session = packed_rows.newest_unpacked(db, before)
            return session is not None and packed_rows.pack_piece(db, session, self._writing)

        while await self._background.run(piece):
            self._has_grown(packed_rows.PIECE_BYTES)
            if time.monotonic() >= deadline:
                break
        return self._look(lambda db: packed_rows.unpacked_sessions(db, before))

    async def damage(self) -> list[str]:
        """What is wrong with the file, a sentence each; empty when it is whole. Reads all of it."""
        return await self._background.run(upkeep.damage)

    async def attend(self, work: Callable[[sqlite3.Connection, threading.Lock], T]) -> T:
        """The result of some work on the file, done away from the loop's thread.

        It is given a connection, and the lock that it has to hold while it writes.
        """
        return await self._background.run(lambda db: work(db, self._writing))

    # -- the agent's own ids --------------------------------------------------------------

    async def downstream(self, session_id: str) -> str | None:
        return self._look(lambda db: session_rows.downstream(db, session_id))

    async def linked(self, agent: str, ids: Iterable[str]) -> set[str]:
        return self._look(lambda db: session_rows.linked(db, agent, ids))

    async def session_of(self, agent: str, downstream_id: str) -> str | None:
        return self._look(lambda db: session_rows.session_of(db, agent, downstream_id))

    async def is_forgotten(self, agent: str, downstream_id: str) -> bool:
        return self._look(lambda db: session_rows.is_forgotten(db, agent, downstream_id))

    # -- a person's wishes ----------------------------------------------------------------

    async def set_title(self, session_id: str, title: str | None) -> None:
        with self._transaction() as db:
            session_rows.rename(db, session_id, title)

    async def given_title(self, session_id: str) -> str | None:
        return self._look(lambda db: session_rows.given_title(db, session_id))

    async def set_archived(self, session_id: str, archived: bool) -> None:
        with self._transaction() as db:
            session_rows.archive(db, session_id, archived=archived)

    async def delete(self, session_id: str) -> bool:
        return await self._background.run(lambda db: upkeep.delete(db, session_id, self._writing))

    async def prune(self, session_ids: Iterable[str], idle_since: int) -> list[str]:
        return await self.attend(lambda db, alone: upkeep.prune(db, session_ids, idle_since, alone))

    async def went_on(self, agent: str, times: Mapping[str, int]) -> None:
        if later := self._look(lambda db: session_rows.used_later(db, agent, times)):
            with self._transaction() as db:
                session_rows.move_up(db, later)

    async def forget(self, agent: str, downstream_id: str) -> None:
        with self._transaction() as db:
            session_rows.link(db, agent, downstream_id, None)

    async def aclose(self) -> None:
        await self._transcripts.aclose()
        await self._background.aclose()
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- inside ---------------------------------------------------------------------------

    def _has_grown(self, size: int) -> None:
        """So much more in the write-ahead log: time for a checkpoint?"""
        self._grown += size
        if self._grown > CHECKPOINT_BYTES:
            self._grown = 0
            self._background.checkpoint()

    def _look(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return question(self.connect().connection)
        except FAULTS as error:
            raise failure(error, self.path) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and alone with the lock that lets one write."""
        file = self.connect()
        file.verify()
        try:
            with self._writing, writing(file.connection) as connection:
                yield connection
        except FAULTS as error:
            raise self._failure(error) from error
        if self._hurried:
            self._wait_for(self._busy_seconds)

    @contextmanager
    def _under(self, lease: Lease) -> Iterator[sqlite3.Connection]:
        """A transaction that fails unless the lease stands."""
        with self._transaction() as connection:
            leases.require(connection, lease)
            yield connection

    def _failure(self, error: Fault) -> JournalError:
        """What to raise for an error of SQLite's.

        Who has waited in vain for another program once does not wait so long again before a write
        has succeeded: the event loop stands still meanwhile.
        """
        if is_busy(error):
            self._wait_for(HURRIED_SECONDS)
        return failure(error, self.path)

    def _wait_for(self, seconds: float) -> None:
        self._hurried = seconds < self._busy_seconds
        self.connect().connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _read_on(
    connection: sqlite3.Connection, session_id: str, after: int, limit_bytes: int
) -> list[Segment]:
    number = session_rows.number_of(connection, session_id)
    found = segments.read(connection, number, after, limit_bytes)
    if found:
        found[0] = found[0].after(after)
    return found
