"""The journal over plain HTTP, without an ACP connection, read in a thread of its own.

A journal answers short questions in its loop's thread; a hundred of them from a small screen would
still slow down a turn. So this one has its own thread, loop and file.

    GET /sessions             {"sessions": [ROW…], "nextCursor"}, the newest first; "leftOut", the
                              number of programs' sessions among them that are not `mine`
    GET /sessions/ID          ROW
    GET /sessions/ID/entries  {"entries": [ENTRY…], "before", "lineage", "state"}, the newest first
    GET /search               {"hits": [HIT…], "nextCursor"}
    GET /inbox                {"questions": [QUESTION…]}, open ones, the oldest first
    GET /inbox/history        {"decisions": [DECISION…], "nextCursor"}, the newest first

ROW, ENTRY and HIT are as `acphold list`, `show` and `search` print them with --json, QUESTION and
DECISION as `acphold inbox` does. All of it needs the scope watch; sessions that a principal may not
see (`server.principals`) are left out. With `lineage`, entries of another lineage are refused with
409 (see `journal.lineage`); with `brief`, long ones may come as `beginning` makes them. Questions
are only answered over ACP (`/acp`), with the scope answer.
"""

# See docs/decisions.md, 32.

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar

from msgspec import Raw
from msgspec.json import encode as json_encode
from msgspec.structs import replace

from acp_wire.schema import LIST_SESSIONS, LOAD_SESSION, encode, splice
from acp_wire.tasks import end, timeout
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.entries import SENT, TURN_END, id_of_sent
from acphold.errors import JournalUnavailableError, RewrittenError
from acphold.journal.hits import terms
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter, SessionRow
from acphold.journal.seams import SearchHit, Sought
from acphold.known_agents import keys_of
from acphold.live.hub.choices import load_result
from acphold.live.reading import json_facts, requests
from acphold.live.reading.inbox import Whose
from acphold.live.reading.listed_sessions import Wanted
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.processes import Live, live_anywhere
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Principal
from acphold.live.server.service import journal_at
from acphold.web import bounds
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted

T = TypeVar("T")

ASK_AGAIN: Final = b"private, no-cache"
"""Cache-Control of all answers: also an old turn may be left, forgotten or deleted."""


class JournalReader:
    """A journal in a thread; an async context manager. Entering it raises JournalError."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._journal: Journal
        self._asked = 0
        self._live: asyncio.Future[Live] | None = None
        self._live_at = 0.0

    async def __aenter__(self) -> JournalReader:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        threading.Thread(
            target=self._run, args=(started,), name="acphold reading", daemon=True
        ).start()
        self._loop, self._stop = await asyncio.wrap_future(started)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wrap_future(self._ended)

    def now_ms(self) -> int:
        """As in `Journal`."""
        return self._journal.now_ms()

    async def ask(self, question: Callable[[Journal], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a question.

        Raises JournalError, and RefusedError if there are too many or it takes too long.
        """

        async def answer() -> T:
            try:
                await self._journal.changes(None)
            except JournalUnavailableError:  # another one has taken its place
                before, self._journal = self._journal, journal_at(self.location)
                await before.aclose()
            return await question(self._journal)

        if self._asked >= bounds.QUESTIONS_AT_ONCE:
            raise RefusedError(503, "too many requests read the journal at once; try again")
        self._asked += 1
        try:
            async with timeout(bounds.QUESTION_SECONDS):
                return await self.run(answer())
        except TimeoutError:
            raise RefusedError(503, "the journal takes too long to answer; try again") from None
        finally:
            self._asked -= 1

    async def session(
        self,
        principal: Principal,
        session_id: str,
        method: str,
        params: bytes = b"{}",
        *,
        counted: bool = False,
    ) -> SessionRow:
        """Return a session in which a principal may make this request; raises ForbiddenError and
        UnknownSessionError."""
        principal.check(Asked.read(method, splice(params, {"sessionId": encode(session_id)})))
        row = await self.ask(lambda journal: journal.session(session_id, counted=counted))
        principal.check_in(row, Asked.read(method, params))
        return row

    async def live(self) -> Live:
        """Return the sessions held in the memory of a process, at most a second old.

        Callers share one round of asking, so that the processes are not asked over and over.
        """
        now = asyncio.get_running_loop().time()
        if self._live is None or (
            self._live.done()
            and (self._live.exception() or now >= self._live_at + bounds.LIVE_SECONDS)
        ):
            self._live, self._live_at = asyncio.ensure_future(self.ask(live_anywhere)), now
        return await asyncio.shield(self._live)

    async def live_now(self) -> Live:
        """Return the same, not cached: for a client reacting to fresh news."""
        came = asyncio.get_running_loop().time()
        if self._live is not None:
            await asyncio.wait([self._live])
        if self._live is not None and self._live_at < came:
            self._live = None
        return await self.live()

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work` in the thread and return its result."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        async def read() -> None:
            stop = asyncio.Event()
            self._journal = journal_at(self.location)
            started.set_result((asyncio.get_running_loop(), stop))
            try:
                await stop.wait()
            finally:
                await end(*(asyncio.all_tasks() - {asyncio.current_task()}))
                await self._journal.aclose()

        try:
            asyncio.run(read())
        except BaseException as exc:
            (self._ended if started.done() else started).set_exception(exc)
        else:
            self._ended.set_result(None)


class JournalPages:
    """Answers requests for pages of the journal; see the module."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Answer a request to an address below SESSIONS, SEARCH or INBOX; raises RefusedError,
        ForbiddenError and JournalError."""
        exchange.require("GET", "HEAD")
        principal, path = admitted.principal, exchange.path
        session_id = path.removeprefix(f"{requests.SESSIONS}/").removesuffix(requests.ENTRIES)
        if path == requests.SESSIONS:
            body = await self._sessions(exchange.query(requests.ListQuery), principal)
        elif path == requests.SEARCH:
            body = await self._search(exchange.query(requests.SearchQuery), principal)
        elif path == requests.INBOX:
            exchange.query(requests.NoQuery)
            principal.check(Asked.read(LIST_SESSIONS.name))
            live = await self._reader.live_now()
            found = await self._reader.ask(lambda it: reader_of(it, principal, live).questions())
            body = await _page("questions", json_facts.question_json, found)
        elif path == requests.DECISIONS:
            chosen = exchange.query(requests.DecisionsQuery)
            about = {} if chosen.session is None else {"sessionId": chosen.session}
            principal.check(Asked.read(LIST_SESSIONS.name, json_encode(about)))
            live = await self._reader.live()
            whose = Whose(principal.tenant, chosen.session or principal.session_id)
            found, following = await self._reader.ask(
                lambda it: LocalReader(it, whose=whose, live=live).decisions(
                    chosen.limit, chosen.cursor
                )
            )
            next_place = None if following is None else str(following)
            body = await _page("decisions", json_facts.question_json, found, next_place)
        elif session_id and path == f"{requests.SESSIONS}/{session_id}{requests.ENTRIES}":
            asked = exchange.query(requests.EntriesQuery)
            body = await self._entries(session_id, asked, principal)
        elif session_id and path == f"{requests.SESSIONS}/{session_id}":
            exchange.query(requests.NoQuery)
            row = await self._reader.session(
                principal, session_id, LIST_SESSIONS.name, counted=True
            )
            live = await self._reader.live()
            [session] = await self._reader.ask(
                lambda it: reader_of(it, principal, live).with_states([row])
            )
            body = (await Threads(1).run(json_facts.session_json, session)).encode()
        else:
            raise RefusedError(404, "there is nothing at this address")
        tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        head = [
            (b"cache-control", ASK_AGAIN),
            (b"etag", tag.encode()),
            (b"vary", b"Authorization, Cookie, Acphold-Page"),
        ]
        if exchange.has_same(tag):
            await exchange.answer(304, headers=head)
        else:
            await exchange.answer(200, headers=head, raw=body)

    # -- the list -------------------------------------------------------------------------

    async def _sessions(self, asked: requests.ListQuery, principal: Principal) -> bytes:
        principal.check(Asked.read(LIST_SESSIONS.name))
        wanted = Wanted(
            ListFilter(
                agents=agents_of(asked.agent),
                cwd=asked.cwd,
                include_unprompted=asked.unprompted,
                queued=asked.queued,
                archived=asked.archived,
            ),
            tuple(asked.q.casefold().split()),
            said=asked.said,
            mine=asked.mine,
        )
        live = await self._reader.live()

        async def list_sessions(journal: Journal) -> bytes:
            page = await reader_of(journal, principal, live).page(wanted, asked.cursor, asked.limit)
            more = f',"leftOut":{page.left_out}' if wanted.mine else ""
            return await _page(
                "sessions", json_facts.session_json, page.sessions, page.cursor, more
            )

        return await self._reader.ask(list_sessions)

    # -- a session ------------------------------------------------------------------------

    async def _entries(
        self, session_id: str, asked: requests.EntriesQuery, principal: Principal
    ) -> bytes:
        row = await self._reader.session(principal, session_id, LOAD_SESSION.name)
        if asked.lineage not in (None, row.lineage):
            raise RewrittenError(
                f"the journal has gone back since session {session_id!r} was read; begin at its end"
            )
        page = await self._reader.ask(
            lambda it: it.read_back(session_id, asked.before, asked.limit, brief=asked.brief)
        )
        body: dict[str, object] = {
            "entries": Raw(b"[%b]" % ",".join(map(json_facts.entry_json, page.entries)).encode()),
            "before": page.before,
            "lineage": row.lineage,
        }
        if asked.before is None:  # as last known: looking at a session asks no agent
            now = (await self._reader.ask(lambda it: it.summary(session_id))).attributes
            state = splice(load_result(b"{}", now), {"availableCommands": now.commands})
            last = await self._reader.ask(
                lambda it: it.read_back(session_id, None, 1, kinds=(SENT, TURN_END))
            )
            body |= {
                "state": Raw(state),
                "may": sorted(principal.scopes_in(row)),
                "begun": next((id_of_sent(it.raw) for it in last.entries if it.kind == SENT), None),
            }
        return json_encode(body)

    # -- the search -----------------------------------------------------------------------

    async def _search(self, asked: requests.SearchQuery, principal: Principal) -> bytes:
        principal.check(Asked.read(LIST_SESSIONS.name))
        if not terms(asked.q):
            raise RefusedError(400, "q contains no word to search for")
        done, last = 0, ""  # the hits shown, and the place of the last
        if asked.cursor:
            number, _, last = asked.cursor.partition(".")
            is_number = number.isascii() and number.isdecimal()
            if not (is_number and last and len(number) <= len(str(bounds.MOST_HITS))):
                raise RefusedError(400, "unknown cursor; search again without one")
            done = int(number)
        sought = Sought(
            asked.q,
            agents=agents_of(asked.agent),
            cwd=asked.cwd,
            since=moment_of(asked.since),
            part=asked.part,
            rank=asked.rank,
        )

        async def find(limit: int, journal: Journal) -> list[SearchHit]:
            return await reader_of(journal, principal).search(replace(sought, limit=limit))

        # Newer hits may have come in before those already shown, mostly few.
        few = min(done + 2 * asked.limit, bounds.MOST_HITS)
        for limit in (few, bounds.MOST_HITS) if done else (asked.limit + 1,):
            hits = await self._reader.ask(partial(find, limit))
            places = [json_facts.place_name(hit.session_id, hit.seq) for hit in hits]
            start = places.index(last) + 1 if last in places else done
            end = start + asked.limit
            is_all = len(hits) < limit or limit == bounds.MOST_HITS
            if is_all or (last in places and end < len(hits)):
                break
        following = f"{end}.{places[end - 1]}" if end < len(hits) else None
        return await _page("hits", json_facts.hit_json, hits[start:end], following)


def reader_of(journal: Journal, principal: Principal, live: Live | None = None) -> LocalReader:
    """Return the reader of what a principal may see."""
    whose = Whose(principal.tenant, principal.session_id)
    return LocalReader(journal, whose=whose, live=live)


def agents_of(name: str) -> tuple[str, ...]:
    """Return the keys of the agents asked for; "" means all."""
    return keys_of(name) if name else ()


def moment_of(given: str) -> int:
    """Return a time in ISO 8601 as ms since the epoch, 0 for ""; raises RefusedError."""
    try:
        return max(0, round(datetime.fromisoformat(given).timestamp() * 1000)) if given else 0
    except (ValueError, OverflowError, OSError):
        raise RefusedError(400, "since must be a time such as 2026-01-31T12:00:00Z") from None


async def _page(
    name: str,
    line: Callable[[T], str],
    found: Iterable[T],
    following: str | None = None,
    more: str = "",
) -> bytes:
    """Return a page of lines, which are made in a thread: one may be of a long question."""
    lines = await Threads(1).run(lambda: ",".join(map(line, found)))
    cursor = "" if following is None else f',"nextCursor":{json_encode(following).decode()}'
    return f'{{"{name}":[{lines}]{cursor}{more}}}'.encode()
