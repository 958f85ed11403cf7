"""The journal in a PostgreSQL database: the seams of `Journal`, and the rules they share.

A transaction that somebody waits for during a turn never touches two sessions, so that they can be
spread over several databases. None keeps state in a connection, so that a pooler may hand it round.
When several sessions append together, these are several transactions on their way at once.
"""

# See docs/decisions.md, 14.

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from time import perf_counter
from typing import TypeVar

from psycopg.errors import UniqueViolation

from acphold.errors import (
    HeldElsewhereError,
    JournalError,
    LeaseLostError,
    SessionExistsError,
)
from acphold.history.entries import PastEntry, Run, Segment
from acphold.journal import frames
from acphold.journal.journal import (
    Append,
    Grouping,
    Index,
    Lease,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    RowChanges,
    SearchHit,
    SessionRow,
    Sought,
    UsageSums,
)
from acphold.journal.latency import APPENDS
from acphold.journal.owners import Owner, Whose
from acphold.journal.postgresql import leases, list_page, segments, session_rows
from acphold.journal.postgresql import usage as usage_rows
from acphold.journal.postgresql.database import Database
from acphold.journal.postgresql.migrations import Line, refuse_newer_by_now
from acphold.journal.postgresql.presence import Presence
from acphold.journal.postgresql.recent_appends import RecentAppends
from acphold.journal.postgresql.tables import PostgresqlTables
from acphold.journal.sql import packed_rows, settled_rows, unread
from acphold.journal.sql.outcomes import outcomes
from acphold.journal.sql.store import SqlJournal
from acphold.journal.sql.tables import Tables
from acphold.journal.stored_history import appended
from acphold.journal.transcripts import ReadTranscript, Transcripts

T = TypeVar("T")

log = logging.getLogger(__name__)


class PostgresqlJournal(SqlJournal):
    """A `Journal` in a database. It is opened at its first use, and never blocks the loop."""

    def __init__(
        self, url: str, *, create: bool = True, read_transcript: ReadTranscript | None = None
    ) -> None:
        """Raises JournalUnavailableError if `url` is not the URL of a database."""
        self._database = Database(url, create=create)
        self._transcripts = Transcripts(url, self.session, read_transcript)
        self._owner_id: str | None = None  # once it has owned something
        self._presence = Presence(self._database)
        self._registering = asyncio.Lock()
        self._addresses: tuple[str, ...] = ()
        self._retired = False
        self._recent = RecentAppends()
        self._place: str | None = None

    # -- owning ---------------------------------------------------------------------------

    async def create(self, new: NewSession, *, yields: bool = False) -> Lease:
        owner_id = await self._registered()
        is_again = False

        def work(line: Line) -> Lease:
            nonlocal is_again
            epoch = leases.next_epoch(line)
            try:
                session_rows.create(line, new, epoch)
            except SessionExistsError:
                # It may be ours: created by the first attempt, whose answer was lost.
                if not is_again or _owner(line, new.session_id) != owner_id:
                    raise
            is_again = True
            return leases.grant(line, new.session_id, owner_id, epoch, yields=yields)

        return await self._write(work)

    async def acquire(
        self, session_id: str, seen: int | None = None, *, yields: bool = False
    ) -> Lease:
        owner_id = await self._registered()
        is_again = False

        def work(line: Line) -> Lease:
            nonlocal is_again
            epoch = leases.next_epoch(line)
            try:
                return leases.grant(line, session_id, owner_id, epoch, seen, yields=yields)
            except HeldElsewhereError:
                if not is_again or _owner(line, session_id) != owner_id:
                    raise
                return leases.grant(line, session_id, owner_id, epoch, yields=yields)
            finally:
                is_again = True

        return await self._write(work)

    async def owner(self, session_id: str) -> Whose:
        if (own_id := self._owner_id) is not None:
            asked = self._database.pipelines.ask(leases.OURS, (session_id, own_id))
            if rows := await asked.wait():
                return leases.ours(rows[0], retired=self._retired)
        own_id, own = self._owner_id, self._addresses
        return await self._look(lambda line: leases.whose(line, session_id, own_id, own))

    async def _registered(self) -> str:
        """Return the id of this owner, registering it first if needed."""
        async with self._registering:
            if self._owner_id is None:
                owner_id = os.urandom(12).hex()
                await self._database.run(self._register(owner_id), slow=True)
                self._owner_id = owner_id
        self._database.pipelines.begin()
        return self._owner_id

    def _register(self, owner_id: str) -> Callable[[Line], None]:
        addresses, retired = self._addresses, self._retired

        def work(line: Line) -> None:
            presence = self._presence.kept()
            with line.transaction():
                leases.register(line, owner_id, addresses, presence, retired=retired)
            leases.forget_dead(line)
            refuse_newer_by_now(line)

        return work

    async def renew(
        self,
        leases_: Iterable[Lease] = (),
        *,
        addresses: Sequence[str] | None = None,
        retiring: bool = False,
    ) -> list[LeaseLostError]:
        self._addresses = self._addresses if addresses is None else (*addresses,)
        self._retired = self._retired or retiring
        held, owner_id = [*leases_], self._owner_id
        if owner_id is None:
            return []
        await self._database.run(self._register(owner_id), slow=True)
        return await self._look(lambda line: self._recent.look(line, held))

    async def owners(self) -> list[Owner]:
        return await self._look(leases.owners)

    async def release(self, lease: Lease) -> None:
        await self._look(lambda line: leases.release(line, lease))

    # -- writing under a lease ------------------------------------------------------------

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        [done] = await self.append_all([Append(lease, [*runs], change)])
        if isinstance(done, LeaseLostError):
            raise done
        return done

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        """Append to each of these sessions in a transaction of its own.

        All are sent before any answer is awaited. For appends without an answer, a thread checks by
        their numbers whether they were written, and sends the others again.
        """
        began = perf_counter()
        made = [appended(append.lease.next_seq, append.runs, 0) for append in appends]
        if not all(made):
            raise ValueError("nothing to append")
        statements = [
            segments.appended(append.lease, its, *session_rows.assignments(append.change))
            for append, its in zip(appends, made, strict=True)
        ]
        pipelines = self._database.pipelines
        if not pipelines.is_ready:
            await pipelines.ready()
        answers = [pipelines.ask(*statement) for statement in statements]
        told: dict[int, int | LeaseLostError] = {}
        for place, answer in enumerate(answers):
            if rows := await answer.wait():
                told[place] = int.from_bytes(rows[0][0] or b"", "big")
        left = [place for place in range(len(appends)) if place not in told]

        def work(line: Line) -> None:
            for place in [place for place in left if place not in told]:
                lease, its = appends[place].lease, made[place]
                at: int | LeaseLostError | None = segments.is_written(line, lease, its)
                if at is None:
                    try:
                        row = line.execute(*statements[place], binary=True).fetchone()
                        if row is None:
                            at = leases.lost(line, lease)
                            if self._recent.write_again(line, lease, at):
                                row = line.execute(*statements[place], binary=True).fetchone()
                        if row is not None:
                            at = int(row[0])
                    except UniqueViolation:
                        # The numbers are taken: by this very append, which was still on its way
                        # when its answer was given up; or by others.
                        at = segments.is_written(line, lease, its)
                told[place] = LeaseLostError(lease.session_id) if at is None else at

        try:
            if left:
                await self._look(work)
        except JournalError as error:
            if not told:
                raise
            # Known results stand. The others are unknown, so they count as lost leases: whoever
            # continues these sessions reads them first.
            log.warning("appends to some sessions may have failed: %s", error)
            for place in left:
                told.setdefault(place, LeaseLostError(appends[place].lease.session_id))
        done: list[list[Segment] | LeaseLostError] = []
        for place, (append, its) in enumerate(zip(appends, made, strict=True)):
            at = told[place]
            if isinstance(at, LeaseLostError):
                done.append(at)
            else:
                append.lease.next_seq = its[-1].last_seq + 1
                self._recent.note(append.lease, its, append.change)
                done.append([_at(one, at) for one in its])
        APPENDS.note(perf_counter() - began)
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

        def work(line: Line) -> int:
            tables = PostgresqlTables(line)
            while settled_rows.settle_piece(tables, lease, first_seq - 1):
                pass
            return settled_rows.take_in(
                tables, lease, past, change, link, instead=instead, release=release
            )

        lease.next_seq = await self._slowly(work) + 1

    async def settle(
        self,
        lease: Lease,
        through: int,
        compacted: Callable[[], None] = lambda: None,
        *,
        apart: Collection[int] = (),
    ) -> None:
        while await self._piece(
            lambda line: settled_rows.settle_piece(PostgresqlTables(line), lease, through, apart)
        ):
            pass
        compacted()
        from acphold.journal.postgresql import search  # late: the import takes a moment

        await self._in_pieces(lambda line: search.index(line, lease.session_id))
        # Index one piece of other sessions that lag: turn by turn, all of them catch up.
        await self._in_pieces(search.index, 0)

        def pack(line: Line) -> bool:
            tables = PostgresqlTables(line)
            old = tables.now() - frames.OLD_MS
            return packed_rows.pack_piece(tables, lease.session_id, old)

        await self._piece(pack)
        await self.index.tidy(0)

    # -- sessions that an import has listed -----------------------------------------------

    async def enlist(self, found: Sequence[Listed]) -> None:
        def work(line: Line) -> None:
            for listed in found:
                with line.transaction():
                    unread.enlist(PostgresqlTables(line), listed)

        await self._slowly(work)

    # -- reading --------------------------------------------------------------------------

    async def page(
        self, filter: ListFilter, after: ListKey | None = None, limit: int = 50
    ) -> list[SessionRow]:
        return await self._look(lambda line: list_page.page(line, filter, after, limit))

    async def without_session(self) -> list[str]:
        """Some of the ids that have entries but no session."""
        return await self._steadily(session_rows.without_session, slow=True)

    async def changes(self, after: int | None, limit: int = 500) -> RowChanges:
        return await self._steadily(lambda line: session_rows.changes(line, after, limit))

    async def outcomes(self, session_ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._look(
            lambda line: outcomes(session_rows.last_of_turns(line, session_ids))
        )

    @cached_property
    def index(self) -> Index:
        return PostgresqlIndex(self)

    # -- deleting -------------------------------------------------------------------------

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        gone: dict[str, None] = {}

        def some(line: Line, session_ids: Sequence[str], *held_by: Lease) -> None:
            for lease in held_by:
                PostgresqlTables(line).require(lease)
            found = session_rows.lock(line, session_ids, idle_since)
            if idle_since is not None and found:
                held = leases.held(line, found)
                found = [session_id for session_id in found if session_id not in held]
            if found:
                session_rows.delete(line, found, as_if_never=bool(held_by))
            wanted = {*found}
            gone.update((it, None) for it in session_ids if it in wanted)

        for is_held, alike in groupby(sessions, key=lambda it: isinstance(it, Lease)):
            left = [*alike]
            most = 1 if is_held else session_rows.DELETED_AT_ONCE
            while left:
                now, left = left[:most], left[most:]
                ids = [it if isinstance(it, str) else it.session_id for it in now]
                by = [it for it in now if isinstance(it, Lease)]
                await self._write(lambda line, ids=ids, by=by: some(line, ids, *by), slow=True)  # type: ignore[misc]
        return [*gone]

    async def place(self) -> str:
        if self._place is None:
            self._place = await self._look(leases.database)
        return self._place

    async def aclose(self) -> None:
        await self._transcripts.aclose()
        if (owner_id := self._owner_id) is not None:
            self._owner_id = None
            try:
                await self._look(lambda line: leases.unregister(line, owner_id))
            except JournalError as exc:  # harmless: others see that our connection has ended
                log.info("the journal still names this process: %s", exc)
        await asyncio.to_thread(self._presence.close)
        await self._database.aclose()

    # -- inside ---------------------------------------------------------------------------

    async def _asked(self, question: Callable[[Tables], T]) -> T:
        return await self._look(lambda line: question(PostgresqlTables(line)))

    async def _at_one_moment(self, question: Callable[[Tables], T]) -> T:
        return await self._steadily(lambda line: question(PostgresqlTables(line)))

    async def _written(self, work: Callable[[Tables], T]) -> T:
        return await self._write(lambda line: work(PostgresqlTables(line)))

    async def _look(self, question: Callable[[Line], T]) -> T:
        """Run a question of one statement, or whose statements need not see the same moment."""
        return await self._database.run(question)

    async def _steadily(self, question: Callable[[Line], T], *, slow: bool = False) -> T:
        """Run a question whose statements all see the journal as of one moment."""

        def asked(line: Line) -> T:
            with line.transaction():
                line.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                return question(line)

        return await self._database.run(asked, slow=slow)

    async def _slowly(self, work: Callable[[Line], T]) -> T:
        """Run slow work, which makes its own transactions."""
        return await self._database.run(work, slow=True)

    async def _piece(self, work: Callable[[Line], T]) -> T:
        """The same, for one of many pieces: a cancellation takes effect after it, before the
        next."""
        done = await self._slowly(work)
        await asyncio.sleep(0)
        return done

    async def _write(self, work: Callable[[Line], T], *, slow: bool = False) -> T:
        """Run `work` in a transaction, all or nothing; return its result."""

        def written(line: Line) -> T:
            with line.transaction():
                return work(line)

        return await self._database.run(written, slow=slow)

    async def _in_pieces(
        self, work: Callable[[Line], Iterator[None]], seconds: float = float("inf")
    ) -> None:
        """Do all of the work, or as much as `seconds` allow; other requests are served in
        between."""
        deadline = time.monotonic() + seconds

        def piece(line: Line) -> bool:
            return any(True for _ in islice(work(line), 1))

        while await self._piece(piece) and time.monotonic() < deadline:
            pass


class PostgresqlIndex(Index):
    """The search, the sums of usage and the upkeep of a journal."""

    def __init__(self, journal: PostgresqlJournal) -> None:
        self._journal = journal

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        from acphold.journal.postgresql import search  # late, for a quick start

        asked = Sought(sought) if isinstance(sought, str) else sought
        return await self._journal._steadily(lambda line: search.search(line, asked), slow=True)

    async def usage(
        self,
        by: Grouping,
        *,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
    ) -> UsageSums:
        return await self._journal._steadily(
            lambda line: usage_rows.sums(line, by, agents, cwd, since), slow=True
        )

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        from acphold.journal.postgresql import search  # late, for a quick start

        if seconds > 0:
            await self._journal._in_pieces(lambda line: search.index(line, since=since), seconds)
        return await self._journal._look(lambda line: search.lagging(line, cwd))

    async def tidy(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds

        def piece(line: Line) -> bool:
            tables = PostgresqlTables(line)
            session_id = packed_rows.newest_unpacked(tables, tables.now() - frames.OLD_MS)
            return session_id is not None and packed_rows.pack_piece(tables, session_id)

        while await self._journal._piece(piece):
            if time.monotonic() >= deadline:
                break

        def left(line: Line) -> int:
            tables = PostgresqlTables(line)
            return packed_rows.unpacked_sessions(tables, tables.now() - frames.OLD_MS)

        return await self._journal._look(left)


def _owner(line: Line, session_id: str) -> str | None:
    row = line.execute(
        "SELECT owner FROM acphold.leases WHERE session_id = %s", (session_id,)
    ).fetchone()
    return None if row is None else str(row[0])


def _at(segment: Segment, at: int) -> Segment:
    return Segment(segment.first_seq, segment.last_seq, segment.kind, at, segment.raw)
