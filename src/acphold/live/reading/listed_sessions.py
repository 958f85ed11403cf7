"""Sessions as lists have them: for commands, the page and the feed. `local_reader` reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.prompt_queue import BY_PERSON
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import SnapshotState
from acphold.known_agents import short_name

if TYPE_CHECKING:
    from acphold.conversation.history.timeline import TurnOutcome
    from acphold.live.reading.inbox import InboxQuestion
    from acphold.live.reading.processes import LiveSession


class FilesOfSession(Struct, frozen=True):
    """The newest snapshot of a session's files: `state` and `reason` are those of
    `journal.seams.TurnSnapshot`, `at` is in ISO 8601."""

    state: SnapshotState
    at: str
    reason: str = ""


class ListedSession(Struct, frozen=True):
    """A session of the list; `live` is set while a process has it in memory, which is `pid`.

    `outcome` is that of its last turn; None if there is none, or if it may still end. `questions`
    are the open ones, told with changes only (see `LocalReader.changes`). It is `pinned` by the
    person who reads. `files` is None if none
    were ever kept with it. `said` are its last words (`history.titles`),
    None if they were not read. It is `by_program` if only a program prompted it, or one of several
    short ones of the same words. `project` is its folder in the main work tree of the repository,
    "" if that is its own.
    """

    row: SessionRow
    outcome: TurnOutcome | None = None
    live: LiveSession | None = None
    pid: int = 0
    is_daemon: bool = False
    questions: Sequence[InboxQuestion] = ()
    files: FilesOfSession | None = None
    said: str | None = None
    pinned: bool = False
    by_program: bool = False
    project: str = ""

    @property
    def state(self) -> str:
        """Its live state, or else the outcome of its last turn, in a word."""
        if self.live is not None and self.live.state != "idle":
            return self.live.state
        if self.outcome is not None:
            return self.outcome
        if self.live is not None and self.row.message_count:
            return "running"  # as its process will say in a moment
        return "unread" if self.row.is_unread else "new"


def searchable_text(row: SessionRow) -> str:
    """Return the text in which words of a list are looked for."""
    return f"{row.title}\0{row.agent}\0{short_name(row.agent)}\0{row.cwd}\0{row.hashtags}"


Described = Callable[["SessionRow"], str]


class Wanted(Struct, frozen=True):
    """The wanted sessions: a filter of the journal, and of its sessions those with all `words`
    (casefolded), active `since` (ms since the epoch), and live if `only_live`. With `said`, also
    the last words of each: reading them takes as long as the rest of its row; with `mine`, those
    that are `by_program` are left out."""

    filter: ListFilter = ListFilter()
    words: tuple[str, ...] = ()
    since: int = 0
    only_live: bool = False
    said: bool = False
    mine: bool = False

    def fits(self, row: SessionRow, *, is_live: bool, said: Described = searchable_text) -> bool:
        """Return True if the list has this session; `said` is the text that words are in."""
        asked = replace(self.filter, include_unprompted=True) if self.only_live else self.filter
        return (is_live or not self.only_live) and asked.fits(row) and self.has(row, said)

    def has(self, row: SessionRow, said: Described) -> bool:
        """Return True if the session was active since then and has all words."""
        text = said(row).casefold() if self.words else ""
        return row.updated_at >= self.since and all(word in text for word in self.words)


QUEUED: Final = Wanted(ListFilter(queued=True, include_unprompted=True, archived="include"))
"""All sessions in which prompts wait."""


def is_held(session: ListedSession) -> bool:
    """Return True if prompts wait in a session and do not go on, and a person has to know: they did
    not hold them, nor cancel the turn before in a client that is still there."""
    row, live = session.row, session.live
    if not row.queued or row.held in ("", BY_PERSON):
        return False
    return row.held != "cancelled" or live is None or not live.clients


class SessionPage(Struct, frozen=True):
    """Sessions, newest first; the next page begins at `cursor`, None at the end of the list. So
    many of programs were `left_out` among them."""

    sessions: Sequence[ListedSession]
    cursor: str | None = None
    left_out: int = 0


class News(Struct, frozen=True):
    """New and changed sessions, and the ids of those that are gone; with `is_all`, the list from
    the beginning: its newest sessions and all live ones, newest first."""

    sessions: Sequence[ListedSession]
    gone: Sequence[str] = ()
    is_all: bool = False


SHORT_ID: Final = 6
"""Characters of an id at first; more if that is not unique."""
