"""The part of a journal in SQL that is the same in both databases."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from acphold.conversation.history.entries import PastEntry, Run, Segment, now_ms
from acphold.errors import JournalError, LeaseLostError, UnknownSessionError
from acphold.journal import bounds
from acphold.journal.access import Access, AccessChanges
from acphold.journal.journal import Append, Journal, Lease, Links, Outcomes
from acphold.journal.owners import Free, clock
from acphold.journal.rows import ListFilter, ListKey, NewSession, RowChange, SessionRow
from acphold.journal.seams import (
    Grouping,
    Index,
    InFile,
    SearchHit,
    Snapshots,
    Sought,
    UsageSums,
)
from acphold.journal.sql import access_rows, entry_rows, session_tables, usage_rows
from acphold.journal.sql.tables import Key, Tables
from acphold.journal.stored_history import new_segments
from acphold.journal.stored_journal import APPENDS, Transcripts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from acphold.journal.owners import Whose
    from acphold.journal.sql.usage_sums import PlainSums, Span

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
Kept = TypeVar("Kept", bound=Tables)


class Through:
    """Turns functions on tables into methods; the method `runner` runs them."""

    def __init__(self, runner: str) -> None:
        self._runner = runner

    def __call__(
        self, work: Callable[Concatenate[Tables, P], T]
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
        runner = self._runner

        async def method(owner: Any, /, *args: P.args, **named: P.kwargs) -> T:
            done: T = await getattr(owner, runner)(lambda tables: work(tables, *args, **named))
            return done

        return method


asked = Through("_ask")
"""Turns a quick query, which writes nothing, into a method."""

at_one_moment = Through("_at_one_moment")
"""Turns a query whose statements all see the journal as of one moment into a method."""

written = Through("_write")
"""Turns work in a transaction into a method."""

slowly = Through("_slowly")
"""Turns slow work, which makes its own transactions, into a method."""


async def repeat(piece: Callable[[], Awaitable[bool]], seconds: float = inf) -> None:
    """Do pieces of slow work as long as they return True, for about `seconds`."""
    deadline = time.monotonic() + seconds
    while await piece():
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0)  # a cancellation takes effect between two pieces


def report_failure(done: Future[object]) -> None:
    """Log that work failed for which nobody waits."""
    if not done.cancelled() and (error := done.exception()):
        log.warning("upkeep of the journal failed: %s", error)


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

    def __init__(self, journal: SqlJournal[Any]) -> None:
        super().__init__(journal)
        self._kept_sums = journal._kept_sums
        self._make_block = journal._make_block
        self._blocks_at = time.monotonic() + bounds.BLOCKS_SECONDS

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
        from acphold.journal.sql import usage_sums  # late, for a quick start

        return await self._at_one_moment(
            lambda tables: usage_sums.sums(tables, by, agents, cwd, since, self._kept_sums),
            slow=True,
        )

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        if seconds > 0:
            await self._index(seconds, since=since)
        return await self._ask(lambda tables: session_tables.count_unindexed(tables, cwd))

    async def tidy(self, seconds: float) -> int:
        def piece(tables: Tables) -> bool:
            key = entry_rows.newest_unpacked(tables, _old(tables))
            return key is not None and entry_rows.pack_piece(tables, key)

        adding = max(seconds, bounds.ADDING_SECONDS)
        await repeat(lambda: self._slowly(usage_rows.add_up_next), adding)
        await repeat(lambda: self._slowly(piece), seconds)
        if seconds or time.monotonic() >= self._blocks_at:
            while await self._slowly(self._make_block):
                if not seconds:
                    break
            else:
                self._blocks_at = time.monotonic() + bounds.BLOCKS_SECONDS
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

    def now_ms(self) -> int:
        return now_ms()

    async def changes(self, after: str | None) -> AccessChanges:
        return await self._ask(lambda tables: tables.access_changes(after))

    tokens = asked(access_rows.tokens)
    held = asked(access_rows.held)
    forget_ended = written(access_rows.forget_ended)
    is_current = asked(access_rows.is_current)
    hold = written(access_rows.hold)
    accept = written(access_rows.accept)
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


class SqlJournal(Journal, ABC, Generic[Kept]):
    """See the module; a store has the rest of `Journal`.

    It has no file, unless the store says so. `_transcripts` reads what an import has only listed.
    """

    file: InFile | None = None
    on_unanswered: Callable[[], None] = staticmethod(lambda: None)
    _transcripts: Transcripts
    _addresses: tuple[str, ...] = ()
    _retired = False
    late_at = inf
    _settling = 0

    index = cached_property(SqlIndex)
    links = cached_property(SqlLinks)
    access = cached_property(SqlAccess)
    snapshots = cached_property(SqlSnapshots)

    def now_ms(self) -> int:
        return now_ms()

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
    def _kept_sums(
        self, tables: Kept, by: Grouping, agents: tuple[str, ...]
    ) -> tuple[list[PlainSums], list[Span]]:
        """The sums that are kept for many sessions, and the spans of numbers of all others."""

    @abstractmethod
    def _make_block(self, tables: Kept) -> bool:
        """Keep sums for many sessions, as many as a block has; False if nothing is left to do."""

    @abstractmethod
    def _unindex(
        self, tables: Kept, key: Key, found: Sequence[Segment], *, overwrites: bool
    ) -> None:
        """Take the entries of these segments of a session out of the index; with `overwrites`, see
        that the words are overwritten, too."""

    @abstractmethod
    async def _index(self, seconds: float, lease: Lease | None = None, since: int = 0) -> None:
        """Index the missing entries of a session, or of all that were active since `since`, the
        newest first, as much as `seconds` allow; other requests are served in between."""

    @abstractmethod
    async def _grant(
        self, session_id: str, seen: Whose | None, new: NewSession | None, *, yields: bool
    ) -> Lease:
        """Make this process own a session, as `acquire` does, or a `new` one."""

    @abstractmethod
    async def _append_segments(
        self, appends: Sequence[Append], made: Sequence[list[Segment]]
    ) -> list[list[Segment] | LeaseLostError]:
        """Like `append_all`, given the segments of each; the leases are moved on afterwards."""

    @abstractmethod
    async def _report(self, held: Sequence[Lease]) -> list[LeaseLostError]:
        """Report that this owner lives, if it is one; return the errors of the leases among `held`,
        all that it has or none, that are lost."""

    def _loss(self, tables: Kept, lease: Lease) -> LeaseLostError | None:
        """The error of a lease that does not stand; None if it does again."""
        return session_tables.loss(tables, lease)

    async def create(self, new: NewSession, *, yields: bool = False) -> Lease:
        return await self._grant(new.session_id, None, new, yields=yields)

    async def acquire(
        self, session_id: str, seen: Whose | None = None, *, yields: bool = False
    ) -> Lease:
        return await self._grant(session_id, seen, None, yields=yields)

    async def renew(
        self,
        leases: Iterable[Lease] = (),
        *,
        addresses: Sequence[str] | None = None,
        retiring: bool = False,
    ) -> list[LeaseLostError]:
        if addresses is not None:
            self._addresses = (*addresses,)
        self._retired = self._retired or retiring
        return await self._report([*leases])

    async def owned(self, session_ids: Collection[str]) -> Collection[str]:
        found = await self._granted(session_ids)
        for session_id in [*found]:
            with suppress(UnknownSessionError):
                if isinstance(await self.owner(session_id), Free):
                    found.remove(session_id)
        return found

    async def loss(self, lease: Lease) -> LeaseLostError | None:
        if clock() > self.late_at:
            await self._report([])
        if await self._stands(lease):
            return None
        return await self._ask(lambda tables: self._loss(tables, lease))

    async def _stands(self, lease: Lease) -> bool:
        with suppress(UnknownSessionError):
            return (await self.owner(lease.session_id)).epoch == lease.epoch
        return False

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        began, at = perf_counter(), now_ms()
        made = [new_segments(it.lease.next_seq, it.runs, at) for it in appends]
        if not all(made):
            raise ValueError("nothing to append")
        done = await self._append_segments(appends, made)
        for append, result in zip(appends, done, strict=True):
            if not isinstance(result, LeaseLostError):
                append.lease.next_seq = result[-1].last_seq + 1
        for append in appends:  # once all leases have moved on: this may fail
            self._has_appended(append.lease)
        APPENDS.note(perf_counter() - began)
        return done

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        [done] = await self.append_all([Append(lease, [*runs], change)])
        if isinstance(done, LeaseLostError):
            raise done
        return done

    async def withdraw(
        self,
        lease: Lease,
        spans: Sequence[tuple[int, int]],
        *,
        instead: Sequence[tuple[int, bytes]] = (),
        overwrites: bool = False,
    ) -> object:
        def work(tables: Kept) -> bool:
            unindex = partial(self._unindex, tables, overwrites=overwrites)
            its = dict(instead)
            return entry_rows.withdraw(tables, lease, spans, its, unindex, overwrites=overwrites)

        return await self._slowly(work)

    async def take_in(
        self,
        lease: Lease,
        past: Sequence[PastEntry],
        change: RowChange | None = None,
        link: tuple[str, str] | None = None,
        *,
        instead: bool = False,
        release: bool = False,
        withdrawn: Sequence[tuple[int, int]] = (),
    ) -> object:
        def work(tables: Kept) -> int:
            return entry_rows.take_in(
                *(tables, lease, past, change, link),
                instead=instead,
                release=release,
                withdrawn=withdrawn,
                unindex=partial(self._unindex, tables, overwrites=False),
            )

        return await self._slowly(work)

    async def complete(self, session_id: str) -> None:
        await self._transcripts.complete(session_id)

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
    _granted = asked(session_tables.granted)
    session = asked(session_tables.find)
    resolve = asked(session_tables.resolve)
    short_ids = asked(session_tables.short_ids)
    agents = asked(session_tables.agents)
    count = asked(session_tables.count)
    outcomes = asked(session_tables.outcomes_of)
    endings = asked(entry_rows.endings)
    change = written(session_tables.change)
    mark = written(session_tables.mark)
    repeated_titles = asked(session_tables.repeated_titles)

    read = at_one_moment(entry_rows.read)
    read_back = at_one_moment(entry_rows.read_back)
    is_exact = at_one_moment(entry_rows.is_exact)
    summary = at_one_moment(entry_rows.summary)
    add_whole = slowly(entry_rows.add_whole)

    async def page(
        self,
        filter: ListFilter,
        after: ListKey | None = None,
        limit: int = 50,
        outcomes: Outcomes | None = None,
    ) -> list[SessionRow]:
        return await self._ask(lambda tables: tables.page(filter, after, limit, outcomes))

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
