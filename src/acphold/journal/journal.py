"""The interface of a journal: sessions are written, read, listed, searched and owned through it.

Rooms above know a journal only by this interface, some seams of which are in `access` and `seams`.
`journal.sqlite` and `journal.postgresql` implement it, on `journal.sql`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from acphold.conversation.history.fold import Fold, SessionState, Summary
from acphold.conversation.history.timeline import TurnOutcome
from acphold.errors import (
    AmbiguousIdError,
    LeaseLostError,
    RewrittenError,
    UnknownSessionError,
)
from acphold.journal import bounds
from acphold.journal.access import Access
from acphold.journal.owners import At, Free, refuse_held
from acphold.journal.rows import (
    Listed,
    ListFilter,
    ListKey,
    Marks,
    NewSession,
    RowChange,
    RowChanges,
    SessionRow,
    WholeSession,
)
from acphold.journal.seams import Index, InFile, Snapshots

if TYPE_CHECKING:
    from acphold.conversation.history.entries import Entry, PastEntry, Run, Segment
    from acphold.journal.owners import Owner, Whose


class Lease(Struct):
    """The right to write to one session until somebody takes it over. Only journals make these.

    `number` is the journal's own key of the session, which no other session ever gets; `epoch`
    grows with every lease that the journal grants; `next_seq` is the number of the next entry;
    `lineage` is that of positions given out under this lease, as in SessionRow; `journal` is the
    identity of the journal at that moment (`journal.lineage`). At entry `ahead`, a summary
    ahead of the settled one was last asked for.
    """

    session_id: str
    number: int
    epoch: int
    next_seq: int
    lineage: str = ""
    journal: str = ""
    ahead: int = 0


class Identity(Struct, frozen=True):
    """The identity of a journal: see `journal.lineage`.

    `secret` is random and seals list cursors; a copy shares it. `mark` is of this journal alone.
    `is_kept` is True if the journal keeps it with the place where it is now; `has_failed_over` if
    it keeps another one because a standby has taken over, which may have lost nothing.
    """

    secret: bytes
    mark: str
    is_kept: bool
    has_failed_over: bool = False


class Append(Struct, frozen=True):
    """Runs to append to one session; see `Entries.append`."""

    lease: Lease
    runs: Sequence[Run]
    change: RowChange | None = None


class PageBack(Struct, frozen=True):
    """Entries of a session, the newest first; `before` is where to go on, None at the beginning."""

    entries: Sequence[Entry]
    before: int | None


Outcomes = dict[str, TurnOutcome | None]
"""Outcomes of last turns, by session; see `Sessions.outcomes`."""

Titled = tuple[str, str, str]
"""A tenant, and the folder and title of sessions of theirs."""


class Owners(Protocol):
    """Ownership: which process may write to a session. See `journal.owners`, and Lease."""

    late_at: float
    """By `owners.clock`: if this process has not reported until then, others may soon take its
    sessions."""

    async def create(self, new: NewSession, *, yields: bool = False) -> Lease:
        """Create a session and own it; raises SessionExistsError. `yields` is as in `acquire`."""

    async def acquire(
        self, session_id: str, seen: Whose | None = None, *, yields: bool = False
    ) -> Lease:
        """Take the session over from any owner; raises UnknownSessionError.

        `seen` is what `owner` returned. If the epoch has changed since, or the owner was silent and
        has reported, HeldElsewhereError is raised: of two simultaneous attempts, only one succeeds.
        With `yields`, the session is free to anybody who wants it: for background work such as an
        import.
        """

    async def owner(self, session_id: str) -> Whose:
        """Return the owner of the session now; raises UnknownSessionError."""

    async def owned(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions that a process owns, this or another one, or that were
        deleted during the look: for all others `owner` returns Free."""

    async def loss(self, lease: Lease) -> LeaseLostError | None:
        """None while the lease stands; else the error that tells how it was lost. An owner that is
        late reports first."""

    async def owners(self) -> list[Owner]:
        """The live owners that have an address, as far as is known without asking them."""

    async def renew(
        self,
        leases: Iterable[Lease] = (),
        *,
        addresses: Sequence[str] | None = None,
        retiring: bool = False,
    ) -> list[LeaseLostError]:
        """Report that this owner is alive, every RENEW_SECONDS; return those of `leases`, all that
        it has or none, that are lost.

        `addresses` are the URLs at which others reach it from now on, to share its sessions. With
        `retiring`, the owner is about to end: anybody who wants its sessions may take them from now
        on.
        """

    async def release(self, lease: Lease) -> None:
        """Release the session; does nothing if somebody else owns it already."""


class Readable(Protocol):
    """The part of a journal that `history` needs."""

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        """See `Sessions.session`."""

    async def read(
        self,
        session_id: str,
        after: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        tail_bytes: int = 0,
        brief: bool = False,
    ) -> list[Segment]:
        """Return the segments with entries above `after`, oldest first; empty only at the end.

        They are of one moment. A segment that `after` cuts through is trimmed. Unsettled entries
        may be merged before the next `read`, so a reader without the lease asks for up to
        `tail_bytes` of them together with what precedes them. With `brief`, long updates of tool
        calls may come as `beginning` makes them. Raises UnknownSessionError.
        """


class Entries(Readable, Protocol):
    """The entries of a session: appended by its owner, read by anybody."""

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        """Commit `runs`, one after the other, and `change` to the row: all or nothing.

        The entries must follow the last entry that the lease knows. If the journal has gone back
        and the missing entries cannot be written again, LeaseLostError is raised, too.
        """

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        """Append to several sessions at once, each named once.

        Each gets the result of `append`, or the error if its lease is lost and nothing of it was
        written. Each one is written completely or not at all. A value that no store can keep fails
        them all.
        """

    async def settle(
        self,
        lease: Lease,
        through: int,
        compacted: Callable[[], None] = lambda: None,
        *,
        apart: Collection[int] = (),
    ) -> None:
        """Compact, count and index the entries up to `through`, away from the loop's thread.

        Call it when a turn is over and nobody is reading. Once `compacted` was called, reading is
        safe again; indexing takes three to seven times as long. A client that has read up to an
        entry in `apart` can continue after it: no entry is merged across these. Does nothing if
        the lease is lost.
        """

    async def read_back(
        self,
        session_id: str,
        before: int | None,
        limit: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        kinds: Sequence[str] = (),
        brief: bool = False,
    ) -> PageBack:
        """Return the last `limit` entries below `before`, or of the whole session, without void
        ones.

        With `kinds`, only entries of these kinds; others are skipped unread. For `brief` see
        `read`. Returns about
        `limit_bytes` at most, but at least one entry if there is one. Raises UnknownSessionError,
        and RewrittenError if `before` lies inside of entries that were merged after they were read:
        then read from the end again.
        """

    async def is_exact(self, session_id: str, after: int) -> bool:
        """True if nothing above `after` was merged, and nobody went back there, so that a client
        with all up to it can continue there.

        Raises UnknownSessionError.
        """

    async def summary(self, session_id: str) -> Summary:
        """Return the state of a session without its conversation, quickly; raises
        UnknownSessionError."""


class Sessions(Protocol):
    """The rows of sessions, and their list."""

    def now_ms(self) -> int:
        """Return the time in ms since the epoch by the clock that all processes of the journal
        share: the database's, where ours is another."""

    async def identity(self) -> Identity:
        """Return the secret and the mark of the journal, as it is now."""

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        """Return the row of a session; raises UnknownSessionError.

        Unless `counted` is set, `message_count` leaves out unsettled entries: counting those takes
        time in proportion to the last turn.
        """

    async def resolve(self, prefix: str, cwd: str | None = None) -> SessionRow:
        """Return the session with this id, or else the one whose id begins with it; with `cwd`,
        only from that folder. Of one named after it, as `ID~NAME`, a beginning of each part. Else
        the one that an agent knows by just this id.

        Raises UnknownSessionError and AmbiguousIdError.
        """

    async def short_ids(self, session_ids: Sequence[str], least: int) -> list[str]:
        """The shortest prefix of each id that `resolve` finds it by, `least` or more letters."""

    async def page(
        self,
        filter: ListFilter,
        after: ListKey | None = None,
        limit: int = 50,
        outcomes: Outcomes | None = None,
    ) -> list[SessionRow]:
        """Return the next `limit` sessions of the list after `after`, newest first; `outcomes` gets
        what `outcomes` tells of them, which takes longer by itself."""

    async def agents(self) -> list[str]:
        """Return the agents that have sessions, by their keys."""

    async def count(self) -> int:
        """Return the number of all sessions, listed or not."""

    async def changes(
        self, after: str | None, limit: int = 500, *, if_told: bool = False
    ) -> RowChanges:
        """Return the rows that are new, changed or gone since the position `after`; for None, no
        rows yet. With `if_told`, a change of another process may be told half a second late: a
        database is only asked once something was announced.

        Costs next to nothing if nobody has written since the last call. Raises
        JournalUnavailableError if the journal was deleted or replaced, and RewrittenError if it may
        have gone back since `after` was told, or no longer knows what has changed since: then read
        the whole list again.
        """

    async def outcomes(self, session_ids: Sequence[str]) -> Outcomes:
        """The outcome of the last turn of each session. None if that turn has not ended; sessions
        without turns are left out."""

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """The last words of each session, as in `titles.last_words`; sessions without any are left
        out."""

    async def change(self, session: Lease | str, change: RowChange) -> None:
        """Change the row of a session: under a lease as its owner, or by its id as a person.

        Do this once a turn, not with every append: updating the list's indexes costs more than the
        entry itself. For an unknown id, raises UnknownSessionError.
        """

    async def mark(self, session_id: str, marks: Marks) -> RowChange:
        """Change the tags of a session, and the pin of a person; return them as they are now.

        Marks of others at the same moment stay. Raises UnknownSessionError, and ValueError for too
        many tags.
        """

    async def repeated_titles(self, among: Collection[Titled], least: int) -> frozenset[Titled]:
        """Return those of some titles that at least `least` short sessions of their tenant and
        folder share. Copies, and sessions that a person named, tagged or pinned, do not count."""

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        """Delete sessions with their entries and leases; return the ids of those that are gone now.

        A person deletes by id: links stay as tombstones, so that the agent's own list does not
        bring the session back. An owner that failed to make a session deletes it by its lease: no
        trace is left. With `idle_since` (ms since the epoch), only sessions that nobody owns and
        that were last active by then are deleted. Nothing shows them any more; a file is rid of
        their words within a minute, or at once by `InFile.sweep`.
        """


class Links(Protocol):
    """The ids by which agents know our sessions; deleted sessions leave tombstones."""

    async def link(self, lease: Lease | None, agent: str, downstream_id: str) -> None:
        """Note that the agent knows this session as `downstream_id`.

        With None for the lease, leave a tombstone for an id of the agent that was never ours.
        """

    async def sessions_of(self, agent: str, ids: Collection[str]) -> dict[str, str | None]:
        """Map these ids of the agent, which has one name or several, to our sessions: None for a
        tombstone, unknown ids are left out."""

    async def of(self, session_id: str | None) -> list[tuple[str, str]]:
        """The agents and their ids for a session, the newest last; with None, all tombstones.

        An unknown session has none.
        """

    async def last_entries(self, agent: str, ids: Collection[str]) -> dict[str, Entry | None]:
        """The last entry of each session behind these ids of the agent; None if it is empty."""

    async def went_on(self, agent: str, times: Mapping[str, int]) -> None:
        """Note when the agent last used these ids of its own (ms since the epoch): their sessions
        move up in the list to that time."""

    async def enlist(self, found: Sequence[Listed]) -> None:
        """Add sessions of agents to the list before they are read; known sessions stay as they
        are."""


class HasLinks(Protocol):
    """The part of a journal that knows the agents' ids."""

    @property
    def links(self) -> Links:
        """See `Journal.links`."""


class Arrivals(Protocol):
    """Imports: the entries they bring, and the sessions whose transcripts are read when needed."""

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
        """Append entries from the past, with their own times, settled at once: all or nothing.

        Entries that had numbers elsewhere keep them where these are free. `change` and `link` (an
        agent and its id for the session) are written in the same transaction, and what is in the
        session from then on was made elsewhere (`SessionRow.home`). Nobody else can write
        meanwhile, so pass half a megabyte at a time. `catch_up` indexes the entries later.

        They come without the texts that a person had removed (`journal.forgotten_texts`). Raises
        ForgottenTextError if one was removed meanwhile.

        With `instead`, they replace the last entry, which must be one that nobody has seen: a note
        that the import itself wrote a moment ago. With `release`, the lease ends here. Entries in
        `withdrawn` are made void in the same transaction, as by `withdraw`.
        """

    async def add_whole(self, sessions: Sequence[WholeSession]) -> None:
        """Add sessions that nobody owns, in one transaction: as many write little more than one.

        Raises SessionExistsError and ForgottenTextError. As with `take_in`, pass half a megabyte at
        a time.
        """

    async def withdraw(
        self,
        lease: Lease,
        spans: Sequence[tuple[int, int]],
        *,
        instead: Sequence[tuple[int, bytes]] = (),
        overwrites: bool = False,
    ) -> object:
        """Make the entries with these numbers, each from a first to a last one, void for good.

        Their numbers stay; their content goes, from the search, the counts and the reports, too. An
        entry `instead` gets other content. With `overwrites`, a file is rid of their words as of
        those of a deleted session.
        """

    async def complete(self, session_id: str) -> None:
        """Read an unread session to its end; does nothing for any other.

        Raises TranscriptError if nothing of it can be read, or if it takes too long.
        """


class Journal(Owners, Entries, Sessions, Arrivals, Protocol):
    """The journal of all sessions.

    Every method may raise JournalUnavailableError (locked, read-only, full, gone) and
    NotAJournalError (damaged); then nothing is half written. A method that is given a lease checks
    it in the transaction that writes, and raises LeaseLostError if it is lost.
    """

    on_unanswered: Callable[[], None]
    """Called when an append has had no answer for UNANSWERED_SECONDS; a store in a file has none
    such."""

    @property
    def index(self) -> Index:
        """Search, sums of usage, and upkeep."""

    @property
    def links(self) -> Links:
        """The ids by which agents know our sessions."""

    @property
    def access(self) -> Access:
        """Tokens, shares, and what was done with them."""

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of files that were taken in turns."""

    @property
    def file(self) -> InFile | None:
        """The file of the journal; None for a store without one."""

    async def aclose(self) -> None:
        """Finish background work and close."""


async def state_of(
    journal: Readable, session_id: str, through: int | None = None, after: int = 0
) -> SessionState:
    """Fold the entries of a session: all, or those up to `through`, above `after`; see `history`.

    Works in another thread: a long conversation takes seconds.
    """
    folding = Fold()

    def fold_on(segments: list[Segment]) -> None:
        for segment in segments:
            for entry in segment.entries():
                folding.add(entry)

    async for page in _pages(journal, session_id, after, through):
        await asyncio.to_thread(fold_on, page)
    return folding.state()


async def row_of(
    journal: Readable | Sessions, session_id: str, *, counted: bool = False
) -> SessionRow | None:
    """The row of a session, as `Sessions.session` returns it; None if there is none."""
    with suppress(UnknownSessionError):
        return await journal.session(session_id, counted=counted)
    return None


async def take_lease(journal: Owners, session_id: str, *, yields: bool = False) -> Lease:
    """Own a session for a moment, or with `yields` until somebody wants it.

    Raises HeldElsewhereError if a process has it, UnknownSessionError.
    """
    whose = await journal.owner(session_id)
    refuse_held(session_id, whose)
    return await journal.acquire(session_id, whose, yields=yields)


async def is_live(journal: Owners, session_id: str) -> bool:
    """Return True if a process, this or another one, owns the session; raises
    UnknownSessionError."""
    return not isinstance(await journal.owner(session_id), Free)


async def other_owner(journal: Owners, session_id: str) -> Owner | None:
    """Return the other process that owns the session, None if nobody does, or this one; raises
    UnknownSessionError."""
    whose = await journal.owner(session_id)
    return whose.owner if isinstance(whose, At) else None


async def rows_of(
    journal: Readable, session_ids: Iterable[str], *, counted: bool = False
) -> AsyncIterator[SessionRow]:
    """Yield those of these sessions that are in the journal, as `row_of` returns them."""
    for session_id in session_ids:
        if (row := await row_of(journal, session_id, counted=counted)) is not None:
            yield row


async def tails_of(journal: Journal, session_id: str) -> list[str]:
    """The sessions with the turns of this one that a person went back from; they go with it."""
    rows = await sessions_beside(journal, session_id)
    return [row.session_id for row in rows if row.tail_of == session_id]


async def sessions_beside(journal: Journal, session_id: str) -> list[SessionRow]:
    """The sessions that are named after this one: its tails, and others with its id."""
    try:
        row = await journal.resolve(f"{session_id}~")
        rows = [row, *await sessions_beside(journal, row.session_id)]
    except UnknownSessionError:
        return []
    except AmbiguousIdError as error:
        if not error.is_cut:
            rows = [row async for row in rows_of(journal, error.matches)]
        else:
            rows = await journal.page(_EVERYTHING, None, sys.maxsize)
    return [row for row in rows if row.session_id.startswith(f"{session_id}~")]


_EVERYTHING: Final = ListFilter(include_unprompted=True, archived="include")


async def session_of(journal: HasLinks, agent: str, downstream_id: str) -> str | None:
    """Our session behind an id of the agent; None if there is none."""
    return (await journal.links.sessions_of(agent, [downstream_id])).get(downstream_id)


async def is_forgotten(journal: HasLinks, agent: str, downstream_id: str) -> bool:
    """True if there is a tombstone for this id of the agent."""
    return None in (await journal.links.sessions_of(agent, [downstream_id])).values()


async def history(
    journal: Readable,
    session_id: str,
    after: int = 0,
    through: int | None = None,
    *,
    brief: bool = False,
) -> AsyncIterator[Segment]:
    """Yield the segments of a session above `after`, oldest first, one `read` at a time in memory.
    For `brief` see `Readable.read`.

    Yields the entries that exist now, or those up to `through`, each once: if the session is
    settled meanwhile, only unsettled entries are merged, and those are read at once. Only if these
    exceed `bounds.TAIL_BYTES` can they change between two pages; then RewrittenError is raised.
    """
    async for page in _pages(journal, session_id, after, through, brief=brief):
        page.reverse()
        while page:  # a long one stays in memory no longer than its reader needs it
            yield page.pop()


async def _pages(
    journal: Readable, session_id: str, after: int, through: int | None, *, brief: bool = False
) -> AsyncIterator[list[Segment]]:
    last = (await journal.session(session_id)).last_seq
    through = last if through is None else min(through, last)
    first = after
    while after < through and (
        page := await journal.read(session_id, after, tail_bytes=bounds.TAIL_BYTES, brief=brief)
    ):
        # Only the first `after` may lie inside a merged segment: later ones were ends of segments,
        # so a merge has happened in between.
        if page[0].first_seq <= after != first:
            raise RewrittenError(
                f"session {session_id!r} was compacted while it was being read; try again"
            )
        after = page[-1].last_seq
        if after > through:
            page = [segment.up_to(through) for segment in page if segment.first_seq <= through]
        yield page
