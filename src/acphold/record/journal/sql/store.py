"""The part of a journal in SQL that is the same in both databases."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, Generic, TypeVar

from acphold.errors import JournalError, LeaseLostError
from acphold.record.history.entries import PastEntry, Segment
from acphold.record.journal import bounds
from acphold.record.journal.access import Access
from acphold.record.journal.journal import Append, Lease, Links
from acphold.record.journal.rows import ListFilter, ListKey, RowChange, SessionRow
from acphold.record.journal.seams import Grouping, Index, SearchHit, Snapshots, Sought, UsageSums
from acphold.record.journal.sql import access_places, access_rows, entry_rows, session_tables
from acphold.record.journal.sql.tables import Tables
from acphold.record.journal.stored_journal import StoredJournal, Through

log = logging.getLogger(__name__)

T = TypeVar("T")
Kept = TypeVar("Kept", bound=Tables)

asked = Through[Tables]("_ask")
"""Turns a quick query, which writes nothing, into a method."""

at_one_moment = Through[Tables]("_at_one_moment")
"""Turns a query whose statements all see the journal as of one moment into a method."""

written = Through[Tables]("_write")
"""Turns work in a transaction into a method."""

slowly = Through[Tables]("_slowly")
"""Turns slow work, which makes its own transactions, into a method."""


class SqlJournal(StoredJournal, Generic[Kept]):
    """See the module; a store has the rest of `Journal`."""

    _settling = 0

    @abstractmethod
    async def _ask(self, question: Callable[[Kept], T]) -> T:
        """Return the result of a quick query, which writes nothing."""

    @abstractmethod
    async def _at_one_moment(self, question: Callable[[Kept], T], *, slow: bool = False) -> T:
        """Return the result of a query whose statements all see the journal as of one moment."""

    @abstractmethod
    async def _write(self, work: Callable[[Kept], T], *, slow: bool = False) -> T:
        """Run `work` in a transaction, all or nothing; return its result."""

    @abstractmethod
    async def _slowly(self, work: Callable[[Kept], T]) -> T:
        """Run slow work, which makes its own transactions; return its result, which is true if it
        wrote anything."""

    @abstractmethod
    def _later(self, work: Callable[[Kept], object]) -> None:
        """Do slow work, which makes its own transactions, in a thread. Nobody waits for it, and
        nothing is lost without it."""

    @abstractmethod
    def _search(self, tables: Kept, sought: Sought | str) -> list[SearchHit]:
        """Like `Index.search`."""

    @abstractmethod
    async def _index(self, seconds: float, lease: Lease | None = None, since: int = 0) -> None:
        """Index the missing entries of a session, or of all that were active since `since`, the
        newest first, as much as `seconds` allow; other requests are served in between."""

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        done = await super().append_all(appends)
        for append in appends:
            self._has_appended(append.lease)
        return done

    def _has_appended(self, lease: Lease) -> None:
        """Keep a summary behind the entries of a session if there are many since the last."""
        if lease.next_seq - lease.ahead >= bounds.AHEAD_ENTRIES:
            lease.ahead = lease.next_seq
            self._later(lambda tables: entry_rows.sum_up(tables, lease))

    async def _unregister(self, owner_id: str) -> None:
        """Remove an owner that ends; if that fails, others find out by themselves."""
        try:
            await self._write(lambda tables: session_tables.unregister(tables, owner_id))
        except JournalError as error:
            log.info("cannot remove this process from the journal: %s", error)

    identity = asked(lambda tables: tables.identity())
    session = asked(session_tables.find)
    resolve = asked(session_tables.resolve)
    short_ids = asked(session_tables.short_ids)
    count = asked(session_tables.count)
    outcomes = asked(entry_rows.outcomes)
    change = written(session_tables.change)

    read = at_one_moment(entry_rows.reads.read)
    read_back = at_one_moment(entry_rows.reads.read_back)
    is_exact = at_one_moment(entry_rows.reads.is_exact)
    summary = at_one_moment(entry_rows.summary)
    bytes_for_summary = asked(entry_rows.bytes_for_summary)

    async def page(
        self, filter: ListFilter, after: ListKey | None = None, limit: int = 50
    ) -> list[SessionRow]:
        return await self._ask(lambda tables: tables.page(filter, after, limit))

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

        def work(tables: Kept) -> int:
            while entry_rows.settle_piece(tables, lease, first_seq - 1):
                pass
            return entry_rows.take_in(
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
        def piece(tables: Kept) -> bool:
            return entry_rows.settle_piece(tables, lease, through, apart)

        def pack(tables: Kept) -> bool:
            return entry_rows.pack_piece(tables, tables.key(lease), _old(tables))

        self._settling += 1
        try:
            await repeat(lambda: self._slowly(piece))
            compacted()
            await self._index(inf, lease)
            await self._slowly(pack)
        finally:
            self._settling -= 1
        if self._settling:
            return  # if many sessions are settled at once, the last one tidies the journal
        # Index one piece of other sessions that lag: turn by turn, all of them catch up.
        await self._index(0)
        await self.index.tidy(0)

    @cached_property
    def index(self) -> Index:
        return SqlIndex(self)

    @cached_property
    def links(self) -> Links:
        return SqlLinks(self)

    @cached_property
    def access(self) -> Access:
        return SqlAccess(self)

    @cached_property
    def snapshots(self) -> Snapshots:
        return SqlSnapshots(self)


async def repeat(piece: Callable[[], Awaitable[bool]], seconds: float = inf) -> None:
    """Do pieces of slow work as long as they return True, for about `seconds`."""
    deadline = time.monotonic() + seconds
    while await piece():
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0)  # a cancellation takes effect between two pieces


def _old(tables: Tables) -> int:
    """The time before which a turn is old (ms since the epoch)."""
    return tables.now() - bounds.OLD_MS


class SqlPart:
    """A part of a journal that is an object of its own."""

    def __init__(self, journal: SqlJournal[Any]) -> None:
        self._ask = journal._ask
        self._at_one_moment = journal._at_one_moment
        self._write = journal._write
        self._slowly = journal._slowly
        self._search = journal._search
        self._index = journal._index


class SqlIndex(SqlPart, Index):
    """The search, the sums of usage and the upkeep of a journal."""

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        return await self._at_one_moment(lambda tables: self._search(tables, sought), slow=True)

    async def usage(
        self,
        by: Grouping,
        *,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
    ) -> UsageSums:
        from acphold.record.journal.sql import usage_sums  # late, for a quick start

        return await self._at_one_moment(
            lambda tables: usage_sums.sums(tables, by, agents, cwd, since), slow=True
        )

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        if seconds > 0:
            await self._index(seconds, since=since)
        return await self._ask(lambda tables: session_tables.count_unindexed(tables, cwd))

    async def tidy(self, seconds: float) -> int:
        def piece(tables: Tables) -> bool:
            key = entry_rows.newest_unpacked(tables, _old(tables))
            return key is not None and entry_rows.pack_piece(tables, key)

        await repeat(lambda: self._slowly(piece), seconds)
        return await self._ask(lambda tables: entry_rows.count_unpacked(tables, _old(tables)))


class SqlLinks(SqlPart, Links):
    """The links of a journal."""

    link = written(session_tables.link)
    sessions_of = asked(session_tables.sessions_of)
    of = at_one_moment(session_tables.links_of)
    last_entries = at_one_moment(session_tables.last_entries)
    enlist = slowly(session_tables.enlist)

    async def went_on(self, agent: str, times: Mapping[str, int]) -> None:
        if later := await self._ask(lambda tables: session_tables.later_uses(tables, agent, times)):
            await self._write(lambda tables: session_tables.move_up(tables, later))


class SqlAccess(SqlPart, Access):
    """The tokens, deeds, shares and rules of a journal."""

    tokens = asked(access_rows.tokens)
    is_current = asked(access_places.is_current)
    hold = written(access_places.hold)
    accept = written(access_places.accept)
    keep_token = written(access_rows.keep_token)
    shares = asked(access_rows.shares)
    keep_share = written(access_rows.keep_share)
    end_share = written(access_rows.end_share)
    deeds = asked(access_rows.deeds)
    keep_deeds = written(access_rows.keep_deeds)
    rules = asked(access_rows.rules)
    add_rule = written(access_rows.add_rule)
    change_rules = written(access_rows.change_rules)


class SqlSnapshots(SqlPart, Snapshots):
    """The snapshots of a journal."""

    keep = written(session_tables.keep_snapshots)
    of = asked(session_tables.snapshots_of)
    newest = asked(session_tables.newest_snapshots)
    of_all = asked(session_tables.all_snapshots)
    drop = written(session_tables.drop_snapshots)
