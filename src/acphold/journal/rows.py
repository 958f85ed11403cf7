"""The row of a session in the list, its changes, and filters of the list.

Annotations are no strings here: a store reads those of SessionRow at each start.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from acp_wire.surroundings import is_same_folder
from acphold.conversation.history.entries import Origin, PastEntry


class NewSession(Struct, frozen=True):
    """A session about to be created; `agent` is the agent it belongs to.

    `created_at` is ms since the epoch; None means now. `renamed`, `origins`, `tenant` and
    `by_program` are as in SessionRow.
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
    by_program: bool = False


class Listed(Struct, frozen=True):
    """A session to be listed before it is read.

    `downstream_id` is the agent's own id for it, `updated_at` its last activity (ms since the
    epoch), `source` the place of its transcript, in a form that only the import knows.
    """

    new: NewSession
    downstream_id: str
    updated_at: int
    source: bytes


class RowChange(Struct, frozen=True):
    """New values for the row of a session; UNSET leaves a value as it is.

    `given` is a title given by a person: `title` cannot replace it until `given` is set to None,
    maybe in the same change.
    Setting `unread` to None marks the session as read to its end. The others are as in SessionRow.
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
    queued: int | UnsetType = UNSET
    held: str | UnsetType = UNSET
    held_until: int | UnsetType | None = UNSET
    moved: str | UnsetType = UNSET
    ruled: int | UnsetType = UNSET
    home: str | UnsetType = UNSET
    meta: bytes | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    pins: tuple[str, ...] | UnsetType = UNSET
    by_program: bool | UnsetType = UNSET


NO_CHANGE: Final = RowChange()


class WholeSession(Struct, frozen=True):
    """A session from another journal, to be added as it is: its entries, the change that completes
    its row, and the agents' ids for it."""

    new: NewSession
    past: Sequence[PastEntry]
    change: RowChange
    links: Sequence[tuple[str, str]]


def merge_changes(change: RowChange, later: RowChange) -> RowChange:
    """Return both changes in one."""
    if change is NO_CHANGE or later is NO_CHANGE:
        return change if later is NO_CHANGE else later
    known = {name: value for name, value in asdict(later).items() if value is not UNSET}
    return replace(change, **known)


class ListKey(Struct, frozen=True, order=False):
    """A position in the list of sessions, which runs from the newest `updated_at` to the oldest.

    Sessions of one millisecond are ordered by `session_id`, from high to low: both in one
    direction, so that SQL can compare them as one row value.
    """

    updated_at: int
    session_id: str

    def __lt__(self, other: Self) -> bool:
        """True if this position comes earlier in the list."""
        return (self.updated_at, self.session_id) > (other.updated_at, other.session_id)


class SessionRow(Struct, frozen=True):
    """The row of a session in the list; times are ms since the epoch.

    `prompted` is False until the first prompt. `message_count` counts prompts and agent messages.
    `last_seq` is 0 in a session without entries. `renamed` is True if a person gave the title.
    `origins` are the places the conversation came from, oldest first. `followers` is the largest
    number of clients that asked for positions at one time; settling the session may take away the
    positions they would resume at. It is 0 if nothing was added since the session was last settled.

    `downstream_id` is the latest id under which the agent knows it. `unread` is set only while an
    import has listed the session without reading it to its end (see `Arrivals.complete`): the place
    of its transcript, as in Listed. `start` marks how the agent was started for the last prompt;
    the details are kept outside the journal (`cli.starts`). It is None if unknown. `tenant`
    is the user it belongs to; other tenants cannot see it (`server.principals`), and "" means
    nobody in particular. `unseen` is True if a turn ended while no client had the session open, and
    none has opened it since. `shared_with` maps the other tenants that can see it to whether they
    may prompt. `queued` is the number of queued prompts in it, `held` the reason why they are
    held, "" for none, and `held_until` the moment at which they go on by themselves
    (`history.prompt_queue`). `lineage` is that of its positions (see
    `journal.lineage`); "" where the journal has none. `moved` is set while the session is
    another machine's: see `journal.moves`. `ruled` counts the questions that its person's
    rules have answered. `home` is the identity of the journal in which its history was made:
    under another one nothing in it makes anything happen (`journal.intentions`). `meta` is the
    `_meta` that the agent gave it in updates, a JSON object, b"" for none. `tags` are words that
    people gave it (see `as_tags`), and `pins` the tenants that have it pinned. `by_program` is True
    if no person has prompted it, only a program.
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
    queued: int = 0
    held: str = ""
    held_until: int | None = None
    lineage: str = ""
    moved: str = ""
    ruled: int = 0
    home: str = ""
    meta: bytes = b""
    tags: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    by_program: bool = False

    def is_there_for(self, tenant: str | None) -> bool:
        """True if a tenant can see it: it is theirs or shared with them. None sees all."""
        return tenant is None or tenant == self.tenant or tenant in self.shared_with

    def seen_by(self, tenant: str | None, *, as_guest: bool = False) -> Self:
        """Return it as a tenant sees it, or a guest of this session: others than its owner are not
        told of what sessions it was made, and nobody of the pins of others."""
        if not (self.origins or self.pins):  # as of most
            return self
        is_owners = tenant in (None, self.tenant) and not as_guest
        person = tenant or ""
        pins = (person,) if person in self.pins and not as_guest else ()
        origins = self.origins if is_owners else ()
        if (pins, origins) == (self.pins, self.origins):
            return self
        return replace(self, origins=origins, pins=pins)

    @property
    def tail_of(self) -> str:
        """The session that the person left these turns in, going back; "" if it is no such."""
        if not self.origins:
            return ""
        names = (origin.session_id for origin in reversed(self.origins))
        return next((name for name in names if self.session_id.startswith(f"{name}~")), "")

    @property
    def hashtags(self) -> str:
        """Its tags, each with `#`, as a person types and sees them."""
        return " ".join(f"#{tag}" for tag in self.tags)

    @property
    def is_unread(self) -> bool:
        """True if an import has listed it and not read it to its end yet."""
        return self.unread is not None

    @property
    def key(self) -> ListKey:
        """The position of this session in the list."""
        return ListKey(self.updated_at, self.session_id)


TITLE: Final = "acphold/title"
"""The `_meta` key that marks a title which no agent gave."""

MOST_TAGS: Final = 16
"""Tags of a session."""

_TAG: Final = re.compile(r"#?(\w[\w./+-]{0,31})")


def as_tags(words: Iterable[str]) -> tuple[str, ...]:
    """Return words as tags, each once, in order, without `#`; one with a space within gets a `-`
    there. ValueError for one that is none, and for more than MOST_TAGS."""
    tags: set[str] = set()
    for word in words:
        if (found := _TAG.fullmatch("-".join(word.split()))) is None:
            raise ValueError(
                f"{word[:40]!r} is no tag: letters, digits, and - _ . / + within, at most 32"
            )
        tags.add(found[1].casefold())
    if len(tags) > MOST_TAGS:
        raise ValueError(f"a session has at most {MOST_TAGS} tags")
    return tuple(sorted(tags))


class Marks(Struct, frozen=True):
    """Tags to give a session: these alone, if there are `tags`, then those `added`, without those
    `removed`; and whether a `person` has it pinned, None to leave that. All as in SessionRow."""

    tags: tuple[str, ...] | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    person: str = ""
    pinned: bool | None = None

    def on(self, row: SessionRow) -> RowChange:
        """Return what changes in the row of a session; ValueError for more than MOST_TAGS."""
        tags = {*(row.tags if self.tags is None else self.tags), *self.added} - {*self.removed}
        pins = {*row.pins} - {self.person} | ({self.person} if self.pinned else {*()})
        return RowChange(
            tags=as_tags(tags), pins=row.pins if self.pinned is None else tuple(sorted(pins))
        )


Archived = Literal["exclude", "include", "only"]
"""Treatment of archived sessions in a list (unstable v1 schema, SessionArchiveFilter)."""


class ListFilter(Struct, frozen=True):
    """A filter for the list of sessions: with `agents`, only the sessions of these agents.

    `cwd` may be any path to the folder; with `beside`, also those of these folders. Sessions that
    were never prompted are left out, except those in `held` (somebody has them open), or if
    `include_unprompted` is set. With `unread`, only sessions that an import has listed and not
    read; with `queued`, only those in which prompts wait; with `tenant`, only those that this
    tenant can see.

    `words` are casefolded, each with agents and sessions. With them, at least those sessions are
    listed that have each word in title, folder or tags (with `#` also as the beginning of a tag),
    or are of one of its agents, or one of its sessions; a store may list others too, where letters
    are not ASCII.
    """

    agents: tuple[str, ...] = ()
    cwd: str | None = None
    beside: tuple[str, ...] = ()
    held: frozenset[str] = frozenset()
    include_unprompted: bool = False
    archived: Archived = "exclude"
    unread: bool = False
    tenant: str | None = None
    queued: bool = False
    words: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()

    def fits(self, row: SessionRow) -> bool:
        """True if the session belongs in a list with this filter."""
        return (
            (not self.agents or row.agent in self.agents)
            and (row.prompted or self.include_unprompted or row.session_id in self.held)
            and (self.archived == "include" or row.archived == (self.archived == "only"))
            and (row.is_unread or not self.unread)
            and (row.queued > 0 or not self.queued)
            and row.is_there_for(self.tenant)
            and (
                self.cwd is None
                or any(is_same_folder(it, row.cwd) for it in (self.cwd, *self.beside))
            )
        )


class RowChanges(Struct, frozen=True):
    """The ids of sessions whose rows have changed, each once. `last` is the position to continue
    at. `more` is True if there are more already."""

    session_ids: Sequence[str]
    last: str
    more: bool = False
