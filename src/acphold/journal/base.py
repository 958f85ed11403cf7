"""A base for stores of few methods: a journal made of records, which the store keeps."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Concatenate, ParamSpec, TypeVar

from acphold.errors import IllegibleNameError, LeaseLostError
from acphold.history.entries import PastEntry, Segment, now_ms
from acphold.history.fold import Summary
from acphold.journal import bounds
from acphold.journal.access import Access
from acphold.journal.journal import Append, Identity, Lease, Links, PageBack
from acphold.journal.owners import Free, Owner, Silent, Whose
from acphold.journal.records import (
    access_records,
    search,
    session_records,
    written_records,
)
from acphold.journal.records.draft import Draft, Records
from acphold.journal.records.written_records import KeptOwner
from acphold.journal.rows import (
    ListFilter,
    ListKey,
    NewSession,
    RowChange,
    RowChanges,
    SessionRow,
)
from acphold.journal.seams import Index, Snapshots
from acphold.journal.stored_history import Piece
from acphold.journal.stored_journal import ReadTranscript, StoredJournal, Through, Transcripts

T = TypeVar("T")
P = ParamSpec("P")


# The methods of BaseJournal are written out: a method made by `kept` has no declared type, and
# `pyright --verifytypes` calls what authors of stores see of it ambiguous.


kept = Through[Draft]("_written")
"""Turns a function on records into a method; all of its changes are written, or none."""


class BaseJournal(StoredJournal):
    """A `Journal` without a file, in records that the store keeps: see `Records`.

    A store has `transact`, and a class with the three methods of `Records`. Everything else is made
    of these. To find words, and to add up tokens, this class reads all sessions in question, so
    override `index` if yours can do that quickly.
    """

    def __init__(
        self, location: str = "", *, read_transcript: ReadTranscript | None = None
    ) -> None:
        """`location` and `read_transcript` are those that the store was opened with."""
        self._transcripts = Transcripts(location, self.session, read_transcript)
        self._owner = KeptOwner(os.urandom(12).hex(), (), 0)
        self._owns = False

    @abstractmethod
    async def transact(self, work: Callable[[Records], T]) -> T:
        """Return the result of `work`, which reads records and then, at its end, may write some.

        Nobody else may write between its first look and the end of what it writes. If somebody did,
        undo it and call `work` again. An error of `work` is raised, and nothing is written then.
        Raises JournalUnavailableError.
        """

    def now(self) -> int:
        """The time in ms since the epoch; override it if processes on several machines share the
        store."""
        return now_ms()

    async def aclose(self) -> None:
        """Ends the ownership of all sessions; call it before you close what keeps the records."""
        await self._transcripts.aclose()
        if self._owns:
            await self._written(written_records.unregister, self._owner.id)
            self._owns = False

    async def _written(
        self, work: Callable[Concatenate[Draft, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        def whole(records: Records) -> T:
            draft = Draft(records, self.now)
            done = work(draft, *args, **named)
            draft.save()
            return done

        try:
            return await self.transact(whole)
        except UnicodeEncodeError as error:
            raise IllegibleNameError(
                f"{error.object!r} cannot be stored: it is not valid Unicode"
            ) from error

    # -- owning ---------------------------------------------------------------------------

    async def create(self, new: NewSession, *, yields: bool = False) -> Lease:
        def work(draft: Draft) -> Lease:
            kept = session_records.create(draft, new)
            return written_records.grant(draft, kept, self._reporting(), yields=yields)

        return await self._written(work)

    async def acquire(
        self, session_id: str, seen: int | None = None, *, yields: bool = False
    ) -> Lease:
        def work(draft: Draft) -> Lease:
            owner = self._reporting()
            return written_records.acquire(draft, session_id, owner, seen, yields=yields)

        return await self._written(work)

    def _reporting(self) -> KeptOwner:
        self._owns = True
        self._owner.addresses, self._owner.retired = self._addresses, self._retired
        self._owner.renewed_at = self.now()
        return self._owner

    async def owner(self, session_id: str) -> Whose:
        return await self._written(written_records.whose, session_id, self._owner.id)

    async def owners(self) -> list[Owner]:
        return await self._written(written_records.owners)

    async def release(self, lease: Lease) -> None:
        await self._written(written_records.release, lease)

    async def _reported(self, held: Sequence[Lease]) -> list[LeaseLostError]:
        return await self._written(self._report, held) if self._owns else []

    def _report(self, draft: Draft, held: Sequence[Lease]) -> list[LeaseLostError]:
        written_records.register(draft, self._reporting())
        errors = (written_records.error(draft, lease) for lease in held)
        return [error for error in errors if error is not None]

    # -- entries --------------------------------------------------------------------------

    async def _appended(
        self, appends: Sequence[Append], made: Sequence[list[Segment]]
    ) -> list[list[Segment] | LeaseLostError]:
        return await self._written(written_records.append_all, appends, made)

    async def settle(
        self,
        lease: Lease,
        through: int,
        compacted: Callable[[], None] = lambda: None,
        *,
        apart: Collection[int] = (),
    ) -> None:
        while True:
            due = await self._written(written_records.next_piece, lease, through)
            if due is None:
                break
            found, before = due
            # In a thread, and outside of any transaction: it takes a while.
            piece = await asyncio.to_thread(Piece, found, before, stored=True, apart=apart)
            if not await self._written(written_records.settle, lease, found, piece):
                break
        compacted()

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
        await self.settle(lease, lease.next_seq - 1)
        last = await self._written(
            written_records.take_in, lease, past, change, link, instead=instead, release=release
        )
        lease.next_seq = last + 1

    async def read(
        self,
        session_id: str,
        after: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        tail_bytes: int = 0,
    ) -> list[Segment]:
        return await self._written(
            session_records.reads.read, session_id, after, limit_bytes, tail_bytes=tail_bytes
        )

    async def read_back(
        self,
        session_id: str,
        before: int | None,
        limit: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        kinds: Sequence[str] = (),
    ) -> PageBack:
        return await self._written(
            session_records.reads.read_back, session_id, before, limit, limit_bytes, kinds=kinds
        )

    async def is_exact(self, session_id: str, after: int) -> bool:
        return await self._written(session_records.reads.is_exact, session_id, after)

    async def summary(self, session_id: str) -> Summary:
        return await self._written(written_records.summary, session_id)

    # -- sessions -------------------------------------------------------------------------

    async def identity(self) -> Identity:
        return await self._written(session_records.identity)

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        return await self._written(session_records.session, session_id, counted=counted)

    async def resolve(self, prefix: str, cwd: str | None = None) -> SessionRow:
        return await self._written(session_records.resolve, prefix, cwd)

    async def short_ids(self, session_ids: Sequence[str], least: int) -> list[str]:
        return await self._written(session_records.short_ids, session_ids, least)

    async def page(
        self, filter: ListFilter, after: ListKey | None = None, limit: int = 50
    ) -> list[SessionRow]:
        return await self._written(session_records.page, filter, after, limit)

    async def count(self) -> int:
        return await self._written(session_records.count)

    async def changes(self, after: int | None, limit: int = 500) -> RowChanges:
        return await self._written(session_records.changes, after, limit)

    async def outcomes(self, session_ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._written(session_records.outcomes, session_ids)

    async def change(self, session: Lease | str, change: RowChange) -> None:
        await self._written(written_records.change, session, change)

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        def work(draft: Draft, session: Lease | str) -> list[str]:
            as_if_never = isinstance(session, Lease)
            if isinstance(session, Lease):
                written_records.held(draft, session)
                session = session.session_id
            kept = session_records.look(draft, session)
            if kept is None:
                return []
            if idle_since is not None:
                whose = written_records.whose(draft, session, self._owner.id)
                if kept.row.updated_at > idle_since or not isinstance(whose, Free | Silent):
                    return []
            session_records.delete(draft, kept, as_if_never=as_if_never)
            return [session]

        gone: list[str] = []
        for session in sessions:
            gone += await self._written(work, session)
        return gone

    @cached_property
    def index(self) -> Index:
        return RecordIndex(self)

    @cached_property
    def links(self) -> Links:
        return RecordLinks(self)

    @cached_property
    def access(self) -> Access:
        return RecordAccess(self)

    @cached_property
    def snapshots(self) -> Snapshots:
        return RecordSnapshots(self)


class RecordPart:
    """A part of a journal that is an object of its own."""

    def __init__(self, journal: BaseJournal) -> None:
        self._written = journal._written


class RecordLinks(RecordPart, Links):
    """The links of a journal."""

    link = kept(written_records.link)
    linked = kept(session_records.linked)
    of = kept(session_records.links_of)
    last_entries = kept(session_records.last_entries)
    went_on = kept(session_records.went_on)
    enlist = kept(session_records.enlist)


class RecordIndex(RecordPart, Index):
    """Searches and adds up without an index, so that none lags."""

    search = kept(search.search)
    usage = kept(written_records.usage)

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        return 0

    async def tidy(self, seconds: float) -> int:
        return 0


class RecordAccess(RecordPart, Access):
    """The tokens, deeds, shares and rules of a journal."""

    tokens = kept(access_records.tokens)
    keep_token = kept(access_records.keep_token)
    shares = kept(session_records.shares)
    keep_share = kept(session_records.keep_share)
    end_share = kept(session_records.end_share)
    deeds = kept(access_records.deeds)
    keep_deeds = kept(access_records.keep_deeds)
    rules = kept(access_records.rules)
    add_rule = kept(access_records.add_rule)
    change_rules = kept(access_records.change_rules)


class RecordSnapshots(RecordPart, Snapshots):
    """The snapshots of a journal."""

    keep = kept(session_records.keep_snapshots)
    of = kept(session_records.snapshots_of)
    newest = kept(session_records.newest_snapshots)
    named = kept(session_records.named_snapshots)
    drop = kept(session_records.drop_snapshots)
