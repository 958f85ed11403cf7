"""The journal of a remote `acphold serve`, read.

Source: `web.journal_pages`, `web.list_feed`. Everything is requested with plain GETs, so no client
attaches, and no agent is started.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import httpx2
from msgspec import MsgspecError, Raw, Struct, json, to_builtins
from msgspec.json import Decoder

from acp_wire.schema import members
from acp_wire.tasks import timeout
from acp_wire.transports.http_client import http_client
from acp_wire.transports.known_servers import known_servers, origin_of
from acp_wire.transports.route import Route, explanation
from acphold import errors
from acphold.conversation.history.entries import Entry, iso
from acphold.conversation.history.raw_update import string
from acphold.extras import require
from acphold.journal.access import token_id
from acphold.journal.journal import PageBack
from acphold.journal.list_places import only_one
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import Grouping, SearchHit, Sought, UsageSum, UsageSums
from acphold.live.lines.line import FIRST_PAUSE, LONGEST_PAUSE
from acphold.live.reading import bounds, requests, server_answers as answers
from acphold.live.reading.inbox import InboxQuestion
from acphold.live.reading.json_facts import SessionFacts
from acphold.live.reading.session_reader import (
    SHORT_ID,
    ListedSession,
    News,
    OfferedRule,
    SessionPage,
    SessionReader,
    Wanted,
    last_entries,
    session_pages,
)
from acphold.safety.errors import RuleError

C = TypeVar("C", str, int)
T = TypeVar("T")


class ServerReader(SessionReader):
    """The sessions of a server; an async context manager.

    Its list is followed over losses of the connection.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        seconds: float,
        ca: str | None = None,
    ) -> None:
        require("serve", "a connection to a server")
        self.origin = origin_of(url)
        known = known_servers().at(url)
        self._route = Route(
            url, seconds=seconds, token=token or known.token, trusted=ca or known.ca
        )
        self._listed: set[str] = set()

    async def __aenter__(self) -> ServerReader:
        self._http = http_client(self._route)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def page(
        self, wanted: Wanted, cursor: str | None = None, limit: int = bounds.PAGE
    ) -> SessionPage:
        filter = wanted.filter
        asked = requests.ListQuery(
            q=" ".join(wanted.words),
            agent=filter.agents[0] if filter.agents else "",
            cwd=filter.cwd,
            archived=filter.archived,
            unprompted=filter.include_unprompted or wanted.only_live,
            queued=filter.queued,
            said=wanted.said,
            mine=wanted.mine,
            limit=limit,
            cursor=cursor,
        )
        page = await self.get(requests.SESSIONS, answers.RemoteRows, asked)
        sessions = [answers.to_listed(row) for row in page.sessions]
        if not (wanted.words or filter.queued):
            self._listed |= {it.row.session_id for it in sessions}
        is_over = bool(sessions) and sessions[-1].row.updated_at < wanted.since
        found = [
            it
            for it in sessions
            if it.row.updated_at >= wanted.since and (it.live or not wanted.only_live)
        ]
        following = None if is_over else self._next(page.next_cursor, {cursor})
        return SessionPage(found, following, page.left_out)

    async def listed(self, session_ids: Sequence[str]) -> list[ListedSession]:
        found: list[ListedSession] = []
        for session_id in session_ids:
            with suppress(errors.UnknownSessionError):
                found.append(answers.to_listed(await self._row(session_id)))
        return found

    async def session(self, given: str, cwd: str | None = None) -> SessionRow:
        with suppress(errors.UnknownSessionError):
            if f"{requests.SESSIONS}/{given}" == requests.FEED:
                raise errors.UnknownSessionError(given)
            return answers.session_row(await self._row(given))
        all_ = Wanted(ListFilter(cwd=cwd, archived="include", include_unprompted=True))
        found: dict[str, SessionRow] = {}
        start = given.partition("~")[0]
        async for page in session_pages(self, all_):
            rows = (it.row for it in page if it.row.session_id.startswith(start))
            found |= {row.session_id: row for row in rows}
        ids = sorted(found)
        return found[only_one(given, lambda prefix: [it for it in ids if it.startswith(prefix)])]

    async def _row(self, session_id: str) -> SessionFacts:
        return await self.get(requests.place_of(session_id), SessionFacts)

    async def is_live(self, session_id: str) -> bool:
        return await self.live_state(session_id) is not None

    async def live_state(self, session_id: str) -> str | None:
        row = await self._row(session_id)
        return None if row.live is None else row.live.state

    async def short_ids(self, session_ids: Iterable[str]) -> dict[str, str]:
        asked = [*session_ids]
        seen = {*self._listed, *asked}

        def short(session_id: str) -> str:
            # Those not listed may begin alike: thirteen letters tell times of UUIDs apart.
            length = SHORT_ID if session_id in self._listed else 13
            its = f"{session_id}~"
            others = [it for it in seen if it != session_id and not it.startswith(its)]
            while any(it.startswith(session_id[:length]) for it in others):
                length += 1
                if length > len(session_id):  # another id begins with the whole
                    break
            main, mark, _ = session_id.partition("~")
            cut = len(main) if mark and main in self._listed else 0
            return (short(main) if cut else "") + session_id[cut:length]

        return {it: short(it) for it in asked}

    async def entries(
        self, session_id: str, after: int = 0, *, brief: bool = False
    ) -> AsyncIterator[Entry]:
        for entry in await last_entries(self, session_id):
            if entry.seq > after:
                yield entry

    async def read_back(
        self, session_id: str, before: int | None, limit: int, *, brief: bool = False
    ) -> PageBack:
        # An earlier release does not know `brief`.
        asked = requests.EntriesQuery(before=before, limit=limit)
        address = f"{requests.place_of(session_id)}{requests.ENTRIES}"
        page = await self.get(address, answers.RemoteEntries, asked)
        entries = [answers.entry_of(it) for it in page.entries]
        is_back = before is None or page.before is None or page.before < before
        visited = () if is_back else (page.before,)
        return PageBack(entries, self._next(page.before, visited))

    async def search(self, sought: Sought) -> list[SearchHit]:
        asked = requests.SearchQuery(
            sought.words,
            part=sought.part,
            agent=sought.agents[0] if sought.agents else "",
            cwd=sought.cwd,
            since=iso(sought.since),
            rank=sought.rank,
        )
        found: list[SearchHit] = []
        visited: set[str | None] = set()
        while len(found) < sought.limit:
            visited.add(asked.cursor)
            asked.limit = min(sought.limit - len(found), bounds.PAGE)
            page = await self.get(requests.SEARCH, answers.RemoteHits, asked)
            found += map(answers.hit_of, page.hits)
            if (following := self._next(page.next_cursor, visited)) is None:
                break
            asked.cursor = following
        return found

    async def usage(
        self, by: Grouping, *, agents: tuple[str, ...] = (), cwd: str | None = None, since: int = 0
    ) -> UsageSums:
        agent = agents[0] if agents else ""
        asked = requests.UsageQuery(by, agent, cwd, iso(since), requests.LARGEST_GROUPS)
        found = await self.get(requests.USAGE, answers.RemoteSums, asked)
        key = "sessionId" if by == "session" else by
        groups = [self._sum(raw, key) for raw in found.sums]
        return UsageSums(groups, self._sum(found.total, key), found.by_request)

    def _sum(self, raw: Raw, key: str) -> UsageSum:
        sums = self._read(raw, answers.RemoteSum)
        name, costs = string(members(bytes(raw)).get(key)) or "", sums.cost or {}
        return UsageSum(name, sums.title, sums.sessions, sums.not_reported, sums.tokens(), costs)

    async def questions(self) -> list[InboxQuestion]:
        inbox = await self.get(requests.INBOX, answers.RemoteInbox)
        return [answers.question_of(it) for it in inbox.questions]

    async def decisions(
        self, limit: int, before: int | None = None
    ) -> tuple[list[InboxQuestion], int | None]:
        asked = requests.DecisionsQuery(limit=min(limit, bounds.PAGE), cursor=before)
        page = await self.get(requests.DECISIONS, answers.RemoteDecisions, asked)
        following = None if page.next_cursor is None else int(page.next_cursor)
        return [answers.question_of(it) for it in page.decisions], following

    def _next(self, following: C | None, visited: Collection[C | None]) -> C | None:
        """Return the place of the next page; ConnectionLostError if that would never end."""
        if following is not None and following in visited:
            raise errors.ConnectionLostError(f"{self.origin} sends the same page again and again")
        return following

    # -- standing answers ---------------------------------------------------------------------

    async def rule_offers(self, session_id: str, question_id: str) -> Sequence[OfferedRule]:
        try:
            asked = requests.OffersQuery(session_id, question_id)
            return (await self.get(requests.OFFERS, answers.RemoteOffers, asked)).offers
        except errors.RemoteRefusalError:  # a token that may make none, or an older server
            return []

    async def make_rules(
        self, session_id: str, question_id: str, text: str, *, all_agents: bool, made_with: str
    ) -> str:
        from acphold.safety.standing.decision import revoke_words

        accepted = requests.AcceptedOffer(session_id, question_id, text, all_agents)
        made = (await self.post(requests.RULES, accepted, answers.RemoteRules)).rules
        return revoke_words([rule.number for rule in made], made[0].user if made else "")

    async def new_rules(self, device: str) -> Sequence[str]:
        own = f"({token_id(self._route.token or '')})"  # the server knows this device by its token
        try:
            found = (await self.get(requests.RULES, answers.RemoteRules)).rules
        except errors.RemoteRefusalError:  # a token that has none, or an older server
            return []
        return [rule.text for rule in found if rule.is_new and not rule.made_with.endswith(own)]

    # -- as it changes ------------------------------------------------------------------------

    async def changes(self, newest: int, *, said: bool = False) -> AsyncGenerator[News, None]:
        """Yield the list, then each change of it, until it is closed. On reconnecting it names the
        last event, and gets what was missed, or the list again.

        Raises RemoteRefusalError, and ConnectionLostError if the first connection fails.
        """
        now = asyncio.get_running_loop().time
        position, pause, has_begun = "", FIRST_PAUSE, False
        while True:
            tried = now()
            try:
                async with self._events(position) as found:
                    self.on_away(None)
                    async for event in found:
                        position = event.id or position
                        if (news := self._news(event, newest)) is not None:
                            has_begun = True
                            yield news
                raise errors.ConnectionLostError(f"the connection to {self.origin} was lost")
            except errors.ConnectionLostError as exc:
                if not has_begun:
                    raise
                self.on_away(exc)
            # Slow down if we are let in and cut off again and again.
            pause = FIRST_PAUSE if now() - tried > LONGEST_PAUSE else pause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _news(self, event: httpx2.ServerSentEvent, newest: int) -> News | None:
        """Return the content of an event; None for one newer than this release."""
        raw = event.data.encode()
        if event.event == "snapshot":
            found = [answers.to_listed(row) for row in self._read(raw, answers.RemoteRows).sessions]
            return News(
                [it for n, it in enumerate(found) if n < newest or it.live is not None], is_all=True
            )
        if event.event != "change":
            return None
        change = self._read(raw, answers.RemoteChange)
        if change.session is not None:
            return News([answers.to_listed(change.session)])
        return None if change.gone is None else News((), (change.gone,))

    @asynccontextmanager
    async def _events(self, after: str) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Yield the events of the feed after the one with this id, for the block. They end, or the
        connection is lost, also after `FEED_SILENCE_SECONDS`."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        timeout = httpx2.Timeout(self._route.seconds, read=bounds.FEED_SILENCE_SECONDS, pool=None)
        url = f"{self.origin}{requests.FEED}"
        with self._translate_errors():
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    chunks, status = answer.aiter_bytes(), answer.status_code
                    raise await self._route.refused(status, answer.headers, chunks, url)
                yield aiter(httpx2.EventSource(answer, max_event_size=bounds.EVENT_BYTES))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise SilentPeerError and ConnectionLostError for HTTP errors in the block."""
        try:
            yield
        except (httpx2.TimeoutException, TimeoutError):
            raise errors.SilentPeerError(f"{self.origin} does not answer") from None
        except (httpx2.ReadError, httpx2.RemoteProtocolError):
            raise errors.ConnectionLostError(f"the connection to {self.origin} was lost") from None
        except httpx2.HTTPError as exc:
            raise self._route.lost_error(exc) from None

    async def post(self, path: str, body: object, kind: type[T]) -> T:
        """Post `body` as JSON and return the answer. Raises RuleError for a conflict with an
        existing rule, and the errors of SessionReader."""
        address = f"{self.origin}{path}"
        head = {"Content-Type": "application/json"}
        timeout = httpx2.Timeout(self._route.seconds, read=bounds.POST_SECONDS)
        said = json.encode(body)
        answer, raw = await self._fetch(
            "POST", address, content=said, headers=head, timeout=timeout
        )
        if answer.status_code == 409:
            reason = explanation(answer.headers, raw)
            raise RuleError(reason or "this rule cannot be made")
        return self._taken(answer, raw, kind)

    async def get(self, path: str, kind: type[T], asked: Struct | None = None) -> T:
        """Return the answer to a GET of this path and query; raises the errors of SessionReader."""
        address = f"{self.origin}{path}"
        answer, raw = await self._fetch("GET", address, params=to_builtins(asked))
        match answer.status_code:
            case 404 if path.count("/") > 1:
                raise errors.UnknownSessionError(path.split("/")[2])
            case 404:
                reason = "it has no list of sessions, so it is not an `acphold serve`"
                raise errors.RemoteRefusalError(address, 404, reason)
            case 409:
                raise errors.RewrittenError(f"{address}: the session changed while it was read")
            case 400:
                reason = explanation(answer.headers, raw) or "HTTP 400"
                raise errors.RemoteError(-32603, f"{address}: {reason}")
        return self._taken(answer, raw, kind)

    async def _fetch(
        self, method: str, address: str, **request: Any
    ) -> tuple[httpx2.Response, bytes]:
        """Return the answer to a request and its body; ConnectionLostError if that has no end."""
        body = bytearray()
        with self._translate_errors():
            async with (
                timeout(bounds.WHOLE_ANSWER_SECONDS),
                self._http.stream(method, address, **request) as answer,
            ):
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > bounds.WHOLE_ANSWER_BYTES:
                        raise errors.ConnectionLostError(f"{self.origin} sends an endless answer")
        return answer, bytes(body)

    def _taken(self, answer: httpx2.Response, raw: bytes, kind: type[T]) -> T:
        """Return the content of an answer; raises RemoteRefusalError for one that is none."""
        if not answer.is_success:
            status, where = answer.status_code, str(answer.url)
            raise self._route.refusal_error(status, answer.headers, raw, where)
        return self._read(raw, kind)

    def _read(self, raw: bytes, kind: type[T]) -> T:
        try:
            return Decoder(kind).decode(raw)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise errors.ConnectionLostError(
                f"cannot read the answer of {self.origin} ({exc}): is it an `acphold serve`?"
            ) from None
