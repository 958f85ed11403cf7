"""The interface of a journal: what can be kept, read, listed, searched and owned.

The rooms above know a journal by this interface alone; `journal.sqlite` fulfils it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from acphold.errors import RewrittenError
from acphold.history.fold import Fold
from acphold.journal.access import Access
from acphold.journal.location import is_same_folder

if TYPE_CHECKING:
    from acphold.errors import LeaseLostError
    from acphold.history.entries import Entry, PastEntry, Run, Segment
    from acphold.history.fold import SessionState, Summary
    from acphold.journal.in_file import InFile
    from acphold.journal.owners import Owner, Whose

READ_BYTES: Final = 1 << 20
"""How much of a session's history one `read` brings at most, beyond its first segment."""

TAIL_BYTES: Final = 64 << 20
"""How much that may still be put together is read at once; see `history`."""


class Origin(Struct, frozen=True, rename="camel"):
    """Where a conversation came from: from a session, up to entry `seq`, held with `agent`.

    A session that went over to another agent itself has its own id here.
    """

    session_id: str
    agent: str
    seq: int


class NewSession(Struct, frozen=True):
    """A session about to be created; `agent` says which agent it belongs to.

    `created_at` is ms since the epoch; None means now. `renamed`, `origins` and `tenant` as in
    SessionRow.
    """

    session_id: str
    agent: str
    cwd: str
    additional_directories: tuple[str, ...] = ()
    title: str | None = None
    created_at: int | None = None
    renamed: bool = False
    origins: tuple[Origin, ...] = ()
    tenant: str = ""


class Listed(Struct, frozen=True):
    """A session to be listed before it is read.

    `downstream_id` is the agent's own id of it, `updated_at` when it went on last (ms since the
    epoch), `source` where its transcript is, in words of the import's.
    """

    new: NewSession
    downstream_id: str
    updated_at: int
    source: bytes


class RowChange(Struct, frozen=True):
    """New values for the row of a session; what is UNSET stays as it is.

    `given` is a title that a person gives: no `title` takes its place, until None takes it back.
    With `unread` as None the session is read to its end. The others are as in SessionRow.
    """

    title: str | UnsetType | None = UNSET
    given: str | UnsetType | None = UNSET
    updated_at: int | UnsetType = UNSET
    prompted: bool | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    origins: tuple[Origin, ...] | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    unread: UnsetType | None = UNSET
    followers: int | UnsetType = UNSET
    start: str | UnsetType | None = UNSET
    unseen: bool | UnsetType = UNSET


class ListKey(Struct, frozen=True, order=False):
    """A position in the list of sessions, which runs from the newest `updated_at` to the oldest.

    Sessions of one millisecond follow each other by `session_id`, from high to low: both in one
    direction, so that SQL can compare them as one row value.
    """

    updated_at: int
    session_id: str

    def __lt__(self, other: ListKey) -> bool:
        """Whether this position comes earlier in the list."""
        return (self.updated_at, self.session_id) > (other.updated_at, other.session_id)


class SessionRow(Struct, frozen=True):
    """What the list shows of a session; times are ms since the epoch.

    `prompted` is False until the first prompt; `message_count` counts prompts and agent
    messages; `last_seq` is 0 in a session without entries. `renamed` says that a person gave the
    title; `origins` where the conversation came from, oldest first. `followers` is how many
    clients may go on behind a position that is lost when the session is settled: so many that ask
    for positions were there at a time; 0 if nothing came since it was settled last.
    `downstream_id` is the one by which the agent has known it last. `unread` is None but for a
    session that an import has listed, and not read to its end yet (see `Arrivals.complete`): where
    its transcript is, as in Listed. `start` is the mark of how the agent was started that was
    prompted last: how that was, the home knows where it was done (`acphold.cli.starts`), and no
    journal; None where nobody knows. `tenant` is whose it is: for others it is not there
    (`server.principals`); "" for nobody's in particular. `unseen` is whether a turn has ended in it
    while no client had it open, and none has opened it since. `shared_with` are the others for whom
    it is there, and whether they may go on with it. `lineage` is that of its positions (see
    `acphold.journal.lineage`); "" where the journal tells none.
    """

    session_id: str
    agent: str
    cwd: str
    additional_directories: tuple[str, ...]
    title: str | None
    created_at: int
    updated_at: int
    message_count: int
    prompted: bool
    last_seq: int
    archived: bool = False
    renamed: bool = False
    origins: tuple[Origin, ...] = ()
    followers: int = 0
    downstream_id: str | None = None
    unread: bytes | None = None
    start: str | None = None
    tenant: str = ""
    unseen: bool = False
    shared_with: dict[str, bool] = {}
    lineage: str = ""

    def is_there_for(self, tenant: str | None) -> bool:
        """Whether it is there for a tenant: theirs, or shared with them. For None all are."""
        return tenant is None or tenant == self.tenant or tenant in self.shared_with

    @property
    def is_unread(self) -> bool:
        """Whether an import has listed it, and not read it to its end yet."""
        return self.unread is not None

    @property
    def key(self) -> ListKey:
        """Where this session stands in the list."""
        return ListKey(self.updated_at, self.session_id)


Archived = Literal["exclude", "include", "only"]
"""What a list has of archived sessions (unstable v1 schema, SessionArchiveFilter)."""


class ListFilter(Struct, frozen=True):
    """Which sessions to list: with `agents`, those that are kept under one of these.

    `cwd` may be any name of the folder. Sessions that were never prompted are left out, except
    those in `held` (somebody has them open), and all of them with `include_unprompted`. With
    `unread`, only those that an import has listed and not read; with `tenant`, only what is there
    for that one.
    """

    agents: tuple[str, ...] = ()
    cwd: str | None = None
    held: frozenset[str] = frozenset()
    include_unprompted: bool = False
    archived: Archived = "exclude"
    unread: bool = False
    tenant: str | None = None

    def fits(self, row: SessionRow) -> bool:
        """Whether a list by this filter has the session."""
        return (
            (not self.agents or row.agent in self.agents)
            and (row.prompted or self.include_unprompted or row.session_id in self.held)
            and (self.archived == "include" or row.archived == (self.archived == "only"))
            and (row.is_unread or not self.unread)
            and row.is_there_for(self.tenant)
            and (self.cwd is None or is_same_folder(self.cwd, row.cwd))
        )


class Lease(Struct):
    """The right to write to one session, as long as nobody took it over. Journals make these.

    `number` is the journal's own key of the session, which no other session ever gets; `epoch`
    grows with every lease that the journal grants; `next_seq` is the number of the next entry;
    `lineage` is that of the positions which are told under it, as in SessionRow.
    """

    session_id: str
    number: int
    epoch: int
    next_seq: int
    lineage: str = ""


class Append(Struct, frozen=True):
    """What is to be appended to one session; see `Entries.append`."""

    lease: Lease
    runs: Sequence[Run]
    change: RowChange | None = None


Part = Literal["messages", "tools", "diffs"]
"""What of an entry is searched: messages and thoughts; titles, inputs and outputs of tool calls;
paths and both sides of changes to files."""

Speaker = Literal["user", "told", "agent", "thought", "tool", "diff"]
"""Whose words a hit shows."""


class Sought(Struct, frozen=True):
    """What is searched for; see `Index.search`.

    `words` are words, "phrases in quotes", and beginnings with a `*`. `agents` are as in
    ListFilter; `since` is in ms since the epoch. With `session_id`, only that session is searched.
    With `unsettled`, the ends of the newest sessions are looked through too, such as of turns that
    run. With `tenant`, only what is there for that one is searched.
    """

    words: str
    agents: tuple[str, ...] = ()
    cwd: str | None = None
    since: int = 0
    part: Part | None = None
    rank: bool = False
    limit: int = 20
    unsettled: bool = True
    session_id: str | None = None
    tenant: str | None = None


class SearchHit(Struct, frozen=True):
    """An entry that has what was sought, and the session it is in.

    `excerpt` is one line of what it says, `marks` where in it the words are. `tool` is the title of
    the tool call, where `speaker` is `tool` or `diff`; None when this entry does not tell it.
    """

    session_id: str
    seq: int
    at: int
    kind: str
    speaker: Speaker
    excerpt: str
    marks: tuple[tuple[int, int], ...]
    agent: str
    cwd: str
    title: str | None
    tool: str | None
    archived: bool = False


class Tokens(Struct, frozen=True, array_like=True, gc=False):
    """Counts of tokens; None for what was not reported.

    Some agents count cached tokens as input too, some beside it: only `total` can be compared.
    """

    input: int | None = None
    output: int | None = None
    thought: int | None = None
    cached_read: int | None = None
    cached_write: int | None = None
    total: int | None = None


Grouping = Literal["agent", "day", "folder", "session"]
"""What tokens and cost are added up by; a day is one of this machine's time zone."""


class UsageSum(Struct, array_like=True):
    """What was reported in a group of sessions; `name` is the group, `title` that of a session.

    In `not_reported` of the sessions nobody told any tokens. `costs` are by currency.
    """

    name: str
    title: str | None = None
    sessions: int = 0
    not_reported: int = 0
    tokens: Tokens = Tokens()
    costs: dict[str, float] = {}


class UsageSums(Struct, frozen=True):
    """The sums of groups: of days and sessions the newest first, else the most tokens; and of all.

    `by_request` has the agents that reported something of which is not known that it was of a turn.
    """

    groups: Sequence[UsageSum]
    total: UsageSum
    by_request: frozenset[str]


class PageBack(Struct, frozen=True):
    """Entries of a session, the newest first; `before` is where to read on, None at the beginning.

    What `is_settled` is the same whenever it is read again, but for snapshots that become void.
    """

    entries: Sequence[Entry]
    before: int | None
    is_settled: bool


class RowChanges(Struct, frozen=True):
    """The ids of sessions whose rows have changed, each once; `last` is the change to go on after,
    `more` whether there are more already, `late` whether there are some that are told later: what
    somebody else began to write before them is to be told before them."""

    session_ids: Sequence[str]
    last: int
    more: bool = False
    late: bool = False


class Owners(Protocol):
    """Who may write to a session: see `acphold.journal.owners`, and Lease."""

    async def create(self, new: NewSession, *, yields: bool = False) -> Lease:
        """Make a session and own it; raises SessionExistsError. `yields` as in `acquire`."""

    async def acquire(
        self, session_id: str, seen: int | None = None, *, yields: bool = False
    ) -> Lease:
        """Take the session over, from whoever has it; raises UnknownSessionError.

        With `seen`, the epoch of what `owner` told: HeldElsewhereError when there is another one by
        now, so that of two who try at once only one succeeds. What `yields` is for work in between:
        whoever wants the session may take it.
        """

    async def owner(self, session_id: str) -> Whose:
        """Who owns the session now; raises UnknownSessionError.

        Quick enough to be asked before every prompt, of a session that is ours.
        """

    async def owners(self) -> list[Owner]:
        """Those that live and serve somewhere, as far as is known without asking them."""

    async def renew(
        self,
        leases: Iterable[Lease] = (),
        *,
        addresses: Sequence[str] | None = None,
        retiring: bool = False,
    ) -> list[LeaseLostError]:
        """Tell that this owner is there, every RENEW_SECONDS; which of these leases are lost.

        With `addresses`, others reach it at these URLs from now on, to share its sessions. With
        `retiring` it is about to end: whoever wants its sessions may take them from now on.
        """

    async def release(self, lease: Lease) -> None:
        """Let go; does nothing when somebody else holds the session already."""


class Entries(Protocol):
    """What happened in a session: appended by its owner, read by anybody."""

    async def append(
        self, lease: Lease, runs: Iterable[Run], change: RowChange | None = None
    ) -> list[Segment]:
        """Commit what happened, one run behind the other, and `change` to the row: all or none.

        Only behind the entry that comes before: LeaseLostError, too, where the journal has gone
        back, and what is missing cannot be written again.
        """

    async def append_all(self, appends: Sequence[Append]) -> list[list[Segment] | LeaseLostError]:
        """Append to several sessions at once, to each of them once.

        For each what `append` returns; or the error of one whose lease does not stand any more, of
        which nothing is written. What is for one is all or none. What cannot be written for one,
        as it is no value that a store keeps, is written for none.
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

        For when a turn is over and nobody reads just now; once `compacted` was called, anybody may
        read: indexing takes three to seven times as long. Who has read up to one of the entries of
        `apart` can go on behind it: none is put together with those behind it. Does nothing when
        the lease is lost.
        """

    async def read(
        self, session_id: str, after: int, limit_bytes: int = READ_BYTES, *, tail_bytes: int = 0
    ) -> list[Segment]:
        """Segments with entries above `after`, oldest first; empty only at the end.

        They are of one moment. A segment that `after` cuts through is trimmed. What is not settled
        may be put together before the next `read`: who does not hold the lease has up to
        `tail_bytes` of it come with what is before it. Raises UnknownSessionError.
        """

    async def read_back(
        self,
        session_id: str,
        before: int | None,
        limit: int,
        limit_bytes: int = READ_BYTES,
        *,
        kinds: Sequence[str] = (),
    ) -> PageBack:
        """The last `limit` entries below `before`, or of all, without those that are void.

        With `kinds`, those of these kinds alone; the others are passed over unread. About
        `limit_bytes` of them at most, but one at least when there is one. Raises
        UnknownSessionError, and RewrittenError when `before` is inside of what was put together
        since somebody read it: only from the end on can be read then.
        """

    async def is_exact(self, session_id: str, after: int) -> bool:
        """Whether nothing above `after` was merged, so that who has all up to it can go on there.

        Raises UnknownSessionError.
        """

    async def summary(self, session_id: str) -> Summary:
        """The state of a session without its conversation, quickly; UnknownSessionError."""


class Sessions(Protocol):
    """The rows of sessions, and their list."""

    async def cursor_secret(self) -> bytes:
        """The key that seals list cursors; one for the life of the journal."""

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        """The row of a session; raises UnknownSessionError.

        Unless it is to be `counted`, `message_count` leaves out what is not settled: to count that
        takes as long as the last turn is.
        """

    async def resolve(self, prefix: str, cwd: str | None = None) -> SessionRow:
        """The session with this id, or else the one whose id begins so; of the folder `cwd` only.

        Raises UnknownSessionError and AmbiguousIdError.
        """

    async def short_ids(self, session_ids: Sequence[str], least: int) -> list[str]:
        """The shortest beginning of each id, of `least` characters at least, that fits no other."""

    async def page(
        self, filter: ListFilter, after: ListKey | None = None, limit: int = 50
    ) -> list[SessionRow]:
        """The next `limit` sessions of the list after `after`, newest first."""

    async def count(self) -> int:
        """How many sessions there are, whatever a list has of them."""

    async def changes(self, after: int | None, limit: int = 500) -> RowChanges:
        """Which rows are new, changed or gone since the change `after`; with None, none yet.

        Hardly any work where nobody has written since it was asked last. Raises
        JournalUnavailableError when the journal was deleted or replaced, and RewrittenError when it
        may have gone back since `after` was told: then the list has to be read anew.
        """

    async def outcomes(self, session_ids: Sequence[str]) -> dict[str, bytes | None]:
        """Of each of these sessions how its last turn ended, as TURN_END has it: None for one that
        has not; nothing for a session without turns."""

    async def change(self, session: Lease | str, change: RowChange) -> None:
        """Change the row of a session: under a lease as its owner, or by its id as a person.

        Once a turn, not once an append: the list's indexes cost more than the entry itself. By an
        id, UnknownSessionError is raised when there is no such session.
        """

    async def delete(self, *sessions: Lease | str, idle_since: int | None = None) -> list[str]:
        """Remove sessions, with their entries and leases; the ids of those that are gone now.

        By its id as a person: its links stay as tombstones, so that the agent's own list does not
        bring it back. Under a lease as its owner, who could not make it: as if it had never been.
        With `idle_since` (ms since the epoch), only those that nobody holds and that were last
        active by then.
        """


class Links(Protocol):
    """The ids by which agents know our sessions; of deleted ones tombstones stay."""

    async def link(self, lease: Lease | None, agent: str, downstream_id: str) -> None:
        """Note that the agent knows this session as `downstream_id`.

        With None for the lease, a tombstone is left for an id of the agent that was never ours.
        """

    async def linked(self, agent: str, ids: Iterable[str]) -> dict[str, str | None]:
        """Our sessions behind these ids of the agent; None for a tombstone, nothing if unknown."""

    async def links_of(self, session_id: str | None) -> list[tuple[str, str]]:
        """The ids of a session, each behind its agent, the newest last; with None, all tombstones.

        A session that is not there has none.
        """

    async def last_entries(self, agent: str, ids: Iterable[str]) -> dict[str, Entry | None]:
        """The last entry of each session behind these ids of the agent's; None of an empty one."""

    async def went_on(self, agent: str, times: Mapping[str, int]) -> None:
        """The agent has used these ids of its own until then (ms since the epoch): the sessions
        behind them stand in the list no earlier."""


class Index(Protocol):
    """What is found by its words, and added up; and the work that is due beside the turns."""

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        """Entries of the index that have all of the words, newest first, or best first by `rank`.

        An entry is in the index soon after its turn is over, but see `catch_up`.
        """

    async def usage(
        self,
        by: Grouping,
        *,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
    ) -> UsageSums:
        """What agents reported of tokens and cost since then (ms since the epoch), added up.

        Of sessions that were active since; of what these agents reported, or all did. What lags
        behind in the index since before tokens were noted has no reports yet.
        """

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        """Put what the index lacks into it, for about so long; how many sessions lag behind it now.

        The newest first; none that was last active before `since` (ms since the epoch). In no time
        nothing is done. Those that lag are counted in all folders, or in `cwd`.
        """

    async def tidy(self, seconds: float) -> int:
        """Overwrite what deletions left, give room back, and make old turns take less of it.

        The last for about so long, one piece at least; how many sessions are left. The newest
        first of those that nobody went on with for a day.
        """


class Arrivals(Protocol):
    """What an import brings, and the sessions that it has only listed."""

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
        """Append what happened earlier, with its own times, settled at once: all or none.

        Entries that had numbers elsewhere keep them where they are free. With it `change`, and the
        `link` to an agent and its id for the session. Others cannot write meanwhile: half a
        megabyte at a time is enough. It is left to `catch_up` to index it.

        With `instead` they take the place of the last entry, which must be one that nobody has
        seen: what the import itself noted a moment ago. With `release` the lease ends here.
        """

    async def enlist(self, found: Sequence[Listed]) -> None:
        """Have sessions in the list before they are read; those that are known stay as they are."""

    async def complete(self, session_id: str) -> None:
        """Read an unread session to its end; does nothing for any other.

        Raises TranscriptError when nothing of it can be read, and when it takes too long.
        """


class Journal(Owners, Entries, Sessions, Links, Index, Arrivals, Access, Protocol):
    """What is remembered of all sessions.

    Every method may raise JournalUnavailableError (locked, read-only, full, gone) and
    NotAJournalError (damaged); nothing is half written then. A method that is given a lease checks
    it in the transaction that writes, and raises LeaseLostError when it does not stand any more.
    """

    @property
    def file(self) -> InFile | None:
        """The file that it is in; None for a store that is in none."""

    async def aclose(self) -> None:
        """Finish what runs in the background and close."""


async def state_of(journal: Readable, session_id: str, through: int | None = None) -> SessionState:
    """The entries of a session, folded: all, or those up to `through`; see `history`.

    Away from the loop's thread: a long conversation takes seconds.
    """
    folding = Fold()

    def fold_on(segments: list[Segment]) -> None:
        for segment in segments:
            for entry in segment.entries():
                folding.add(entry)

    async for page in _pages(journal, session_id, 0, through):
        await asyncio.to_thread(fold_on, page)
    return folding.state()


async def session_of(journal: Links, agent: str, downstream_id: str) -> str | None:
    """Our session behind an id of the agent."""
    return (await journal.linked(agent, [downstream_id])).get(downstream_id)


async def is_forgotten(journal: Links, agent: str, downstream_id: str) -> bool:
    """Whether there is a tombstone for this id of the agent."""
    return None in (await journal.linked(agent, [downstream_id])).values()


class Readable(Protocol):
    """What `history` asks of a journal."""

    async def session(self, session_id: str, *, counted: bool = False) -> SessionRow:
        """As in Sessions."""

    async def read(
        self, session_id: str, after: int, limit_bytes: int = READ_BYTES, *, tail_bytes: int = 0
    ) -> list[Segment]:
        """As in Entries."""


async def history(
    journal: Readable, session_id: str, after: int = 0, through: int | None = None
) -> AsyncIterator[Segment]:
    """The segments of a session above `after`, oldest first, one `read` of them in memory.

    All that there are now, or those up to `through`, each entry once: whoever settles the session
    meanwhile joins only what is not settled yet, and that is read at once. Only where that is more
    than TAIL_BYTES can it change between two pages; then RewrittenError is raised.
    """
    async for page in _pages(journal, session_id, after, through):
        for segment in page:
            yield segment


async def _pages(
    journal: Readable, session_id: str, after: int, through: int | None
) -> AsyncIterator[list[Segment]]:
    last = (await journal.session(session_id)).last_seq
    through = last if through is None else min(through, last)
    first = after
    while after < through and (
        page := await journal.read(session_id, after, tail_bytes=TAIL_BYTES)
    ):
        if page[0].first_seq <= after != first:
            raise RewrittenError(
                f"session {session_id!r} was put in order while it was read; try again"
            )
        after = page[-1].last_seq
        if after > through:
            page = [segment.up_to(through) for segment in page if segment.first_seq <= through]
        yield page
