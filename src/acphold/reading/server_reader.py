"""The journal of a remote `acphold serve`, read.

Source: `web.journal_pages`, `web.list_feed`. Everything is requested with plain GETs, so no client
attaches, and no agent is started.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import httpx2
from msgspec import MsgspecError, Raw, Struct, json, to_builtins
from msgspec.json import Decoder

from acphold.errors import (
    AmbiguousIdError,
    ConnectionLostError,
    RemoteError,
    RemoteRefusalError,
    RewrittenError,
    RuleError,
    SilentPeerError,
    UnknownSessionError,
)
from acphold.history import Entry
from acphold.history.decisions import AskedQuestion, Came
from acphold.history.entries import PROMPT, milliseconds
from acphold.history.raw_update import string
from acphold.history.timeline import TurnOutcome
from acphold.journal import ListFilter, Origin, PageBack, SearchHit, SessionRow, Sought, Tokens
from acphold.journal.access import token_id
from acphold.journal.moves import MoveMark, mark_text
from acphold.journal.seams import Grouping, Speaker, UsageSum, UsageSums
from acphold.lines.line import FIRST_PAUSE, LONGEST_PAUSE
from acphold.reading.inbox import Decided, InboxQuestion
from acphold.reading.neighbours import LiveSession
from acphold.reading.requests import (
    DECISIONS,
    ENTRIES,
    FEED,
    INBOX,
    LARGEST_GROUPS,
    OFFERS,
    RULES,
    SEARCH,
    SESSIONS,
    USAGE,
    AcceptedOffer,
    DecisionsQuery,
    EntriesQuery,
    ListQuery,
    NoQuery,
    OffersQuery,
    SearchQuery,
    UsageQuery,
    place_of,
)
from acphold.reading.session_reader import (
    AT_ONCE,
    SHORT_ID,
    FilesOfSession,
    ListedSession,
    News,
    OfferedRule,
    SessionPage,
    Wanted,
    last_entries,
    session_pages,
)
from acphold.rpc import MAX_MESSAGE
from acphold.schema.splice import members
from acphold.transports.http_client import beginning, http_client
from acphold.transports.known_servers import ca_for, origin_of, token_for
from acphold.transports.route import Route, said_in, why

T = TypeVar("T")

SILENCE_SECONDS: Final = 40.0
"""Seconds without data after which the connection is lost: an idle server sends something every
15."""

LONGEST_WORK: Final = 30.0
"""Seconds that an answer to a POST may take: a server gives up its work after 20."""

LARGEST: Final = 16 << 20
"""Most bytes of an event: a snapshot has some hundred sessions."""

OnAway = Callable[[ConnectionLostError | None], object]


class _Live(Struct, rename="camel"):
    state: str
    clients: int = 0
    questions: tuple[str, ...] = ()
    background: bool = False
    pid: int = 0


class _RemoteQuestion(Struct, rename="camel"):
    id: str
    session_id: str
    seq: int
    at: str
    agent: str
    cwd: str
    title: str | None
    asks: str
    method: str
    params: Raw = Raw(b"{}")
    tool_call: dict[str, Raw] | None = None
    answered_at: str | None = None
    outcome: str = ""
    how: str = ""
    said: str = ""
    client: str | None = None
    rules: tuple[int, ...] = ()


class _RemoteFiles(Struct):
    state: Literal["whole", "late", "later", "refused"]
    at: str
    reason: str = ""


class _RemoteRow(Struct, rename="camel"):
    session_id: str
    agent: str
    cwd: str
    title: str | None
    created_at: str
    updated_at: str
    message_count: int = 0
    unseen: bool = False
    unread: bool = False
    archived: bool = False
    outcome: TurnOutcome | None = None
    origins: tuple[Origin, ...] = ()
    queued: int = 0
    held: str | None = None
    held_until: str | None = None
    moved_to: str | None = None
    ruled: int = 0
    live: _Live | None = None
    open_questions: list[_RemoteQuestion] = []
    files: _RemoteFiles | None = None


class _Hit(Struct, rename="camel"):
    session_id: str
    seq: int
    at: str
    speaker: Speaker
    excerpt: str
    marks: tuple[tuple[int, int], ...]
    agent: str
    cwd: str
    title: str | None
    tool: str | None = None
    archived: bool = False


class _RemoteSum(Struct, rename="camel"):
    sessions: int
    not_reported: int
    title: str | None = None
    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    cost: dict[str, float] | None = None


class _Sums(Struct, rename="camel"):
    sums: list[Raw]
    total: Raw
    by_request: frozenset[str] = frozenset()


class _ListChange(Struct):
    session: _RemoteRow | None = None
    gone: str | None = None


class _RemoteEntry(Struct):
    seq: int
    kind: str
    at: str
    update: Raw = Raw(b"null")


class _Rows(Struct, rename="camel"):
    sessions: list[_RemoteRow]
    next_cursor: str | None = None


class _RemoteEntries(Struct):
    entries: list[_RemoteEntry]
    before: int | None = None


class _Hits(Struct, rename="camel"):
    hits: list[_Hit]
    next_cursor: str | None = None


class _RemoteInbox(Struct):
    questions: list[_RemoteQuestion]


class _Decisions(Struct, rename="camel"):
    decisions: list[_RemoteQuestion]
    next_cursor: str | None = None


class _RuleOffers(Struct):
    offers: list[OfferedRule]


class _RemoteRule(Struct, rename="camel"):
    text: str
    is_new: bool = False
    made_with: str = ""


class _RemoteRules(Struct):
    rules: list[_RemoteRule]


class _MadeRule(Struct):
    number: int
    user: str = ""


class _MadeRules(Struct):
    rules: list[_MadeRule]


class ServerReader:
    """A SessionReader of a server; an async context manager.

    Its list is followed over losses of the connection: `on_away` is called with the error of each,
    and with None when it is back.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        seconds: float,
        ca: str | None = None,
        on_away: OnAway = bool,
    ) -> None:
        self.origin = origin_of(url)
        self._route = Route(
            url,
            token=token or token_for(url),
            seconds=seconds,
            limit=MAX_MESSAGE,
            trusted=ca or ca_for(url),
        )
        self._on_away = on_away
        self._known: set[str] = set()

    async def __aenter__(self) -> ServerReader:
        self._http = http_client(self._route)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def page(
        self, wanted: Wanted, cursor: str | None = None, limit: int = AT_ONCE
    ) -> SessionPage:
        filter = wanted.filter
        asked = ListQuery(
            q=" ".join(wanted.words),
            agent=filter.agents[0] if filter.agents else "",
            cwd=filter.cwd,
            archived=filter.archived,
            unprompted=filter.include_unprompted or wanted.only_live,
            queued=filter.queued,
            limit=limit,
            cursor=cursor,
        )
        page = await self.get(SESSIONS, asked, _Rows)
        sessions = [_session(row) for row in page.sessions]
        self._known |= {it.row.session_id for it in sessions}
        is_over = bool(sessions) and sessions[-1].row.updated_at < wanted.since
        found = [
            it
            for it in sessions
            if it.row.updated_at >= wanted.since and (it.live or not wanted.only_live)
        ]
        return SessionPage(found, None if is_over else page.next_cursor)

    async def session(self, given: str, cwd: str | None = None) -> SessionRow:
        with suppress(UnknownSessionError):
            if f"{SESSIONS}/{given}" == FEED:
                raise UnknownSessionError(given)
            return _row(await self.get(place_of(given), NoQuery(), _RemoteRow))
        all_ = Wanted(ListFilter(cwd=cwd, archived="include", include_unprompted=True))
        found: list[SessionRow] = []
        async for page in session_pages(self, all_):
            found += [it.row for it in page if it.row.session_id.startswith(given)]
        if not found:
            raise UnknownSessionError(given, reason=f"no session id begins with {given!r}")
        if len(found) > 1:
            raise AmbiguousIdError(given, tuple(sorted(row.session_id for row in found)))
        return found[0]

    async def whole(self, row: SessionRow) -> SessionRow:
        return row

    async def is_live(self, session_id: str) -> bool:
        row = await self.get(place_of(session_id), NoQuery(), _RemoteRow)
        return row.live is not None

    async def short_ids(self, session_ids: Sequence[str]) -> list[str]:
        known = self._known.union(session_ids)

        def short(session_id: str) -> str:
            length = SHORT_ID
            while any(it != session_id and it.startswith(session_id[:length]) for it in known):
                length += 1
            return session_id[:length]

        return [short(session_id) for session_id in session_ids]

    async def entries(self, session_id: str) -> AsyncIterator[Entry]:
        for entry in await last_entries(self, session_id):
            yield entry

    async def read_back(self, session_id: str, before: int | None, limit: int) -> PageBack:
        asked = EntriesQuery(before=before, limit=limit)
        page = await self.get(f"{place_of(session_id)}{ENTRIES}", asked, _RemoteEntries)
        return PageBack([_entry(it) for it in page.entries], page.before, is_settled=False)

    async def search(self, sought: Sought) -> list[SearchHit]:
        asked = SearchQuery(
            sought.words,
            part=sought.part,
            agent=sought.agents[0] if sought.agents else "",
            cwd=sought.cwd,
            since=_iso(sought.since),
            rank=sought.rank,
        )
        found: list[SearchHit] = []
        while len(found) < sought.limit:
            asked.limit = min(sought.limit - len(found), AT_ONCE)
            page = await self.get(SEARCH, asked, _Hits)
            found += map(_hit, page.hits)
            if page.next_cursor is None:
                break
            asked.cursor = page.next_cursor
        self._known |= {hit.session_id for hit in found}
        return found

    async def usage(
        self, by: Grouping, *, agents: tuple[str, ...] = (), cwd: str | None = None, since: int = 0
    ) -> UsageSums:
        agent = agents[0] if agents else ""
        asked = UsageQuery(by, agent, cwd, _iso(since), LARGEST_GROUPS)
        found = await self.get(USAGE, asked, _Sums)
        key = "sessionId" if by == "session" else by
        groups = [self._sum(raw, key) for raw in found.sums]
        if by == "session":
            self._known |= {group.name for group in groups}
        return UsageSums(groups, self._sum(found.total, key), found.by_request)

    def _sum(self, raw: Raw, key: str) -> UsageSum:
        said = self._read(raw, _RemoteSum)
        tokens = Tokens(
            said.input_tokens,
            said.output_tokens,
            said.thought_tokens,
            said.cached_read_tokens,
            said.cached_write_tokens,
            said.total_tokens,
        )
        name = string(members(bytes(raw)).get(key)) or ""
        return UsageSum(name, said.title, said.sessions, said.not_reported, tokens, said.cost or {})

    async def questions(self) -> list[InboxQuestion]:
        return [_question(it) for it in (await self.get(INBOX, NoQuery(), _RemoteInbox)).questions]

    async def decisions(
        self, limit: int, before: int | None = None
    ) -> tuple[list[InboxQuestion], int | None]:
        asked = DecisionsQuery(limit=min(limit, AT_ONCE), cursor=before)
        page = await self.get(DECISIONS, asked, _Decisions)
        following = None if page.next_cursor is None else int(page.next_cursor)
        return [_question(it) for it in page.decisions], following

    # -- standing answers ---------------------------------------------------------------------

    async def offered_rules(self, session_id: str, question_id: str) -> Sequence[OfferedRule]:
        try:
            asked = OffersQuery(session_id, question_id)
            return (await self.get(OFFERS, asked, _RuleOffers)).offers
        except RemoteRefusalError:  # a token that may make none, or an older server
            return []

    async def make_rules(
        self, session_id: str, question_id: str, text: str, *, all_agents: bool, made_with: str
    ) -> str:
        from acphold.standing.decision import revoke_words

        said = AcceptedOffer(session_id, question_id, text, all_agents)
        made = (await self.post(RULES, said, _MadeRules)).rules
        return revoke_words([rule.number for rule in made], made[0].user if made else "")

    async def new_rules(self, device: str) -> Sequence[str]:
        own = f"({token_id(self._route.token or '')})"  # the server knows this device by its token
        try:
            found = (await self.get(RULES, NoQuery(), _RemoteRules)).rules
        except RemoteRefusalError:  # a token that has none, or an older server
            return []
        return [rule.text for rule in found if rule.is_new and not rule.made_with.endswith(own)]

    # -- as it changes ------------------------------------------------------------------------

    async def changes(self, newest: int) -> AsyncGenerator[News, None]:
        """Yield the list, then each change of it, until it is closed. On reconnecting it names the
        last event, and gets what was missed, or the list again.

        Raises RemoteRefusalError, and ConnectionLostError if the first connection fails.
        """
        now = asyncio.get_running_loop().time
        position, pause, is_away, has_begun = "", FIRST_PAUSE, False, False
        while True:
            tried = now()
            try:
                async with self._events(position) as found:
                    if is_away:
                        self._on_away(None)
                    is_away = False
                    async for event in found:
                        position = event.id or position
                        if (news := self._news(event, newest)) is not None:
                            has_begun = True
                            yield news
                raise ConnectionLostError(f"the connection to {self.origin} is lost")
            except ConnectionLostError as exc:
                if not has_begun:
                    raise
                if not is_away:
                    self._on_away(exc)
                is_away = True
            # Slow down if we are let in and cut off again and again.
            pause = FIRST_PAUSE if now() - tried > LONGEST_PAUSE else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _news(self, event: httpx2.ServerSentEvent, newest: int) -> News | None:
        """Return the content of an event; None for one newer than this release."""
        raw = event.data.encode()
        if event.event == "snapshot":
            found = [_session(row) for row in self._read(raw, _Rows).sessions]
            return News(
                [it for n, it in enumerate(found) if n < newest or it.live is not None], is_all=True
            )
        change = self._read(raw, _ListChange) if event.event == "change" else _ListChange()
        if change.session is not None:
            return News([_session(change.session)])
        return None if change.gone is None else News((), (change.gone,))

    @asynccontextmanager
    async def _events(self, after: str) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Yield the events of the feed behind the one with this id, for the block. They end, or the
        connection is lost, also after SILENCE_SECONDS."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        timeout = httpx2.Timeout(self._route.seconds, read=SILENCE_SECONDS, pool=None)
        url = f"{self.origin}{FEED}"
        with self._reached():
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    head, said = answer.headers, await beginning(answer)
                    raise self._route.refused(answer.status_code, head, said, url)
                yield aiter(httpx2.EventSource(answer, max_event_size=LARGEST))

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise SilentPeerError and ConnectionLostError for HTTP errors in the block."""
        try:
            yield
        except httpx2.TimeoutException:
            raise SilentPeerError(f"{self.origin} does not answer") from None
        except httpx2.HTTPError as exc:
            raise ConnectionLostError(f"{self.origin} cannot be reached: {why(exc)}") from None

    async def post(self, path: str, said: object, kind: type[T]) -> T:
        """Post `said` as JSON and return the answer. Raises RuleError for a conflict with an
        existing rule, and the errors of SessionReader."""
        where = f"{self.origin}{path}"
        head = {"Content-Type": "application/json"}
        timeout = httpx2.Timeout(self._route.seconds, read=LONGEST_WORK)
        with self._reached():
            answer = await self._http.post(
                where, content=json.encode(said), headers=head, timeout=timeout
            )
        if answer.status_code == 409:
            raise RuleError(said_in(answer.headers, answer.content) or "this rule cannot be made")
        if not answer.is_success:
            raise self._route.refused(answer.status_code, answer.headers, answer.content, where)
        return self._read(answer.content, kind)

    async def get(self, path: str, asked: Struct, kind: type[T]) -> T:
        """Return the answer to a GET of this path and query; raises the errors of SessionReader."""
        with self._reached():
            answer = await self._http.get(f"{self.origin}{path}", params=to_builtins(asked))
        status, asked_at = answer.status_code, f"{self.origin}{path}"
        if status == 404 and path.count("/") > 1:
            raise UnknownSessionError(path.split("/")[2])
        if status == 409:
            raise RewrittenError(f"{asked_at}: a turn was put in order meanwhile")
        if status == 400:
            told = said_in(answer.headers, answer.content)
            raise RemoteError(-32603, f"{asked_at}: {told or f'HTTP {status}'}")
        if status == 404:
            no = "no list of sessions is read there: it is no `acphold serve`"
            raise RemoteRefusalError(asked_at, status, no)
        if status != 200:
            raise self._route.refused(status, answer.headers, answer.content, asked_at)
        return self._read(answer.content, kind)

    def _read(self, raw: bytes, kind: type[T]) -> T:
        try:
            return Decoder(kind).decode(raw)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            told = f"{self.origin} answers what cannot be read ({exc}): is it an `acphold serve`?"
            raise ConnectionLostError(told) from None


def _iso(at: int) -> str:
    """Return a time (ms since the epoch) as a query has it; "" for 0."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds") if at else ""


def _session(row: _RemoteRow) -> ListedSession:
    files = None
    if (it := row.files) is not None:
        files = FilesOfSession(it.state, milliseconds(it.at), it.reason)
    if (live := row.live) is None:
        return ListedSession(_row(row), row.outcome, files=files)
    session = LiveSession(
        row.session_id,
        live.clients,
        running=live.state == "running",
        waiting=live.state == "waiting",
        questions=live.questions,
    )
    questions = [_question(it) for it in row.open_questions]
    return ListedSession(
        _row(row), row.outcome, session, live.pid, live.background, questions, files
    )


def _row(row: _RemoteRow) -> SessionRow:
    return SessionRow(
        session_id=row.session_id,
        agent=row.agent,
        cwd=row.cwd,
        additional_directories=(),
        title=row.title,
        created_at=milliseconds(row.created_at),
        updated_at=milliseconds(row.updated_at),
        message_count=row.message_count,
        prompted=True,  # the server has left out the others, unless they were wanted
        last_seq=0,
        archived=row.archived,
        origins=row.origins,
        unseen=row.unseen,
        unread=b"" if row.unread else None,
        queued=row.queued,
        ruled=row.ruled,
        held=row.held or "",
        held_until=None if row.held_until is None else milliseconds(row.held_until),
        moved=mark_text(MoveMark(to=row.moved_to)) if row.moved_to else "",
    )


def _entry(entry: _RemoteEntry) -> Entry:
    raw = bytes(entry.update)
    if entry.kind == PROMPT:
        raw = members(raw).get("prompt", b"[]")
    return Entry(entry.seq, entry.kind, milliseconds(entry.at), raw)


def _hit(hit: _Hit) -> SearchHit:
    return SearchHit(
        session_id=hit.session_id,
        seq=hit.seq,
        at=milliseconds(hit.at),
        kind="",
        speaker=hit.speaker,
        excerpt=hit.excerpt,
        marks=hit.marks,
        agent=hit.agent,
        cwd=hit.cwd,
        title=hit.title,
        tool=hit.tool,
        archived=hit.archived,
    )


def _question(asked: _RemoteQuestion) -> InboxQuestion:
    at = milliseconds(asked.at)
    row = _RemoteRow(asked.session_id, asked.agent, asked.cwd, asked.title, asked.at, asked.at)
    decided = None
    if asked.answered_at is not None:
        decided = Decided(asked.outcome, Came(asked.how, asked.said), asked.client, asked.rules)
    return InboxQuestion(
        _row(row),
        asked.seq,
        at,
        AskedQuestion(asked.id, asked.method, bytes(asked.params)),
        {name: bytes(value) for name, value in (asked.tool_call or {}).items()},
        decided,
        milliseconds(asked.answered_at),
        asked.asks,
    )
