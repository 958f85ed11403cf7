"""The journal in one SQLite file, which several processes on one machine can use at once.

Short work, such as an append or a page, runs in the thread of the event loop; slow work is handed
to `journal.sqlite.background`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import cache, cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from acphold import errors
from acphold.conversation.history.entries import Run, Segment, now_ms
from acphold.conversation.history.fold import Summary
from acphold.journal import bounds
from acphold.journal.journal import Append, Lease
from acphold.journal.owners import Owner, Whose, clock
from acphold.journal.rows import NewSession, RowChange, RowChanges
from acphold.journal.seams import Grouping, SearchHit, Sought
from acphold.journal.sql import entry_rows, session_tables
from acphold.journal.sql.store import SqlIndex, SqlJournal
from acphold.journal.sql.tables import CODES, Key
from acphold.journal.sqlite import file_system, leases, session_rows
from acphold.journal.sqlite.background import Background, Sweeps
from acphold.journal.sqlite.connection import (
    Connection,
    OlderFile,
    is_busy,
    reading,
    writing,
)
from acphold.journal.sqlite.file import (
    FAULTS,
    JournalFile,
    LogDeletedError,
    failure,
    upgrade,
)
from acphold.journal.sqlite.in_file import SqliteFile
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.stored_history import new_segments
from acphold.journal.stored_journal import APPENDS, ReadTranscript, Transcripts
from acphold.journal_location import journal_path

if TYPE_CHECKING:
    from acphold.journal.sql.usage_sums import PlainSums, Span

T = TypeVar("T")

log = logging.getLogger(__name__)

_COMMIT_BYTES: Final = 2 * 4096
"""Bytes that a small commit adds to the write-ahead log: about two pages."""


@cache
def appending(number: int) -> str:
    """The statement that writes this many segments at once. It writes nothing unless the lease
    stands and the entry before them exists, as it does not in a file that has gone back."""
    of_lease, epoch, before = (f"?{5 * number + place}" for place in (1, 2, 3))
    may_be = (
        f"EXISTS (SELECT 1 FROM leases WHERE session = {of_lease} AND epoch = {epoch})"
        f" AND ({before} & {SEQ_MASK} = 0 OR EXISTS (SELECT 1 FROM segments WHERE key = {before}))"
    )
    if number == 1:
        # A refused row gets a NULL in a NOT NULL column, and OR IGNORE skips it. INSERT … SELECT
        # from the table itself would go through a temporary table: 3 µs more.
        return (
            "INSERT OR IGNORE INTO segments (key, first_seq, at, kind, raw)"
            f" VALUES (?1, CASE WHEN {may_be} THEN ?2 END, ?3, ?4, ?5)"
        )
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * number)
    return (
        "INSERT INTO segments (key, first_seq, at, kind, raw)"
        f" SELECT * FROM (VALUES {rows}) WHERE {may_be}"
    )


def _row(lease: Lease, one: Segment) -> tuple[int, int, int, int | str, bytearray]:
    """The row of a segment."""
    key = lease.number << SEQ_BITS | one.last_seq
    # A bytearray, because for bytes Python 3.11's sqlite3 searches for an adapter.
    return key, one.first_seq, one.at, CODES.get(one.kind, one.kind), bytearray(one.raw)


def _before(lease: Lease, one: Segment) -> int:
    """The key of the entry before a segment."""
    return lease.number << SEQ_BITS | one.first_seq - 1


class SqliteIndex(SqlIndex):
    """The upkeep of the file, beyond that of its tables."""

    def __init__(self, journal: SqliteJournal) -> None:
        super().__init__(journal)
        self._background = journal._background

    async def tidy(self, seconds: float) -> int:
        left = await super().tidy(seconds)
        await self._background.shorten_log()
        return left


class SqliteJournal(SqlJournal[SqliteTables]):
    """A `Journal` in a file.

    Most methods work directly in the thread of the loop: a commit takes less time than a switch of
    threads. Slow work (settling, deleting, searching, folding, checkpoints) runs in a separate
    thread, which starts when it is first needed. While another program holds the file, the caller
    waits, and the loop continues.
    """

    file: SqliteFile
    index = cached_property(SqliteIndex)

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_seconds: float = bounds.BUSY_SECONDS,
        read_transcript: ReadTranscript | None = None,
    ) -> None:
        """A journal that is opened at its first use; raises JournalUnavailableError.

        `read_transcript` reads a session that an import has only listed.
        """
        self.path = journal_path(location)
        self._create = create
        self._busy_seconds = busy_seconds
        self._file: JournalFile | None = None
        self._opening_again = asyncio.Lock()
        self._background = Background(self, busy_seconds)
        self.file = SqliteFile(self.path, self, self._background)
        self._transcripts = Transcripts(self.path, self.session, read_transcript)
        self._hurried = False
        self._verify_at = 0
        self._owner: leases.OwnerFile | None = None  # while it may own something
        self._is_registered = False  # once it has owned something
        self._sweeps = Sweeps(self._has_remains, self.file.sweep)

    @property
    def is_alone(self) -> bool:
        return self._file is not None and self._file.connection.access.is_alone

    def connect(self) -> JournalFile:
        """Open the file if it is not open yet.

        Raises JournalBusyError, JournalUnavailableError, NotAJournalError and NewerJournalError.
        """
        try:
            return self._file or self._connect(self._busy_seconds)
        except errors.JournalBusyError:
            self._hurried = True
            raise

    def _connect(self, busy_seconds: float) -> JournalFile:
        self._file = JournalFile.open(self.path, create=self._create, busy_seconds=busy_seconds)
        self._file.connection.patience = 0.0  # never block the thread of the loop
        if self._create and not self._file.connection.older and self._owner is None:
            # Already now, so that no newer release upgrades the journal before the first session.
            with suppress(errors.JournalUnavailableError):  # told when something is to be owned
                self._owner = leases.OwnerFile(self.path)
        return self._file

    # -- owning ---------------------------------------------------------------------------

    async def _grant(
        self, session_id: str, seen: Whose | None, new: NewSession | None, *, yields: bool
    ) -> Lease:
        def work(tables: SqliteTables) -> Lease:
            if self._owner is None:
                self._owner = leases.OwnerFile(self.path)
            own_id = self._owner.id
            if not self._is_registered:
                self._owner.keep()
                leases.forget_dead(tables.connection, own_id)
                leases.register(tables.connection, own_id, self._addresses, retired=self._retired)
            if new is None:
                number, _ = tables.find_settled(session_id)
            else:
                number = tables.create(new)
            lease = leases.grant(tables.connection, session_id, number, own_id, seen, yields=yields)
            if new is not None:
                session_tables.change_row(tables, number, RowChange(home=lease.journal))
            return lease

        now = clock()
        lease = await self._write(work)
        if not self._is_registered:
            self._is_registered, self.late_at = True, now + bounds.TRUSTED_SECONDS
        # After the commit: noting a grant that is rolled back would look like a file gone back.
        file_system.note(self.path, file_system.EPOCH, lease.epoch)
        return lease

    async def owner(self, session_id: str) -> Whose:
        own_id = None if self._owner is None else self._owner.id
        return await self._ask(lambda tables: leases.whose(tables.connection, session_id, own_id))

    async def _stands(self, lease: Lease) -> bool:
        return await self._when_free(partial(self._holds, lease))

    def _holds(self, lease: Lease) -> bool:
        connection = (self._file or self._connect(0.0)).connection
        values = lease.number, lease.epoch
        statement = "SELECT 1 FROM leases WHERE session = ? AND epoch = ?"
        return connection.execute(statement, values).fetchone() is not None

    async def _report(self, held: Sequence[Lease]) -> list[errors.LeaseLostError]:
        if self._owner is None:
            return []
        self._owner.keep()
        file_system.keep_reserve(self.path)
        await self._sweeps.look()
        if not self._is_registered:
            return []
        own_id, now = self._owner.id, clock()

        def work(tables: SqliteTables) -> list[errors.LeaseLostError]:
            leases.register(tables.connection, own_id, self._addresses, retired=self._retired)
            return session_tables.all_lost(tables, held)

        lost = await self._write(work)
        self.late_at = now + bounds.TRUSTED_SECONDS
        return lost

    async def owners(self) -> list[Owner]:
        return await self._ask(lambda tables: leases.all_owners(tables.connection))

    async def release(self, lease: Lease) -> None:
        await self._write(lambda tables: session_tables.release_lease(tables, lease))

    # -- writing under a lease ------------------------------------------------------------

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        if self._background.rest is not None:
            await self._background.wait_for_rest()
        began = perf_counter()
        at = now_ms()
        made = new_segments(lease.next_seq, runs, at)
        values: tuple[object, ...] = ()
        size = _COMMIT_BYTES
        for one in made:
            values += _row(lease, one)
            size += len(one.raw)
        values += (lease.number, lease.epoch, _before(lease, made[0]))
        statement = appending(len(made))
        if change is None:
            done = await self._when_free(partial(self._alone, statement, values, at))
            self._hurried = False
        else:

            def with_row(tables: SqliteTables) -> int:
                if done := tables.connection.execute(statement, values).rowcount:
                    session_tables.change_row(tables, lease.number, change)
                return done

            done = await self._write(with_row)
        if not done:
            error = await self._ask(lambda tables: session_tables.loss(tables, lease))
            if isinstance(error, errors.HistoryLostError):
                # Positions after the last entry are void.
                await self._write(lambda tables: leases.renew_era(tables.connection))
            raise error
        lease.next_seq = made[-1].last_seq + 1
        self._background.has_grown(size)
        self._has_appended(lease)
        APPENDS.note(perf_counter() - began)
        return made

    def _alone(self, statement: str, values: tuple[object, ...], at: int) -> int:
        """Execute one statement, which is a transaction by itself and checks the lease; return the
        rows written."""
        file = self._file or self._connect(0.0)
        # Also if the clock was set back.
        if not self._verify_at - bounds.VERIFY_MS <= at < self._verify_at:
            file.verify()
            self._verify_at = at + bounds.VERIFY_MS
        else:
            file.verify_log()
        return file.connection.write(statement, values)

    async def _append_segments(
        self, appends: Sequence[Append], made: Sequence[list[Segment]]
    ) -> list[list[Segment] | errors.LeaseLostError]:
        rows = [
            (
                *(*_row(append.lease, one), append.lease.number, append.lease.epoch),
                _before(append.lease, one),
            )
            for append, segments in zip(appends, made, strict=True)
            for one in segments
        ]

        def work(tables: SqliteTables) -> dict[str, errors.LeaseLostError]:
            tables.connection.fit_cache(len(appends))
            lost: list[errors.LeaseLostError] = []
            if tables.connection.executemany(appending(1), rows).rowcount < len(rows):
                held = [append.lease for append in appends]
                lost = session_tables.all_lost(tables, held, whole=True)
                if any(isinstance(error, errors.HistoryLostError) for error in lost):
                    leases.renew_era(tables.connection)  # positions after the last entry are void
            lost_by_id = {error.session_id: error for error in lost}
            for append in appends:
                if append.change is not None and append.lease.session_id not in lost_by_id:
                    session_tables.change_row(tables, append.lease.number, append.change)
            return lost_by_id

        lost = await self._write(work)
        self._background.has_grown(_COMMIT_BYTES + sum(len(row[4]) for row in rows))
        return [
            lost.get(append.lease.session_id, segments)
            for append, segments in zip(appends, made, strict=True)
        ]

    # -- reading --------------------------------------------------------------------------

    async def read(
        self,
        session_id: str,
        after: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        tail_bytes: int = 0,
        brief: bool = False,
    ) -> list[Segment]:
        def page(tables: SqliteTables) -> list[Segment]:
            # Without a tail one statement reads the entries, and needs no transaction.
            with reading(tables.connection) if tail_bytes else nullcontext():
                return entry_rows.read(
                    tables, session_id, after, limit_bytes, tail_bytes=tail_bytes, brief=brief
                )

        def unsettled_bytes(tables: SqliteTables) -> int:
            number, settled = tables.find_settled(session_id)
            return tables.segments(number).size(settled)

        if tail_bytes > bounds.READ_BYTES and await self._ask(unsettled_bytes) > bounds.READ_BYTES:
            return await self._background.run(lambda db: page(SqliteTables(db)))
        return await self._ask(page)

    async def summary(self, session_id: str) -> Summary:
        found = await self._ask(
            lambda tables: entry_rows.summary_within(tables, session_id, bounds.READ_BYTES)
        )
        return await super().summary(session_id) if found is None else found

    async def changes(
        self, after: str | None, limit: int = 500, *, if_told: bool = False
    ) -> RowChanges:
        file = self._file or self.connect()
        file.verify()
        return await self._ask(lambda tables: session_rows.changes(tables.connection, after, limit))

    # -- deleting -------------------------------------------------------------------------

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        from acphold.journal.sqlite import deletion  # late, for a quick start

        deleted: set[str] = set()
        await self._background.in_pieces(
            lambda db: deletion.delete(db, sessions, idle_since, deleted), makes_room=True
        )
        self._sweeps.has_deleted = True
        ids = (it if isinstance(it, str) else it.session_id for it in sessions)
        return [session_id for session_id in ids if session_id in deleted]

    async def aclose(self) -> None:
        await self._transcripts.aclose()
        if self._owner is not None or self._sweeps.has_deleted:
            await self._sweeps.aclose(self._is_last)
        await self._background.aclose()
        if (owner := self._owner) is not None:
            if self._is_registered:
                file_system.keep_reserve(self.path)
                await self._unregister(owner.id)
            owner.close()
            self._owner, self._is_registered = None, False
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- inside ---------------------------------------------------------------------------

    async def _has_remains(self) -> bool:
        statement = "SELECT EXISTS (SELECT 1 FROM deleted)"
        return bool((await self._ask(lambda tables: tables.execute(statement).fetchone()))[0])

    def _is_last(self) -> bool:
        """True if no other process that may own sessions has the journal open."""
        own = None if self._owner is None else self._owner.id
        others = (id_ for id_ in leases.owner_ids(self.path) if id_ != own)
        return not any(leases.lives(self.path, id_) for id_ in others)

    async def _ask(self, question: Callable[[SqliteTables], T]) -> T:
        return await self._when_free(
            lambda: (self._file or self._connect(0.0)).connection.look(
                lambda db: question(SqliteTables(db))
            )
        )

    async def _at_one_moment(
        self, question: Callable[[SqliteTables], T], *, slow: bool = False
    ) -> T:
        def answer(db: Connection) -> T:
            with reading(db):
                return question(SqliteTables(db))

        return await self._background.run(answer)

    async def _slowly(self, work: Callable[[SqliteTables], T]) -> T:
        if done := await self._background.run(lambda db: work(SqliteTables(db))):
            self._background.has_grown(bounds.PIECE_BYTES)
        return done

    def _later(self, work: Callable[[SqliteTables], object]) -> None:
        self._background.later(lambda db: work(SqliteTables(db)))

    async def _write(self, work: Callable[[SqliteTables], T], *, slow: bool = False) -> T:
        def attempt() -> T:
            file = self._file or self._connect(0.0)
            file.verify()
            self._verify_at = now_ms() + bounds.VERIFY_MS
            with writing(file.connection) as connection:
                return work(SqliteTables(connection))

        if self._background.rest is not None:
            await self._background.wait_for_rest()
        done = await self._when_free(attempt)
        self._hurried = False
        return done

    def _search(self, tables: SqliteTables, sought: Sought | str) -> list[SearchHit]:
        # Late, for a quick start.
        from acphold.journal.sql.search import search
        from acphold.journal.sqlite.search import find_in_index

        return search(tables, sought, partial(find_in_index, known={}))

    def _kept_sums(
        self, tables: SqliteTables, by: Grouping, agents: tuple[str, ...]
    ) -> tuple[list[PlainSums], list[Span]]:
        from acphold.journal.sqlite import usage_blocks  # late, for a quick start

        return usage_blocks.kept_sums(tables, by, agents)

    def _make_block(self, tables: SqliteTables) -> bool:
        from acphold.journal.sqlite import usage_blocks  # late, for a quick start

        return usage_blocks.make_next(tables)

    def _unindex(
        self, tables: SqliteTables, key: Key, found: Sequence[Segment], *, overwrites: bool
    ) -> None:
        # Late, for a quick start.
        from acphold.journal.sqlite import deletion, row_texts, search_index

        (tenant,) = tables.execute(
            "SELECT tenant FROM sessions WHERE number = %s", (key,)
        ).fetchone()
        search_index.unindex(tables.connection, int(key), tenant, search_index.documents(found))
        if overwrites:
            row_texts.drop(tables, int(key))
            deletion.leave_to_sweep(tables.connection)
            self._sweeps.has_deleted = True

    async def _index(self, seconds: float, lease: Lease | None = None, since: int = 0) -> None:
        from acphold.journal.sqlite import search_index  # late, for a quick start

        number = None if lease is None else lease.number
        await self._background.in_pieces(lambda db: search_index.index(db, number, since), seconds)

    async def _when_free(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, retried while another program holds the file.

        The loop continues meanwhile. Once a wait was in vain, the next ones are short until a write
        succeeds.
        """
        deadline = 0.0
        while True:
            busy: Exception
            file = self._file
            try:
                return attempt()
            except LogDeletedError as error:
                async with self._opening_again:
                    if file is not None and self._file is file:
                        log.error("%s", error)
                        await self._close(file)
                continue
            except OlderFile:
                await self.upgrade()
                continue
            except errors.JournalBusyError as error:  # opening it
                busy = error
            except FAULTS as error:
                if not is_busy(error):
                    raise failure(error, self.path) from error
                busy = failure(error, self.path)
                busy.__cause__ = error
            now = time.monotonic()
            patience = bounds.HURRIED_SECONDS if self._hurried else self._busy_seconds
            deadline = deadline or now + patience
            if now >= deadline:
                self._hurried = True
                raise busy
            await asyncio.sleep(bounds.TRY_SECONDS)

    async def upgrade(self) -> None:
        """Bring a file of an earlier release to this one; raises OlderJournalError while a process
        of that release owns sessions."""
        async with self._opening_again:
            file = self._file
            if file is not None and file.connection.older:  # nobody did it while we waited
                await self._when_free(partial(upgrade, self.path, 0.0))
                await self._close(file)

    async def _close(self, file: JournalFile) -> None:
        """Close the file; the next access opens it."""
        await self._background.aclose()
        self._file = None
        file.close()
