"""A journal read: the sessions that one tenant sees, or all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import Entry, iso, now_ms
from acphold.conversation.history.timeline import TurnOutcome
from acphold.errors import (
    JournalBusyError,
    JournalUnavailableError,
    RewrittenError,
    UnknownSessionError,
)
from acphold.journal import list_places
from acphold.journal.access import Deed
from acphold.journal.bounds import SHORT_SESSION
from acphold.journal.journal import (
    Journal,
    Outcomes,
    PageBack,
    Readable,
    Titled,
    history,
    is_live,
    rows_of,
    state_of,
)
from acphold.journal.rows import ListFilter, ListKey, SessionRow
from acphold.journal.seams import Index, SearchHit, Sought
from acphold.journal.stores import journal_name, open_journal
from acphold.live.reading import bounds
from acphold.live.reading.listed_sessions import (
    QUEUED,
    SHORT_ID,
    Described,
    FilesOfSession,
    ListedSession,
    News,
    SessionPage,
    Wanted,
    is_held,
    searchable_text,
)

if TYPE_CHECKING:
    from acphold.conversation.history.fold import SessionState
    from acphold.journal.seams import Grouping, UsageSums
    from acphold.live.reading.followed_list import Changed
    from acphold.live.reading.inbox import InboxQuestion, Whose
    from acphold.live.reading.processes import Live, SilentProcess


@asynccontextmanager
async def existing_journal(
    location: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Journal]:
    """Open a journal, or the default one, for the block; NoJournalError if there is none: none is
    created."""

    async def read_transcript(path: str, session_id: str) -> None:
        from acphold.imports import read_beside  # late: few sessions need it

        await read_beside(path, session_id)

    kept = open_journal(journal_name(location), create=False, read_transcript=read_transcript)
    try:
        if kept.file is None:  # a database notices only when it is read that there is none
            await kept.identity()
        yield kept
    finally:
        await kept.aclose()


class LocalReader:
    """The sessions of a journal.

    With `whose`, it reads only what a tenant sees, or one session. `live` are the sessions in the
    memory of processes; they are asked otherwise. `silent` are the daemons that did not say what is
    live in them, when they were asked last. A search first indexes what lags, for `index_seconds`.
    """

    said: Described = staticmethod(searchable_text)
    """The text that words of a list are in, beside the last words."""

    def __init__(
        self,
        journal: Journal,
        *,
        whose: Whose | None = None,
        live: Live | None = None,
        index_seconds: float = 0.0,
    ) -> None:
        self.journal = journal
        self._tenant = None if whose is None else whose.tenant
        self._only = None if whose is None else whose.session_id
        self._whose = whose
        self._given = live
        self._live = live
        self._projects: dict[str, str] = {}
        self.silent: list[SilentProcess] = []
        self.index_seconds = index_seconds

    async def live(self) -> Live:
        """Return the sessions in the memory of processes."""
        self._live = self._given
        self._projects.clear()
        if self._live is None:
            from acphold.live.reading.processes import live_anywhere  # late: sockets

            self._live = await live_anywhere(self.journal, self.silent)
        return self._live

    async def page(
        self, wanted: Wanted, cursor: str | None = None, limit: int = bounds.PAGE
    ) -> SessionPage:
        """Return the next `limit` wanted sessions, or fewer; CursorError."""
        filter, journal = replace(wanted.filter, tenant=self._tenant), self.journal
        wanted = replace(wanted, filter=filter)
        live = await self.live() if cursor is None or self._live is None else self._live
        secret = (await journal.identity()).secret
        after, left_out = None, 0
        outcomes: Outcomes | None = None
        if cursor is not None:
            after = list_places.decode(cursor, filter, secret)
        if self._only is not None or wanted.only_live:
            some = live if self._only is None else (self._only,)
            every = [row async for row in rows_of(journal, some, counted=True)]
            rows = sorted(every, key=lambda row: row.key)
            ended = await self.endings([row.session_id for row in rows]) if wanted.words else {}
            rows = [
                row
                for row in rows
                if wanted.fits(row, is_live=row.session_id in live, said=self._with(ended))
                and (after is None or after < row.key)
            ]
            found, last = rows[:limit], rows[limit - 1].key if len(rows) > limit else None
        else:
            outcomes = {}
            found, last, left_out = await self._matching(wanted, after, limit, outcomes)
        following = None if last is None else list_places.encode(last, filter, secret)
        listed = await self.with_states(found, live, outcomes, said=wanted.said)
        return SessionPage(listed, following, left_out)

    async def _matching(
        self, wanted: Wanted, after: ListKey | None, limit: int, outcomes: Outcomes
    ) -> tuple[list[SessionRow], ListKey | None, int]:
        """Return the next wanted sessions; the key to read on after, None at the end; and how many
        of programs are left out. `outcomes` gets those of these, and maybe of others."""
        found: list[SessionRow] = []
        looked_through = left_out = 0
        words, ended = await self._sought(wanted.words)
        filter, said = replace(wanted.filter, words=words), self._with(ended)
        while True:
            # One more than shown, to tell whether more follow.
            at_once = bounds.PAGE if wanted.mine else limit + 1
            rows = await self.journal.page(filter, after, at_once, outcomes)
            if not (wanted.words or wanted.mine) and (
                not rows or rows[-1].updated_at >= wanted.since
            ):
                return rows[:limit], rows[limit - 1].key if len(rows) > limit else None, 0
            repeated = await _repeated_titles(self.journal, rows) if wanted.mine else ()
            last: SessionRow | None = None
            for row in rows:
                if row.updated_at < wanted.since:
                    return found, None, left_out
                if len(found) == limit:
                    return found, after if last is None else last.key, left_out
                last = row
                if wanted.words and not wanted.has(row, said):
                    continue
                if wanted.mine and _is_by_program(row, repeated):
                    left_out += 1
                else:
                    found.append(row)
            after = after if last is None else last.key
            looked_through += len(rows)
            if len(rows) < at_once or looked_through >= bounds.SEARCHED_SESSIONS:
                return found, after if len(rows) == at_once else None, left_out

    def _with(self, ended: Mapping[str, str]) -> Described:
        """Return the text that words of a list are in, with these last words of sessions."""
        return lambda row: f"{self.said(row)}\0{ended.get(row.session_id, '')}"

    async def _sought(
        self, words: Sequence[str]
    ) -> tuple[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...], Mapping[str, str]]:
        """Return words of a list as the journal looks for them: each as it is in a title, a folder
        or tags, with the agents whose names have it, and the sessions whose last words begin so;
        and the last words of these."""
        # The home folder is shown as ~, and a tag with #.
        plain = [word for word in words if "~" not in word and "#" not in word[1:]]
        if not plain or not (
            one := await self.journal.page(ListFilter(archived="include"), None, 1)
        ):
            return (), {}
        ends: set[str] = set()
        for word in plain:
            sought = Sought(
                f'"{word.removeprefix("#").replace(chr(34), " ")}"*',
                part="messages",
                limit=bounds.ENDINGS,
                at_ends=True,
                tenant=self._tenant,
            )
            ends |= {hit.session_id for hit in await self.journal.index.search(sought)}
        ended = await self.endings([*ends])
        names = {
            key: self.said(replace(one[0], title="", cwd="", tags=(), agent=key)).casefold()
            for key in await self.journal.agents()
        }
        which = tuple(
            (
                word,
                tuple(key for key, name in names.items() if word in name),
                tuple(id_ for id_, said in ended.items() if word in said.casefold()),
            )
            for word in plain
        )
        return which, ended

    async def with_states(
        self,
        rows: Sequence[SessionRow],
        live: Live | None = None,
        outcomes: Outcomes | None = None,
        *,
        said: bool = True,
    ) -> list[ListedSession]:
        """Return these sessions, as they are seen, with their live states, outcomes and, if `said`,
        last words."""
        is_guest = self._only is not None
        rows = [row.seen_by(self._tenant, as_guest=is_guest) for row in rows]
        if outcomes is None:
            outcomes = await self.journal.outcomes([row.session_id for row in rows])
        now = await self.live() if live is None else live
        return await self._listed(rows, now, outcomes, said=said)

    async def _listed(
        self,
        rows: Sequence[SessionRow],
        live: Live,
        outcomes: Outcomes,
        *,
        said: bool,
    ) -> list[ListedSession]:
        newest = await self.journal.snapshots.newest([row.session_id for row in rows])
        files = {
            its: FilesOfSession(one.state, iso(one.at), one.reason) for its, one in newest.items()
        }
        person = self._tenant or ""
        repeated = await _repeated_titles(self.journal, rows)
        its, is_whole = self._tenant, self._only is None
        own = {row.cwd for row in rows if is_whole and (its is None or row.tenant == its)}
        if new := own - self._projects.keys():  # once for all pages of a list
            self._projects |= await _projects(new)
        words = await self.endings([row.session_id for row in rows]) if said else None
        listed = [
            as_listed(
                row,
                live,
                outcomes,
                files.get(row.session_id),
                None if words is None else words.get(row.session_id, ""),
                pinned=person in row.pins,
                by_program=_is_by_program(row, repeated),
                project=self._projects.get(row.cwd, "") if row.cwd in own else "",
            )
            for row in rows
        ]
        for place, it in enumerate(listed):
            if it.outcome == "interrupted" and outcomes[it.row.session_id] is None:
                with suppress(UnknownSessionError):  # deleted meanwhile
                    # Cut off, and nobody has opened it since, or its process is only silent.
                    is_unseen = not await self.is_live(it.row.session_id)
                    listed[place] = replace(it, row=replace(it.row, unseen=is_unseen))
        return listed

    async def listed(self, session_ids: Sequence[str]) -> list[ListedSession]:
        """Return those of these sessions that are there, in this order."""
        rows = rows_of(self.journal, session_ids, counted=True)
        return await self.with_states([row async for row in rows])

    async def endings(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the last words of sessions; see `journal.Entries.endings`."""
        return await self.journal.endings(session_ids)

    async def session(self, given: str, cwd: str | None = None) -> SessionRow:
        """Return the session with this id, or else the one whose id begins with it; with `cwd`,
        only from that folder. Raises UnknownSessionError and AmbiguousIdError."""
        return await self.journal.resolve(given, cwd)

    async def whole(self, row: SessionRow) -> SessionRow:
        """Return the session, reading it first if an import has only listed it; TranscriptError."""
        if not row.is_unread:
            return row
        await self.journal.complete(row.session_id)
        return await self.journal.session(row.session_id, counted=True)

    async def agents(self) -> list[str]:
        """Return the agents that sessions are with."""
        return await self.journal.agents()

    async def lagging(self, cwd: str | None = None) -> int:
        """Return the number of sessions, of all or of a folder, that a search does not find yet."""
        return await self.journal.index.catch_up(0, cwd=cwd)

    async def is_live(self, session_id: str) -> bool:
        """Return True if a process has the session."""
        return await is_live(self.journal, session_id)

    async def live_state(self, session_id: str) -> str | None:
        """Return the state of a session, as in LiveSession; None if no process has it."""
        if not await self.is_live(session_id):
            return None
        found = (await self.live()).get(session_id)
        return "running" if found is None else found[0].state

    async def short_ids(self, session_ids: Iterable[str]) -> dict[str, str]:
        """Return the shortest prefix of each id that tells it from others, of SHORT_ID letters at
        least."""
        ids = [*dict.fromkeys(session_ids)]
        return dict(zip(ids, await self.journal.short_ids(ids, SHORT_ID), strict=True))

    def entries(
        self, session_id: str, after: int = 0, *, brief: bool = False
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a session above `after`, oldest first, without void ones. With
        `brief`, long updates may come without their ends: see `beginning`."""
        return entries_of(self.journal, session_id, after, brief=brief)

    async def state(self, session_id: str) -> SessionState:
        """Return a conversation."""
        return await state_of(self.journal, session_id)

    async def read_back(
        self, session_id: str, before: int | None, limit: int, *, brief: bool = False
    ) -> PageBack:
        """Return the last `limit` entries below `before`; see `journal.Entries.read_back`."""
        return await self.journal.read_back(session_id, before, limit, brief=brief)

    async def search(self, sought: Sought) -> list[SearchHit]:
        """Return the hits of a search that widens; see `journal.Index.search`."""
        if self.index_seconds:
            await catch_up_for(self.journal.index, self.index_seconds)
        if self._whose is not None:
            sought = replace(sought, tenant=self._tenant, session_id=self._only)
        return await self.journal.index.search(replace(sought, widens=True))

    async def usage(
        self, by: Grouping, *, agents: tuple[str, ...] = (), cwd: str | None = None, since: int = 0
    ) -> UsageSums:
        """Add up the tokens and cost that agents reported; see `journal.Index.usage`. Days are in
        the time zone of the journal's machine."""
        return await self.journal.index.usage(by, agents=agents, cwd=cwd, since=since)

    async def questions(self) -> list[InboxQuestion]:
        """Return the open questions, the oldest first."""
        from acphold.live.reading.inbox import ALL, open_questions  # late: few need them

        return await open_questions(self.journal, await self.live(), self._whose or ALL)

    async def decisions(
        self, limit: int, before: int | None = None
    ) -> tuple[list[InboxQuestion], int | None]:
        """Return the last decisions before a time (ms), newest first, and where to read on."""
        from acphold.live.reading.inbox import ALL, decisions

        live = await self.live()
        return await decisions(self.journal, live, limit, before, self._whose or ALL)

    async def rule_answers(self, session_id: str) -> int:
        """Count the questions of a session that rules have answered."""
        from acphold.live.reading.inbox import rule_answers

        return await rule_answers(self.journal, session_id)

    async def new_rules(self, device: str) -> Sequence[str]:
        """Return the texts of the person's rules that were not made on this device, and that none
        but their makers have shown."""
        now = now_ms()
        return [
            rule.text
            for rule in await self.journal.access.rules(self._tenant or "")
            if rule.is_live(now) and rule.is_unseen_at(device)
        ]

    async def changes(
        self, newest: int, activity: asyncio.Event | None = None, *, said: bool = False
    ) -> AsyncGenerator[News, None]:
        """Yield the list with so many of the newest sessions, then each change, until closed;
        `activity` is as in `follow_list`, `said` as in Wanted."""
        from acphold.live.reading.followed_list import follow_list  # late: few follow it

        running = bounds.RUNNING_SECONDS if said else inf
        following = follow_list(self.journal, newest, activity, None, running)
        async with aclosing(following) as found:
            async for each in found:
                yield await self._news(each, said=said)

    async def _news(self, found: Changed, *, said: bool) -> News:
        asked: dict[str, list[InboxQuestion]] = {}
        ids = {row.session_id for row in found.rows}
        if waiting := {id_: it for id_, it in found.live.items() if it[0].waiting and id_ in ids}:
            from acphold.live.reading.inbox import open_questions

            for question in await open_questions(self.journal, waiting):
                asked.setdefault(question.row.session_id, []).append(question)
        listed = await self._listed(found.rows, found.live, found.outcomes, said=said)
        rows = [replace(it, questions=asked.get(it.row.session_id, ())) for it in listed]
        return News(rows, found.gone, found.is_all)


_Repeated = WeakKeyDictionary[Journal, tuple[float, set[Titled], set[Titled]]]
_REPEATED: Final[_Repeated] = WeakKeyDictionary()
"""By journal: since when titles are known, which ones, and which of these are repeated."""


async def _repeated_titles(journal: Journal, rows: Iterable[SessionRow]) -> Collection[Titled]:
    among = {(row.tenant, row.cwd, row.title or "") for row in filter(_is_short, rows)}
    now, (at, known, repeated) = monotonic(), _REPEATED.get(journal, (-inf, set(), set()))
    if now >= at + bounds.SAME_WORDS_SECONDS:
        at, known, repeated = now, set(), set()
    if new := among - known:  # a journal in a file reads all sessions of their folders for it
        repeated |= await journal.repeated_titles(new, bounds.SAME_WORDS)
        _REPEATED[journal] = at, known | new, repeated
    return repeated


async def _projects(folders: Collection[str]) -> dict[str, str]:
    """Return the project of each folder that lies in a work tree of its own; "" of others."""

    def find() -> dict[str, str]:
        from acphold.safety.snapshots.checkouts import in_main_work_tree  # late: a list starts

        found = {folder: in_main_work_tree(folder) for folder in folders}
        return {folder: "" if its == folder else its for folder, its in found.items()}

    with suppress(TimeoutError):
        async with timeout(bounds.PROJECT_SECONDS):
            return await Threads(1).run(find)
    return {}


def _is_short(row: SessionRow) -> bool:
    return row.title is not None and row.message_count <= SHORT_SESSION


def _is_by_program(row: SessionRow, repeated: Collection[Titled]) -> bool:
    """Return True if a session is a program's, no copy, and nobody has named or marked it."""
    is_programs = row.by_program or (
        bool(repeated) and (row.tenant, row.cwd, row.title) in repeated and _is_short(row)
    )
    return is_programs and not (row.renamed or row.tags or row.pins or row.origins)


def as_listed(
    row: SessionRow,
    live: Live,
    outcomes: Outcomes,
    files: FilesOfSession | None = None,
    said: str | None = None,
    *,
    pinned: bool = False,
    by_program: bool = False,
    project: str = "",
) -> ListedSession:
    """Return a session with its live state, outcome (see `Sessions.outcomes`) and other fields."""
    session, process = live.get(row.session_id, (None, None))
    outcome: TurnOutcome | None = None
    if row.session_id in outcomes:
        if (ended := outcomes[row.session_id]) is not None:
            outcome = None if ended == "unanswered" else ended
        elif session is None:  # nobody is left to end it
            outcome = "interrupted"
    pid, is_daemon = (0, False) if process is None else (process.pid, process.is_daemon)
    return ListedSession(
        *(row, outcome, session, pid, is_daemon, (), files, said, pinned, by_program, project)
    )


async def entries_of(
    journal: Readable, session_id: str, after: int = 0, *, brief: bool = False
) -> AsyncIterator[Entry]:
    """Yield the entries of a session above `after`, oldest first, without void ones; one page is in
    memory at a time. For `brief` see `Readable.read`."""
    async for segment in history(journal, session_id, after, brief=brief):
        for entry in segment.entries():
            if entry.raw:
                yield entry


async def note_deed(
    journal: Journal, deed: str, name: str, *, token: str = "", session_id: str | None = None
) -> None:
    """Record a change that was made at this machine."""
    at, name = journal.now_ms(), name[:200]
    deeds = [
        Deed(at=at, deed=deed, name=name, token=token, session_id=session_id, transport="command")
    ]
    await journal.access.keep_deeds(deeds)


async def catch_up_for(index: Index, seconds: float) -> int:
    """Index for this long; return the number of sessions that still lag. A journal that cannot be
    written right now can still be read."""
    lagging = await index.catch_up(0)
    if lagging:
        with suppress(JournalUnavailableError):
            lagging = await index.catch_up(seconds)
    return lagging


async def session_pages(
    reader: LocalReader,
    wanted: Wanted,
    limit: int | None = None,
    on_left_out: Callable[[int], object] = bool,
) -> AsyncIterator[Sequence[ListedSession]]:
    """Yield the wanted sessions in pages, newest first, at most `limit`; `on_left_out` gets the
    number of those of programs that a page leaves out."""
    cursor, left = None, limit
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


async def sessions_on_hold(reader: LocalReader) -> list[ListedSession]:
    """Return the sessions with prompts that are held, the last active ones first; see `is_held`."""
    return [it async for page in session_pages(reader, QUEUED) for it in page if is_held(it)]


async def newest_first(
    reader: LocalReader, session_id: str, at_once: int = bounds.PAGE
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
    reader: LocalReader, session_id: str, at_most: int | None = None
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
