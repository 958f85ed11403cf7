"""The journal over plain HTTP, without an ACP connection: for small screens and browsers.

    GET /sessions             {"sessions": [ROW…], "nextCursor"}, the newest first
    GET /sessions/ID          ROW
    GET /sessions/ID/entries  {"entries": [ENTRY…], "before", "lineage"}, the newest first
    GET /search               {"hits": [HIT…], "nextCursor"}
    GET /inbox                {"questions": [QUESTION…]}, open ones, the oldest first
    GET /inbox/history        {"decisions": [DECISION…], "nextCursor"}, the newest first

ROW, ENTRY and HIT are as `acphold list`, `show` and `search` print them with --json, QUESTION and
DECISION as `acphold inbox` does. All of it needs the scope watch; sessions that a principal may not
see (`server.principals`) are left out. With `lineage`, entries of another lineage are refused with
409 (see `acphold.journal.lineage`). Questions are only answered over ACP (`/acp`), with the scope
answer.
"""

# See docs/decisions.md, 32.

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from typing import Final

from msgspec.json import encode

from acphold.errors import RewrittenError
from acphold.journal import Journal, ListFilter, Sought
from acphold.journal.hits import terms
from acphold.known_agents import keys_of
from acphold.presentation.json_facts import (
    entry_json,
    hit_json,
    place_name,
    question_json,
    session_json,
)
from acphold.reading.inbox import Whose
from acphold.reading.local_reader import LocalReader
from acphold.reading.neighbours import Live
from acphold.reading.requests import (
    DECISIONS,
    ENTRIES,
    INBOX,
    SEARCH,
    SESSIONS,
    DecisionsQuery,
    EntriesQuery,
    ListQuery,
    NoQuery,
    SearchQuery,
)
from acphold.reading.session_reader import Wanted
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.journal_reader import JournalReader

MOST_HITS: Final = 1000
"""Most hits of one search, over all of its pages."""

FOR_GOOD: Final = "private, max-age=31536000, immutable"
ASK_AGAIN: Final = "private, no-cache"
"""Cache-Control of final answers, and of those that may change."""


class JournalPages:
    """Answers requests for pages of the journal; see the module."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    async def answer(self, exchange: HttpExchange, principal: Principal) -> None:
        """Answer a request to an address below SESSIONS, SEARCH or INBOX; raises RefusedError,
        ForbiddenError and JournalError."""
        exchange.require_read()
        body, keeping = await self._body(exchange, principal)
        tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        head = [
            (b"cache-control", keeping.encode()),
            (b"etag", tag.encode()),
            (b"vary", b"Authorization, Cookie, Acphold-Page"),
        ]
        known = {
            each.strip().removeprefix("W/")
            for each in exchange.headers.get("if-none-match", "").split(",")
        }
        if known & {tag, "*"}:
            await exchange.answer(304, headers=head)
        else:
            await exchange.answer(200, headers=head, raw=body)

    async def _body(self, exchange: HttpExchange, principal: Principal) -> tuple[bytes, str]:
        """Return the body of the answer and its Cache-Control."""
        path = exchange.path
        if path == SESSIONS:
            return await self._sessions(exchange.query(ListQuery), principal), ASK_AGAIN
        if path == SEARCH:
            return await self._search(exchange.query(SearchQuery), principal), ASK_AGAIN
        if path == INBOX:
            exchange.query(NoQuery)
            return await self._inbox(principal), ASK_AGAIN
        if path == DECISIONS:
            return await self._decisions(exchange.query(DecisionsQuery), principal), ASK_AGAIN
        session_id = path.removeprefix(f"{SESSIONS}/").removesuffix(ENTRIES)
        if session_id and path == f"{SESSIONS}/{session_id}{ENTRIES}":
            return await self._entries(session_id, exchange.query(EntriesQuery), principal)
        if session_id and path == f"{SESSIONS}/{session_id}":
            exchange.query(NoQuery)
            return await self._row(session_id, principal), ASK_AGAIN
        raise RefusedError(404, "there is nothing at this address")

    # -- the list -------------------------------------------------------------------------

    async def _sessions(self, asked: ListQuery, principal: Principal) -> bytes:
        principal.check(LIST_SESSIONS.name, b"{}")
        wanted = Wanted(
            ListFilter(
                agents=agents_of(asked.agent),
                cwd=asked.cwd,
                include_unprompted=asked.unprompted,
                queued=asked.queued,
                archived=asked.archived,
            ),
            tuple(asked.q.casefold().split()),
        )
        live = await self._reader.live()

        async def listed(journal: Journal) -> bytes:
            page = await _reader(journal, principal, live).page(wanted, asked.cursor, asked.limit)
            return _page("sessions", map(session_json, page.sessions), page.cursor)

        return await self._reader.ask(listed)

    async def _row(self, session_id: str, principal: Principal) -> bytes:
        row = await self._reader.session(principal, session_id, LIST_SESSIONS.name, counted=True)
        live = await self._reader.live()
        [session] = await self._reader.ask(lambda it: _reader(it, principal, live).listed([row]))
        return session_json(session).encode()

    # -- a session ------------------------------------------------------------------------

    async def _entries(
        self, session_id: str, asked: EntriesQuery, principal: Principal
    ) -> tuple[bytes, str]:
        row = await self._reader.session(principal, session_id, LOAD_SESSION.name)
        if asked.lineage not in (None, row.lineage):
            raise RewrittenError(
                f"the journal has gone back since session {session_id!r} was read; begin at its end"
            )
        page = await self._reader.ask(
            lambda it: it.read_back(session_id, asked.before, asked.limit)
        )
        entries = ",".join(map(entry_json, page.entries))
        following = "null" if page.before is None else page.before
        lineage = encode(row.lineage).decode()
        body = f'{{"entries":[{entries}],"before":{following},"lineage":{lineage}}}'
        return body.encode(), FOR_GOOD if page.is_settled else ASK_AGAIN

    # -- the search -----------------------------------------------------------------------

    async def _search(self, asked: SearchQuery, principal: Principal) -> bytes:
        principal.check(LIST_SESSIONS.name, b"{}")
        if not terms(asked.q):
            raise RefusedError(400, "q has no word to search for")
        done, last = _place_in(asked.cursor)
        sought = Sought(
            asked.q,
            agents=agents_of(asked.agent),
            cwd=asked.cwd,
            since=moment_of(asked.since),
            part=asked.part,
            rank=asked.rank,
            limit=MOST_HITS if done else asked.limit + 1,
        )
        hits = await self._reader.ask(lambda it: _reader(it, principal).search(sought))
        # Newer hits may have come in before those already shown.
        places = [place_name(hit.session_id, hit.seq) for hit in hits]
        start = places.index(last) + 1 if last in places else done
        end = start + asked.limit
        following = f"{end}.{places[end - 1]}" if end < len(hits) else None
        return _page("hits", map(hit_json, hits[start:end]), following)

    # -- the inbox ------------------------------------------------------------------------

    async def _inbox(self, principal: Principal) -> bytes:
        principal.check(LIST_SESSIONS.name, b"{}")
        live = await self._reader.live_now()
        found = await self._reader.ask(lambda it: _reader(it, principal, live).questions())
        return _page("questions", map(question_json, found), None)

    async def _decisions(self, asked: DecisionsQuery, principal: Principal) -> bytes:
        about = {} if asked.session is None else {"sessionId": asked.session}
        principal.check(LIST_SESSIONS.name, encode(about))
        live = await self._reader.live()
        whose = Whose(principal.tenant, asked.session or principal.session_id)
        found, following = await self._reader.ask(
            lambda it: LocalReader(it, whose=whose, live=live).decisions(asked.limit, asked.cursor)
        )
        lines = map(question_json, found)
        return _page("decisions", lines, None if following is None else str(following))


def _reader(journal: Journal, principal: Principal, live: Live | None = None) -> LocalReader:
    """Return the reader of what a principal may see."""
    return LocalReader(journal, whose=Whose(principal.tenant, principal.session_id), live=live)


def agents_of(name: str) -> tuple[str, ...]:
    """Return the keys of the agents asked for; "" means all."""
    return keys_of(name) if name else ()


def moment_of(given: str) -> int:
    """Return a time in ISO 8601 as ms since the epoch, 0 for ""; raises RefusedError."""
    try:
        return max(0, round(datetime.fromisoformat(given).timestamp() * 1000)) if given else 0
    except (ValueError, OverflowError, OSError):
        raise RefusedError(400, "since is a time such as 2026-01-31T12:00:00Z") from None


def _place_in(cursor: str) -> tuple[int, str]:
    """Return the number of hits shown and the place of the last; raises RefusedError."""
    if not cursor:
        return 0, ""
    done, _, last = cursor.partition(".")
    if not (done.isascii() and done.isdecimal() and last and len(done) <= len(str(MOST_HITS))):
        raise RefusedError(400, "unknown cursor; search again without one")
    return int(done), last


def _page(name: str, lines: Iterable[str], following: str | None) -> bytes:
    cursor = "" if following is None else f',"nextCursor":{encode(following).decode()}'
    return f'{{"{name}":[{",".join(lines)}]{cursor}}}'.encode()
