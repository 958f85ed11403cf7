"""The journal in a PostgreSQL database, and its latest appends, to write again.

A standby that takes over may lack acknowledged writes, unless its server waits for it
(`synchronous_commit`). An append requires the entry before it (see `session_rows.HELD`), so the
owner of a session notices: with its next append, or when it reports to another server. It writes
again the entries that it still has here. Other entries are lost, and positions after them are void
(`journal.lineage`).

A transaction that somebody waits for during a turn never touches two sessions, so that they can be
spread over several databases. None keeps state in a connection, so that a pooler may hand it round.
When several sessions append together, these are several transactions on their way at once.
"""

# See docs/decisions.md, 14 and 22.

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psycopg.errors import LockNotAvailable, UniqueViolation

from acp_wire.newest import Newest
from acphold import errors
from acphold.conversation.history.entries import Segment, now_ms
from acphold.journal import bounds
from acphold.journal.access import AccessChanges
from acphold.journal.journal import Append, Lease, Titled
from acphold.journal.owners import Free, Here, Whose, clock
from acphold.journal.postgresql import changes, leases, session_rows
from acphold.journal.postgresql.database import Database, Presence
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.pipelines import ANNOUNCE
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.rows import NewSession, RowChange, RowChanges
from acphold.journal.seams import Grouping, SearchHit, Sought
from acphold.journal.sql import session_tables
from acphold.journal.sql.session_tables import all_lost
from acphold.journal.sql.store import SqlAccess, SqlJournal, asked, repeat
from acphold.journal.sql.tables import Key, Tables, batches
from acphold.journal.stored_journal import ReadTranscript, Transcripts

if TYPE_CHECKING:
    from acphold.journal.sql.usage_sums import PlainSums, Span

T = TypeVar("T")

log = logging.getLogger(__name__)

_BYTES_OF_ONE: Final = 300
"""Bytes needed to remember one append, beside its content."""


class RecentAppends:
    """The latest appends of this process: see the module.

    Call `note` in the thread of the loop, the others in a worker thread. `server` is the one that
    has answered last; None before the first one.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[str, Sequence[Segment], RowChange | None, int]] = deque()
        self._bytes = 0
        self.server: bytes | None = None
        self._taken: Newest[str, tuple[int, int, str]] = Newest(bounds.TAKEOVERS)

    def note_taken(self, lease: Lease, seen: int | None, owner_id: str) -> None:
        """Remember that the owner has just got this lease, in place of the one whose epoch was
        `seen`."""
        if seen is not None:
            self._taken[lease.session_id] = seen, lease.epoch, owner_id

    def note(self, lease: Lease, made: Sequence[Segment], change: RowChange | None) -> None:
        """Remember segments that were just appended."""
        size = _BYTES_OF_ONE + sum(len(one.raw) for one in made)
        self._kept.append((lease.session_id, made, change, size))
        self._bytes += size
        while self._bytes > bounds.REMEMBERED_BYTES:
            self._bytes -= self._kept.popleft()[3]

    def write_again(self, tables: Tables, lease: Lease, lost: errors.LeaseLostError) -> bool:
        """Write the entries that a database lacks after going back; True if it is whole now.

        If it is not, the era of the journal ends.
        """
        if not isinstance(lost, errors.HistoryLostError):
            return False
        through, end = lost.last_seq, lease.next_seq - 1
        due = []
        for session_id, made, change, _ in self._kept.copy():
            is_next = session_id == lease.session_id and made[0].first_seq == through + 1
            if is_next and through < end:
                due.append((made, change))
                through = made[-1].last_seq
        if through == end:
            seen, epoch, owner_id = self._taken.get(lease.session_id, (None, None, ""))
            if epoch == lease.epoch:  # unless somebody else has taken it since
                leases.take_again(tables, lease, seen, owner_id)
            for made, change in due:
                statement = session_rows.append_statement(lease, made, change)
                # A renewal and an append may see the same, and one of them comes second.
                try:
                    row = tables.execute(*statement).fetchone()
                except UniqueViolation:
                    row = None
                if row is None and session_rows.is_written(tables, lease, made) is None:
                    break
            else:
                log.warning(
                    "the journal has gone back: wrote %d entries of session %s again",
                    end - lost.last_seq,
                    lease.session_id,
                )
                return all_lost(tables, [lease]) == []
        leases.renew_era(tables)
        return False

    def look(self, tables: Tables, held: Iterable[Lease]) -> list[errors.LeaseLostError]:
        """Return the lost leases, after writing missing entries again where possible.

        If another server answers than last time, also checks that no entries are missing. So these
        are all leases of this process.
        """
        # As they are before the database is asked: the loop goes on to append meanwhile.
        wanted = [copy(lease) for lease in held]
        server, was = leases.server(tables), self.server
        lost = all_lost(tables, wanted, whole=server != was)
        self.server = server
        by_id = {lease.session_id: lease for lease in wanted}
        left = [it for it in lost if not self.write_again(tables, by_id[it.session_id], it)]
        if wanted and not left and was not in (None, server):
            leases.vouch(tables, wanted[0].journal)
        return left


class PostgresqlAccess(SqlAccess):
    """The access in a database; each look at what has changed tells the time there."""

    def __init__(self, journal: PostgresqlJournal) -> None:
        super().__init__(journal)
        self._journal = journal

    async def changes(self, after: str | None) -> AccessChanges:
        began = now_ms()
        news = await super().changes(after)
        self._journal._database.note_clock(changes.Position.read(news.last).at * 1000, began)
        return news

    def now_ms(self) -> int:
        return self._journal.now_ms()


class PostgresqlJournal(SqlJournal[PostgresqlTables]):
    """A `Journal` in a database. It is opened at its first use, and never blocks the loop."""

    access = cached_property(PostgresqlAccess)

    def __init__(
        self, url: str, *, create: bool = True, read_transcript: ReadTranscript | None = None
    ) -> None:
        """Raises JournalUnavailableError if `url` is not the URL of a database."""
        self._database = Database(url, create=create)
        self._transcripts = Transcripts(url, self.session, read_transcript)
        self._owner_id: str | None = None  # once it has owned something
        self._presence = Presence(self._database)
        self._registering = asyncio.Lock()
        self._recent = RecentAppends()
        self._positions: Newest[str, tuple[object, float]] | None = None
        """What was heard, and when, as the log of changes was read up to a position; None until it
        is followed."""
        self._announcing: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._announced_at = -bounds.ANNOUNCED_SECONDS
        self._certain_from = clock()
        self._timeline = ""

    def now_ms(self) -> int:
        return self._database.now_ms()

    # -- owning ---------------------------------------------------------------------------

    async def _grant(
        self, session_id: str, seen: Whose | None, new: NewSession | None, *, yields: bool
    ) -> Lease:
        async with self._registering:
            if (owner_id := self._owner_id) is None:
                owner_id = os.urandom(12).hex()
                await self._register(owner_id)
                self._owner_id = owner_id
        self._database.pipelines.begin()
        is_again = False

        def work(tables: Tables) -> Lease:
            nonlocal is_again
            epoch = leases.next_epoch(tables)
            # It may be ours already: by the first attempt, whose answer was lost.
            is_ours = (
                is_again
                and tables.execute(
                    "SELECT 1 FROM acphold.leases WHERE session_id = %s AND owner = %s",
                    (session_id, owner_id),
                ).fetchone()
            )
            is_again = True
            if new is not None and not is_ours:
                session_rows.create(tables, new, epoch)
            known = None if is_ours else seen
            lease = leases.grant(tables, session_id, owner_id, epoch, known, yields=yields)
            if new is not None:
                session_tables.change_row(tables, session_id, RowChange(home=lease.journal))
            return lease

        lease = await self._write(work)
        self._recent.note_taken(lease, None if seen is None else seen.epoch, owner_id)
        return lease

    async def owner(self, session_id: str) -> Whose:
        if (own_id := self._owner_id) is not None:
            asked = self._database.pipelines.ask(leases.OURS, (session_id, own_id))
            if rows := await asked.wait():
                epoch, yields = rows[0]  # in binary
                kind = Free if self._retired or yields == b"\1" else Here
                return kind(int.from_bytes(epoch or b"", "big"))
        own_id, own = self._owner_id, self._addresses
        found = await self._ask(lambda tables: leases.whose(tables, session_id, own_id, own))
        if isinstance(found, leases.Gone):
            from acphold.machine.addresses import are_deserted  # late, for a quick start

            if await are_deserted(found.owner.addresses, bounds.DESERTED_SECONDS):
                return Free(found.epoch)
        return found

    async def _register(self, owner_id: str) -> None:
        addresses, retired, began = self._addresses, self._retired, clock()
        # By itself, as this may cut the connection that it gets: the next work takes another one.
        presence = await self._database.run(self._presence.keep_open, slow=True)

        def work(tables: Tables) -> tuple[bytes, str]:
            since = now_ms()
            with tables.writing():
                here, timeline, at = leases.register(
                    tables, owner_id, addresses, presence, retired=retired
                )
            self._database.note_clock(at, since)
            leases.forget_dead(tables)
            tables.refuse_newer()
            return here, timeline

        server, timeline = await self._database.run(
            lambda line: work(PostgresqlTables(line)), slow=True
        )
        self._recent.server = self._recent.server or server
        was_late, self.late_at = began > self.late_at, began + bounds.TRUSTED_SECONDS
        before, self._timeline = self._timeline, timeline
        if before not in ("", timeline) and was_late:
            # A takeover that this server lacks comes back by then, or its agents are stopped, too.
            self._certain_from = clock() + bounds.TRUSTED_SECONDS

    async def _report(self, held: Sequence[Lease]) -> list[errors.LeaseLostError]:
        owner_id = self._owner_id
        if owner_id is None:
            return []
        began = clock()
        await self._register(owner_id)
        lost = await self._ask(lambda tables: self._recent.look(tables, held)) if held else []
        if began < self._certain_from:
            raise errors.JournalBusyError(
                "the database has failed over; owners of which it knows nothing yet report first"
            )
        return lost

    def _loss(self, tables: PostgresqlTables, lease: Lease) -> errors.LeaseLostError | None:
        lease = copy(lease)  # as it is before the database is asked
        lost = session_tables.loss(tables, lease)
        return None if self._recent.write_again(tables, lease, lost) else lost

    owners = asked(leases.all_owners)
    release = asked(session_tables.release_lease)

    # -- writing under a lease ------------------------------------------------------------

    async def _append_segments(
        self, appends: Sequence[Append], made: Sequence[list[Segment]]
    ) -> list[list[Segment] | errors.LeaseLostError]:
        """Append to each of these sessions in a separate transaction.

        All are sent before any answer is awaited. For appends without an answer, a thread checks by
        their numbers whether they were written, and sends the others again.
        """
        statements = [
            session_rows.append_statement(append.lease, segments, append.change)
            for append, segments in zip(appends, made, strict=True)
        ]
        late = asyncio.get_running_loop().call_later(bounds.UNANSWERED_SECONDS, self.on_unanswered)
        try:
            return await self._append_statements(appends, made, statements)
        finally:
            late.cancel()

    async def _append_statements(
        self,
        appends: Sequence[Append],
        made: Sequence[list[Segment]],
        statements: Sequence[tuple[str, list[Any]]],
    ) -> list[list[Segment] | errors.LeaseLostError]:
        pipelines = self._database.pipelines
        if not pipelines.is_ready:
            await pipelines.ready()
        answers = [pipelines.ask(*statement) for statement in statements]
        # By place: the time of the commit, or the error.
        results: dict[int, int | errors.LeaseLostError] = {}
        for place, answer in enumerate(answers):
            if rows := await answer.wait():
                results[place] = int.from_bytes(rows[0][0] or b"", "big")
        unanswered = [place for place in range(len(appends)) if place not in results]

        def check(tables: PostgresqlTables) -> None:
            for place in unanswered:
                if place not in results:  # a retry keeps what is known
                    lease = appends[place].lease
                    results[place] = self._append_again(
                        tables, lease, made[place], statements[place]
                    )

        try:
            if unanswered:
                await self._ask(check)
        except errors.JournalError as error:
            if not results:
                raise
            # Known results stand. The others are unknown, so they count as lost leases: whoever
            # continues these sessions reads them first.
            log.warning("appends to some sessions may have failed: %s", error)
            for place in unanswered:
                results.setdefault(place, errors.LeaseLostError(appends[place].lease.session_id))
        done: list[list[Segment] | errors.LeaseLostError] = []
        for place, (append, segments) in enumerate(zip(appends, made, strict=True)):
            at = results[place]
            if isinstance(at, errors.LeaseLostError):
                done.append(at)
                continue
            self._recent.note(append.lease, segments, append.change)
            if append.change is not None:
                self._announce()
            done.append(
                [Segment(one.first_seq, one.last_seq, one.kind, at, one.raw) for one in segments]
            )
        return done

    def _append_again(
        self,
        tables: PostgresqlTables,
        lease: Lease,
        segments: Sequence[Segment],
        statement: tuple[str, list[Any]],
    ) -> int | errors.LeaseLostError:
        """Append what may be written already; return the time of its commit, or the error."""
        if (at := session_rows.is_written(tables, lease, segments)) is not None:
            return at
        try:
            row = tables.execute(*statement).fetchone()
            if row is None:
                if (lost := self._loss(tables, lease)) is not None:
                    return lost
                row = tables.execute(*statement).fetchone()
            return errors.LeaseLostError(lease.session_id) if row is None else int(row[0])
        except UniqueViolation:
            # The numbers are taken: by this very append, which was still on its way when its answer
            # was given up; or by others.
            at = session_rows.is_written(tables, lease, segments)
            return errors.LeaseLostError(lease.session_id) if at is None else at

    # -- reading --------------------------------------------------------------------------

    async def without_session(self) -> list[str]:
        """Some of the ids that have entries but no session."""
        return await self._at_one_moment(session_rows.without_session, slow=True)

    async def changes(
        self, after: str | None, limit: int = 500, *, if_told: bool = False
    ) -> RowChanges:
        if if_told and after is not None and self._is_quiet(after):
            return RowChanges((), after)
        heard = self._database.pipelines.heard()
        news = await self._ask(lambda tables: changes.changes(tables, after, limit))
        if not news.more:
            self._note_quiet(news.last, heard)
        return news

    def _is_quiet(self, after: str) -> bool:
        """True if nothing was announced since the log was read up to this position, a moment
        ago."""
        if self._positions is None:  # it is followed: from now on we listen
            self._positions = Newest(bounds.POSITIONS)
        self._database.pipelines.listen()
        heard, at = self._positions.get(after, (None, 0.0))
        is_fresh = time.monotonic() < at + bounds.UNHEARD_SECONDS
        return heard is not None and heard is self._database.pipelines.heard() and is_fresh

    def _note_quiet(self, last: str, heard: object) -> None:
        if self._positions is not None:
            self._positions[last] = heard, time.monotonic()

    def _announce(self) -> None:
        """Tell others soon that something has changed, at most once a moment; here it is known."""
        if self._positions is not None:
            self._positions.clear()
        loop = asyncio.get_running_loop()
        if self._announcing is not None and self._announcing[0] is loop:
            return
        wait = max(0.0, self._announced_at + bounds.ANNOUNCED_SECONDS - time.monotonic())
        self._announcing = loop, loop.call_later(wait, self._send_announcement)

    def _send_announcement(self) -> None:
        self._announcing, self._announced_at = None, time.monotonic()
        if self._database.pipelines.is_ready:
            self._database.pipelines.ask(ANNOUNCE, ())
        else:
            self._database.later(lambda line: line.execute(ANNOUNCE))

    # -- deleting -------------------------------------------------------------------------

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        gone: dict[str, None] = {}

        def some(tables: Tables, session_ids: Sequence[str], *held_by: Lease) -> None:
            for lease in held_by:
                session_tables.require_lease(tables, lease)
            found = session_rows.lock(tables, session_ids, idle_since)
            if idle_since is not None and found:
                held = leases.sessions_with_owner(tables, found)
                found = [session_id for session_id in found if session_id not in held]
            if found:
                session_rows.delete(tables, found, as_if_never=bool(held_by))
            wanted = {*found}
            gone.update((it, None) for it in session_ids if it in wanted)

        for is_held, alike in groupby(sessions, key=lambda it: isinstance(it, Lease)):
            for now in batches(alike, 1 if is_held else bounds.DELETED_SESSIONS):
                ids = [it if isinstance(it, str) else it.session_id for it in now]
                by = [it for it in now if isinstance(it, Lease)]
                await self._write(
                    lambda tables, ids=ids, by=by: some(tables, ids, *by),  # type: ignore[misc]
                    slow=True,
                )
        return [*gone]

    async def aclose(self) -> None:
        await self._transcripts.aclose()
        if self._announcing is not None:
            self._announcing[1].cancel()
            with suppress(errors.JournalError):  # they look for themselves, a moment later
                await self._database.run(lambda line: line.execute(ANNOUNCE))
        if (owner_id := self._owner_id) is not None:
            self._owner_id = None
            await self._unregister(owner_id)
        await asyncio.to_thread(self._presence.close)
        await self._database.aclose()

    # -- inside ---------------------------------------------------------------------------

    async def _ask(self, question: Callable[[PostgresqlTables], T]) -> T:
        return await self._database.run(lambda line: question(PostgresqlTables(line)))

    async def _at_one_moment(
        self, question: Callable[[PostgresqlTables], T], *, slow: bool = False
    ) -> T:
        def answer(line: Line) -> T:
            tables = PostgresqlTables(line)
            with tables.reading():
                if slow:
                    # With PostgreSQL's default of 4 MB it sorts more than 20,000 sessions on disk.
                    line.execute("SET LOCAL work_mem = '32MB'")
                return question(tables)

        return await self._database.run(answer, slow=slow)

    async def _slowly(self, work: Callable[[PostgresqlTables], T]) -> T:
        done = await self._database.run(lambda line: work(PostgresqlTables(line)), slow=True)
        self._announce()
        return done

    def _later(self, work: Callable[[PostgresqlTables], object]) -> None:
        self._database.later(lambda line: work(PostgresqlTables(line)))

    async def _write(self, work: Callable[[PostgresqlTables], T], *, slow: bool = False) -> T:
        def attempt(line: Line) -> T:
            with line.transaction():
                return work(PostgresqlTables(line))

        done = await self._database.run(attempt, slow=slow)
        self._announce()
        return done

    def _search(self, tables: PostgresqlTables, sought: Sought | str) -> list[SearchHit]:
        # Late: the import takes a moment.
        from acphold.journal.postgresql.search import find_in_index
        from acphold.journal.sql.search import search

        return search(tables, sought, find_in_index)

    def _kept_sums(
        self, tables: PostgresqlTables, by: Grouping, agents: tuple[str, ...]
    ) -> tuple[list[PlainSums], list[Span]]:
        from acphold.journal.postgresql import usage_blocks  # late, for a quick start

        return usage_blocks.kept_sums(tables, by, agents)

    async def repeated_titles(self, among: Collection[Titled], least: int) -> frozenset[Titled]:
        from acphold.journal.postgresql import described  # late, for a quick start

        return await self._ask(lambda tables: described.repeated_titles(tables, among, least))

    def _make_block(self, tables: PostgresqlTables) -> bool:
        from acphold.journal.postgresql import described, usage_blocks  # late, for a quick start

        if usage_blocks.make_next(tables):
            return True
        with suppress(LockNotAvailable), tables.upkeep("described", sees_one_moment=False):
            return described.describe_next(tables)
        return False

    def _unindex(
        self, tables: PostgresqlTables, key: Key, found: Sequence[Segment], *, overwrites: bool
    ) -> None:
        tables.executemany(
            "DELETE FROM acphold.documents WHERE session_id = %s AND seq BETWEEN %s AND %s",
            [(key, segment.first_seq, segment.last_seq) for segment in found],
        )

    async def _index(self, seconds: float, lease: Lease | None = None, since: int = 0) -> None:
        from acphold.journal.postgresql import search

        session_id = None if lease is None else lease.session_id

        def piece(tables: Tables) -> bool:
            return search.index_piece(tables, session_id, since)

        await repeat(lambda: self._slowly(piece), seconds)
