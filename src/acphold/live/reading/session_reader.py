"""Sessions read without attaching to them: one interface for commands, for the page and the feed.

`reading.local_reader` reads a journal, `reading.server_reader` an `acphold serve` far away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.fold import Fold, SessionState
from acphold.conversation.history.prompt_queue import BY_PERSON
from acphold.errors import ConnectionLostError, JournalBusyError, RewrittenError
from acphold.journal.journal import Journal, PageBack
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import SearchHit, SnapshotState, Sought
from acphold.known_agents import short_name
from acphold.live.reading import bounds

if TYPE_CHECKING:
    from acphold.conversation.history.entries import Entry
    from acphold.conversation.history.timeline import TurnOutcome
    from acphold.journal.seams import Grouping, UsageSums
    from acphold.live.reading.inbox import InboxQuestion
    from acphold.live.reading.processes import Live, LiveSession, SilentProcess


class FilesOfSession(Struct, frozen=True):
    """The newest snapshot of a session's files: `state` and `reason` are those of
    `journal.seams.TurnSnapshot`, `at` is in ISO 8601."""

    state: SnapshotState
    at: str
    reason: str = ""


class ListedSession(Struct, frozen=True):
    """A session of the list; `live` is set while a process has it in memory, which is `pid`.

    `outcome` is that of its last turn; None if there is none, or if it may still end. `questions`
    are the open ones, told with changes only (see `SessionReader.changes`). It is `pinned` by the
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
OnAway = Callable[[ConnectionLostError | None], object]


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


class OfferedRule(Struct, frozen=True):
    """A rule to make of a question that was allowed, as it is typed, what it means in plain words,
    and the name of the agent that asked; see `reading.rule_offers`. `words` are those of RuleOffer;
    "" from an earlier server."""

    text: str
    meaning: str
    agent: str
    words: str = ""


class SessionReader(Protocol):
    """Reads sessions; raises JournalError here, and ConnectionLostError, RemoteError and
    RemoteRefusalError far away."""

    origin: str = ""
    """The server's address, without a path; "" for a journal of this machine."""

    said: Described = staticmethod(searchable_text)
    """The text that words of a list are in, beside the last words; a server has its own."""

    index_seconds: float = 0.0
    """A search first indexes what lags, for so long; a server does so by itself."""

    on_away: OnAway = bool
    """Is called while the list is followed: with the error of each attempt to connect to a server
    again, and with None when one succeeds."""

    journal: Journal | None = None
    """The journal, for what changes it, or is of this machine; None of a server."""

    silent: Sequence[SilentProcess] = ()
    """The daemons that did not say what is live in them, when they were asked last."""

    async def page(
        self, wanted: Wanted, cursor: str | None = None, limit: int = bounds.PAGE
    ) -> SessionPage:
        """Return the next `limit` wanted sessions, or fewer; CursorError."""

    async def listed(self, session_ids: Sequence[str]) -> list[ListedSession]:
        """Return those of these sessions that are there, in this order."""

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the last words of sessions; see `journal.Entries.endings`. A server tells them
        only with a page, if `Wanted.said`."""
        return {}

    async def session(self, given: str, cwd: str | None = None) -> SessionRow:
        """Return the session with this id, or else the one whose id begins with it; with `cwd`,
        only from that folder. Raises UnknownSessionError and AmbiguousIdError."""

    async def whole(self, row: SessionRow) -> SessionRow:
        """Return the session, reading it first if an import has only listed it; TranscriptError. A
        server has to be asked by opening it."""
        return row

    async def live(self) -> Live:
        """Return the sessions in the memory of processes; a server tells them with its list."""
        return {}

    async def agents(self) -> list[str]:
        """Return the agents that sessions are with; no server tells them."""
        return []

    async def lagging(self, cwd: str | None = None) -> int:
        """Return the number of sessions, of all or of a folder, that a search does not find yet; no
        server tells it."""
        return 0

    async def is_live(self, session_id: str) -> bool:
        """Return True if a process has the session."""

    async def live_state(self, session_id: str) -> str | None:
        """Return the state of a session, as in LiveSession; None if no process has it."""

    async def short_ids(self, session_ids: Iterable[str]) -> dict[str, str]:
        """Return the shortest prefix of each id that tells it from others, of SHORT_ID letters at
        least; that of a server only from those read, longer if it was not in a list."""

    def entries(
        self, session_id: str, after: int = 0, *, brief: bool = False
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a session above `after`, oldest first, without void ones. With
        `brief`, long updates may come without their ends: see `beginning`."""

    async def state(self, session_id: str) -> SessionState:
        """Return a conversation."""
        folding = Fold()
        async for entry in self.entries(session_id):
            folding.add(entry)
        return folding.state()

    async def read_back(
        self, session_id: str, before: int | None, limit: int, *, brief: bool = False
    ) -> PageBack:
        """Return the last `limit` entries below `before`; see `journal.Entries.read_back`."""

    async def search(self, sought: Sought) -> list[SearchHit]:
        """Return the hits of a search that widens; see `journal.Index.search`."""

    async def usage(
        self, by: Grouping, *, agents: tuple[str, ...] = (), cwd: str | None = None, since: int = 0
    ) -> UsageSums:
        """Add up the tokens and cost that agents reported; see `journal.Index.usage`. Days are in
        the time zone of the journal's machine."""

    async def questions(self) -> list[InboxQuestion]:
        """Return the open questions, the oldest first."""

    async def decisions(
        self, limit: int, before: int | None = None
    ) -> tuple[list[InboxQuestion], int | None]:
        """Return the last decisions before a time (ms), newest first, and where to read on."""

    async def rule_answers(self, session_id: str) -> int:
        """Count the questions of a session that rules have answered; no server tells it."""
        return 0

    async def rule_offers(self, session_id: str, question_id: str) -> Sequence[OfferedRule]:
        """Return the rules that a question offers, the one that allows least first."""

    async def make_rules(
        self, session_id: str, question_id: str, text: str, *, all_agents: bool, made_with: str
    ) -> str:
        """Make an offered rule, for the agent that asked or for all; return the command that
        revokes it. Raises RuleError; a server refuses with RemoteRefusalError."""

    async def new_rules(self, device: str) -> Sequence[str]:
        """Return the texts of the person's rules that were not made on this device, and that none
        but their makers have shown."""

    def changes(self, newest: int, *, said: bool = False) -> AsyncGenerator[News, None]:
        """Yield the list with so many of the newest sessions, then each change, until closed;
        `said` is as in Wanted, and a server tells the last words always."""


SHORT_ID: Final = 6
"""Characters of an id at first; more if that is not unique."""


async def session_pages(
    reader: SessionReader,
    wanted: Wanted,
    limit: int | None = None,
    on_left_out: Callable[[int], object] = bool,
) -> AsyncIterator[Sequence[ListedSession]]:
    """Yield the wanted sessions in pages, newest first, at most `limit`; `on_left_out` gets the
    number of those of programs that a page leaves out. Raises ConnectionLostError for a list that
    would never end."""
    cursor, left = None, limit
    visited: set[str] = set()
    while left is None or left > 0:
        page = await reader.page(
            wanted, cursor, bounds.PAGE if left is None else min(bounds.PAGE, left)
        )
        on_left_out(page.left_out)
        if page.sessions:
            yield page.sessions
        left = None if left is None else left - len(page.sessions)
        if (cursor := page.cursor) is None:
            return
        if cursor in visited:
            raise ConnectionLostError("the server sends the same pages of the list again and again")
        visited.add(cursor)


async def sessions_on_hold(reader: SessionReader) -> list[ListedSession]:
    """Return the sessions with prompts that are held, the last active ones first; see `is_held`."""
    return [it async for page in session_pages(reader, QUEUED) for it in page if is_held(it)]


async def newest_first(
    reader: SessionReader, session_id: str, at_once: int = bounds.PAGE
) -> AsyncIterator[Entry]:
    """Yield the entries of a session, from its end to its beginning; RewrittenError if a turn is
    settled meanwhile."""
    before: int | None = None
    while True:
        page = await reader.read_back(session_id, before, at_once)
        for entry in page.entries:
            yield entry
        if (before := page.before) is None:
            return


async def last_entries(
    reader: SessionReader, session_id: str, at_most: int | None = None
) -> list[Entry]:
    """Return the entries of a session, or so many at its end, in order; JournalBusyError."""
    for _ in range(bounds.READINGS):
        found: list[Entry] = []
        with suppress(RewrittenError):
            async for entry in newest_first(
                reader, session_id, min(at_most or bounds.PAGE, bounds.PAGE)
            ):
                found.append(entry)
                if len(found) == at_most:
                    break
            return found[::-1]
    raise JournalBusyError(f"session {session_id!r} is written faster than it can be read")
