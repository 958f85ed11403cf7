"""The index of a journal: search, the sums of usage, and the upkeep that is due between turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

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
    turns. With `tenant`, only sessions that this tenant can see are searched.
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
    """An entry that matches a search, and its session.

    `excerpt` is one line of its text, `marks` the places of the words in it. `tool` is the title of
    the tool call, where `speaker` is `tool` or `diff`; None if this entry does not have it.
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
    """The sums of groups, and of all. Groups by day come newest first, others by most tokens.

    `by_request` has the agents with reports that are not known to be for a whole turn.
    """

    groups: Sequence[UsageSum]
    total: UsageSum
    by_request: frozenset[str]


class Index(Protocol):
    """The search index, the sums of usage, and the upkeep that is due between turns."""

    async def search(self, sought: Sought | str) -> list[SearchHit]:
        """Return the indexed entries that have all of the words: newest first, or best first with
        `rank`.

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
        Sessions that have been waiting for the index since before usage was recorded have no
        reports yet.
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
