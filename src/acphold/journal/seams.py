"""The smaller seams of a journal: its index, its snapshots of files, and its own file.

The contents of snapshots are in stores beside the journal, on one machine (`snapshots`):
contents that no row refers to are removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from acphold.conversation.history.entries import TurnSpan

Part = Literal["messages", "tools", "diffs"]
"""The part of an entry to search: messages and thoughts; titles, inputs and outputs of tool calls;
paths and both sides of changes to files."""

Speaker = Literal["user", "told", "agent", "thought", "tool", "diff"]
"""The speaker of the words in a hit."""


class Sought(Struct, frozen=True):
    """A search; see `Index.search`.

    `words` are words, "phrases in quotes", and beginnings with a `*`. `agents` are as in
    ListFilter; `since` is in ms since the epoch. With `session_id`, only that session is searched.
    With `unsettled`, the search includes the unsettled ends of the newest sessions, such as running
    turns. With `tenant`, only sessions that this tenant can see are searched; with `at_ends`, only
    the last entries of sessions. With `widens`, a search that finds nothing goes on: for words that
    begin so, and for conversations that have all words together, or else most of them.
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
    at_ends: bool = False
    widens: bool = False


class SearchHit(Struct, frozen=True):
    """An entry that matches a search, and its session.

    `excerpt` is one line of its text, `marks` the places of the words in it. `tool` is the title of
    the tool call, where `speaker` is `tool` or `diff`; None if this entry does not have it. `user`
    is the name of the user who said it. `missing` are the words that its conversation does not
    have, of these `nowhere` those that no conversation has.
    """

    session_id: str
    seq: int
    at: int
    speaker: Speaker
    excerpt: str
    marks: tuple[tuple[int, int], ...]
    agent: str
    cwd: str
    title: str | None
    tool: str | None
    archived: bool = False
    user: str | None = None
    missing: tuple[str, ...] = ()
    nowhere: tuple[str, ...] = ()


class Tokens(Struct, frozen=True, array_like=True, gc=False):
    """Counts of tokens; None for a count that was not reported.

    Some agents include cached tokens in the input, some do not: only `total` can be compared.
    """

    input: int | None = None
    output: int | None = None
    thought: int | None = None
    cached_read: int | None = None
    cached_write: int | None = None
    total: int | None = None


Grouping = Literal["agent", "day", "folder", "model", "session"]
"""Ways to group sums of tokens and cost; days are in this machine's time zone."""


class UsageSum(Struct, array_like=True):
    """The reported usage of a group of sessions; `name` is the group, `title` that of a session.

    `not_reported` counts the sessions for which no tokens were reported. `costs` are by currency.
    """

    name: str
    title: str | None = None
    sessions: int = 0
    not_reported: int = 0
    tokens: Tokens = Tokens()
    costs: dict[str, float] = {}


class UsageSums(Struct, frozen=True):
    """The sums of groups, and of all.

    Groups by day come newest first, others by most tokens, then by most sessions. `by_request`
    has the agents with reports that are not known to be for a whole turn.
    """

    groups: Sequence[UsageSum]
    total: UsageSum
    by_request: frozenset[str]


class Index(Protocol):
    """The search index, the sums of usage, and the upkeep that is due between turns."""

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        """Return the indexed entries that have all of the words: newest first, or best first with
        `rank`. If there are none and the search `widens`: some of each conversation, best first.

        Entries are indexed soon after their turn is over; for exceptions see `catch_up`.
        """

    async def usage(
        self,
        by: Grouping,
        *,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
    ) -> UsageSums:
        """Add up the tokens and cost that agents reported since `since` (ms since the epoch).

        Covers sessions that were active since then; with `agents`, only reports of these agents.
        """

    async def catch_up(self, seconds: float, *, cwd: str | None = None, since: int = 0) -> int:
        """Index sessions that lag behind, for about `seconds`; return how many lag now.

        The newest come first, none that was last active before `since` (ms since the epoch). With 0
        seconds it only counts. The count is for all folders, or for `cwd`.
        """

    async def tidy(self, seconds: float) -> int:
        """Overwrite the remains of deletions, return room to the disk, and pack old turns.

        Packing runs for about `seconds`, at least one piece. It packs sessions that nobody has
        continued for a day, the newest first; returns how many of these are left.
        """


SnapshotState: TypeAlias = Literal["whole", "likely", "late", "later", "refused"]
"""The certainty that a snapshot has the files of its moment. "whole": certain, the agent had said
nothing after it. "likely": the agent had said something. "late": it was at work, and may have made
its first changes. "later": the end was taken by the next turn, because the process had ended.
"refused": not taken at all."""


class TurnSnapshot(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The files below `root` at one end of a turn.

    See SnapshotState. A snapshot of an end is late, or likely, by the agent's next turn.

    `turn` is the last entry before the turn's prompt, `at` the time (ms since the epoch). `tree` is
    the snapshot in the store with the id `store`; both are "" if it was refused, for `reason`.
    `commit` and `branch` were checked out; None is no commit yet, "" no branch. `left_out` has
    pairs of a file and a reason, `left_out_count` their number. `files` and `size` (bytes) had
    changed.

    In a copy of a conversation, `taken_for` is the session that it was taken for, and `cwd` the
    folder of that one, "" if the copy has the same.
    """

    turn: int
    edge: Literal["begin", "end"]
    root: str
    at: int
    state: SnapshotState
    store: str = ""
    tree: str = ""
    reason: str = ""
    commit: str | None = None
    branch: str = ""
    files: int = 0
    size: int = 0
    left_out: tuple[tuple[str, str], ...] = ()
    left_out_count: int = 0
    taken_for: str = ""
    cwd: str = ""

    @property
    def is_kept(self) -> bool:
        return bool(self.tree)

    @property
    def order(self) -> tuple[int, bool, str]:
        """The place among those of a session: by turn, the beginning first, by root."""
        return self.turn, self.edge == "end", self.root

    @property
    def moment(self) -> tuple[str, int, str, str]:
        """The same for a snapshot and its copies, and for no other."""
        return self.root, self.at, self.edge, self.tree


class Numbered(Struct, frozen=True):
    """A snapshot and the number of its turn."""

    turn: int
    snapshot: TurnSnapshot


def with_numbers(rows: Sequence[TurnSnapshot], spans: Sequence[TurnSpan]) -> list[Numbered]:
    """Return snapshots with the numbers of their turns, in order; a row names the last entry
    before the prompt: it is of the first turn that begins after it."""
    firsts = [span.first for span in spans]
    found = [(bisect_right(firsts, one.turn), one) for one in sorted(rows, key=lambda it: it.order)]
    return [Numbered(spans[at].number, one) for at, one in found if at < len(spans)]


class Snapshots(Protocol):
    """The snapshots of all sessions. Deleting a session deletes its rows."""

    async def keep(self, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
        """Add snapshots of a session, replacing those of the same turn, edge and root. Its row
        counts as changed.

        Raises UnknownSessionError.
        """

    async def of(self, session_id: str) -> list[TurnSnapshot]:
        """The snapshots of a session, oldest first; an unknown session has none."""

    async def newest(self, session_ids: Sequence[str]) -> dict[str, TurnSnapshot]:
        """The newest snapshot of each of these sessions; those without any are left out."""

    async def of_all(self) -> list[tuple[str, TurnSnapshot]]:
        """All snapshots, each with its session; by session, oldest first."""

    async def drop(self, session_id: str, taken: Sequence[TurnSnapshot]) -> None:
        """Remove these snapshots of a session."""


class Large(Struct, frozen=True):
    """A session that takes much room, and the bytes it takes."""

    session_id: str
    title: str | None
    size: int


class Sizes(Struct, frozen=True):
    """Bytes of the file used by conversations, by the search index, and by nothing any more.

    `conversations` and `index` are None where the store cannot tell. `largest` has the sessions
    that take most, the largest first.
    """

    conversations: int | None
    index: int | None
    free: int
    largest: tuple[Large, ...]


class Repaired(Struct, frozen=True):
    """The result of a repair: sessions that had a wrong count or summary; the number of sessions
    that are gone and had left rows behind; and of those that have to be indexed again."""

    miscounted: tuple[str, ...]
    left_over: int
    unindexed: int = 0


class InFile(Protocol):
    """The file of a journal; in a store without one, `Journal.file` is None.

    Every method may raise the errors of the journal's own methods.
    """

    @property
    def path(self) -> str:
        """Its absolute path."""

    @property
    def is_nearly_full(self) -> bool:
        """True if its disk has no room to spare."""

    @property
    def was_open_to_others(self) -> bool:
        """True if other users could read the file before it was opened now."""

    async def log_cut_at(self) -> int | None:
        """The time at which the log was found without its end (ms since the epoch), so that
        sessions may be missing; None if it never was."""

    async def went_back_at(self) -> int | None:
        """The time at which an earlier copy was found in place of the file (ms since the epoch), so
        that later sessions are missing; None if it never was."""

    async def damage(self) -> list[str]:
        """Read the whole file and return what is damaged, a sentence each; empty if it is whole."""

    async def find_spoiled(self) -> list[str]:
        """The sessions whose summary is not what was written."""

    async def unswept(self) -> int:
        """The number of deleted sessions with remains in the file: they go within a minute, or
        their removal was cut short."""

    async def sweep(self) -> None:
        """Remove the remains of deleted sessions now."""

    async def sizes(self, largest: int) -> Sizes:
        """Return what takes the room, with this many of the largest sessions; unless that is 0, the
        whole file is read."""

    async def repair(self) -> Repaired:
        """Recompute counts and summaries from the entries, and drop what is wrong in the search
        index."""

    async def give_back(self) -> int:
        """Return unused space to the disk, even while others read and write; the bytes returned."""

    async def copy_to(self, path: str) -> int:
        """Copy the file as it is at one moment, even while others write; the size in bytes."""
