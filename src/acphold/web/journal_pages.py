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
from hashlib import blake2b
from typing import Final, get_args

from msgspec.json import encode

from acphold.errors import (
    CursorError,
    ForbiddenError,
    IllegibleNameError,
    JournalError,
    RewrittenError,
    UnknownSessionError,
)
from acphold.journal import (
    Archived,
    Journal,
    ListFilter,
    PageBack,
    Part,
    SessionRow,
    Sought,
)
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
from acphold.reading.session_reader import Wanted
from acphold.schema import LIST_SESSIONS, LOAD_SESSION
from acphold.server.principals import Principal
from acphold.web.exchange import HttpExchange
from acphold.web.gate import RefusedError
from acphold.web.journal_reader import JournalReader
from acphold.web.parameters import Parameters

SESSIONS: Final = "/sessions"
SEARCH: Final = "/search"
INBOX: Final = "/inbox"
DECISIONS: Final = "/inbox/history"
ENTRIES: Final = "/entries"
"""The end of the address of a session's entries."""

ROWS: Final = 50
MOST_ROWS: Final = 500
"""Most sessions, entries or hits of a page; the first is the default."""

MOST_HITS: Final = 1000
"""Most hits of one search, over all of its pages."""

LAST_SEQ: Final = (1 << 32) - 1
"""Highest entry number."""

LAST_MOMENT: Final = 1 << 53
"""Highest time in a cursor, in ms."""

FOR_GOOD: Final = "private, max-age=31536000, immutable"
ASK_AGAIN: Final = "private, no-cache"
"""Cache-Control of final answers, and of those that may change."""


class JournalPages:
    """Answers requests for pages of the journal; see the module."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    async def answer(self, exchange: HttpExchange, principal: Principal) -> None:
        """Answer a request to an address below SESSIONS, SEARCH or INBOX; raises RefusedError."""
        if exchange.method not in ("GET", "HEAD"):
            raise RefusedError(405, "this is only read: GET or HEAD is wanted")
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
        path, query = exchange.path, exchange.scope.get("query_string", b"")
        try:
            if path == SESSIONS:
                return await self._sessions(query, principal), ASK_AGAIN
            if path == SEARCH:
                return await self._search(query, principal), ASK_AGAIN
            if path == INBOX:
                return await self._inbox(query, principal), ASK_AGAIN
            if path == DECISIONS:
                return await self._decisions(query, principal), ASK_AGAIN
            session_id = path.removeprefix(f"{SESSIONS}/").removesuffix(ENTRIES)
            if len(session_id) + len(SESSIONS) + 1 + len(ENTRIES) == len(path) and session_id:
                return await self._entries(session_id, query, principal)
            if len(session_id) + len(SESSIONS) + 1 == len(path) and session_id:
                return await self._row(session_id, query, principal), ASK_AGAIN
        except ForbiddenError as exc:
            raise RefusedError(403, str(exc)) from None
        except UnknownSessionError:
            raise RefusedError(404, "there is no such session") from None
        except CursorError as exc:
            raise RefusedError(400, str(exc)) from None
        except RewrittenError as exc:
            raise RefusedError(409, str(exc)) from None
        except IllegibleNameError as exc:
            raise RefusedError(400, str(exc)) from None
        except JournalError as exc:
            raise RefusedError(503, str(exc)) from None
        raise RefusedError(404, "there is nothing at this address")

    # -- the list -------------------------------------------------------------------------

    async def _sessions(self, query: bytes, principal: Principal) -> bytes:
        asked = Parameters(
            query, ("q", "agent", "cwd", "archived", "unprompted", "queued", "limit", "cursor")
        )
        principal.check(LIST_SESSIONS.name, b"{}")
        archived = asked.one_of("archived", get_args(Archived))
        wanted = ListFilter(
            agents=_agents(asked),
            cwd=asked.text("cwd"),
            include_unprompted=asked.is_true("unprompted"),
            queued=asked.is_true("queued"),
            archived=archived or "exclude",  # type: ignore[arg-type]
        )
        words = tuple((asked.text("q") or "").casefold().split())
        limit = asked.number("limit", 1, MOST_ROWS) or ROWS
        cursor = asked.text("cursor")
        live = await self._reader.live()

        async def listed(journal: Journal) -> bytes:
            page = await _reader(journal, principal, live).page(
                Wanted(wanted, words), cursor, limit
            )
            return _page("sessions", map(session_json, page.sessions), page.cursor)

        return await self._reader.ask(listed)

    async def _row(self, session_id: str, query: bytes, principal: Principal) -> bytes:
        Parameters(query, ())
        principal.check(LIST_SESSIONS.name, b"{}")
        live = await self._reader.live()

        async def found(journal: Journal) -> str:
            row = await journal.session(session_id, counted=True)
            principal.check_in(row, LIST_SESSIONS.name)
            [session] = await _reader(journal, principal, live).listed([row])
            return session_json(session)

        return (await self._reader.ask(found)).encode()

    # -- a session ------------------------------------------------------------------------

    async def _entries(
        self, session_id: str, query: bytes, principal: Principal
    ) -> tuple[bytes, str]:
        asked = Parameters(query, ("before", "limit", "lineage"))
        principal.check(LOAD_SESSION.name, encode({"sessionId": session_id}))
        before = asked.number("before", 1, LAST_SEQ)
        limit = asked.number("limit", 1, MOST_ROWS) or ROWS
        wanted = asked.text("lineage")

        async def read(journal: Journal) -> tuple[SessionRow, PageBack]:
            row = await journal.session(session_id)
            principal.check_in(row, LOAD_SESSION.name)
            if wanted not in (None, row.lineage):
                raise RewrittenError(
                    f"the journal has gone back since session {session_id!r} was read; begin at "
                    "its end"
                )
            return row, await LocalReader(journal).read_back(session_id, before, limit)

        row, page = await self._reader.ask(read)
        entries = ",".join(map(entry_json, page.entries))
        following = "null" if page.before is None else page.before
        lineage = encode(row.lineage).decode()
        body = f'{{"entries":[{entries}],"before":{following},"lineage":{lineage}}}'
        return body.encode(), FOR_GOOD if page.is_settled else ASK_AGAIN

    # -- the search -----------------------------------------------------------------------

    async def _search(self, query: bytes, principal: Principal) -> bytes:
        asked = Parameters(query, ("q", "in", "agent", "cwd", "since", "rank", "limit", "cursor"))
        principal.check(LIST_SESSIONS.name, b"{}")
        words = asked.text("q") or ""
        if not terms(words):
            raise RefusedError(400, "q has no word to search for")
        limit = asked.number("limit", 1, MOST_ROWS) or ROWS
        done, last = _place_in(asked.text("cursor"))
        sought = Sought(
            words,
            agents=_agents(asked),
            cwd=asked.text("cwd"),
            since=asked.moment("since"),
            part=asked.one_of("in", get_args(Part)),  # type: ignore[arg-type]
            rank=asked.is_true("rank"),
            limit=MOST_HITS if done else limit + 1,
        )
        hits = await self._reader.ask(lambda it: _reader(it, principal).search(sought))
        # Newer hits may have come in before those already shown.
        places = [place_name(hit.session_id, hit.seq) for hit in hits]
        start = places.index(last) + 1 if last in places else done
        shown = hits[start : start + limit]
        following = None
        if start + limit < len(hits):
            following = f"{start + limit}.{places[start + limit - 1]}"
        return _page("hits", map(hit_json, shown), following)

    # -- the inbox ------------------------------------------------------------------------

    async def _inbox(self, query: bytes, principal: Principal) -> bytes:
        Parameters(query, ())
        principal.check(LIST_SESSIONS.name, b"{}")
        live = await self._reader.live_now()
        found = await self._reader.ask(lambda it: _reader(it, principal, live).questions())
        return _page("questions", map(question_json, found), None)

    async def _decisions(self, query: bytes, principal: Principal) -> bytes:
        asked = Parameters(query, ("session", "limit", "cursor"))
        session_id = asked.text("session")
        about = {} if session_id is None else {"sessionId": session_id}
        principal.check(LIST_SESSIONS.name, encode(about))
        limit = asked.number("limit", 1, MOST_ROWS) or ROWS
        before = asked.number("cursor", 1, LAST_MOMENT)
        live = await self._reader.live()
        whose = Whose(principal.tenant, session_id or principal.session_id)
        found, following = await self._reader.ask(
            lambda it: LocalReader(it, whose=whose, live=live).decisions(limit, before)
        )
        lines = map(question_json, found)
        return _page("decisions", lines, None if following is None else str(following))


def _reader(journal: Journal, principal: Principal, live: Live | None = None) -> LocalReader:
    """Return the reader of what a principal may see."""
    return LocalReader(journal, whose=Whose(principal.tenant, principal.session_id), live=live)


def _agents(asked: Parameters) -> tuple[str, ...]:
    """Return the keys of the agents asked for; none means all."""
    name = asked.text("agent")
    return () if name is None else keys_of(name)


def _place_in(cursor: str | None) -> tuple[int, str]:
    """Return the number of hits shown and the place of the last; raises RefusedError."""
    if cursor is None:
        return 0, ""
    done, _, last = cursor.partition(".")
    if not (done.isascii() and done.isdecimal() and last and len(done) <= len(str(MOST_HITS))):
        raise RefusedError(400, "unknown cursor; search again without one")
    return int(done), last


def _page(name: str, lines: Iterable[str], following: str | None) -> bytes:
    cursor = "" if following is None else f',"nextCursor":{encode(following).decode()}'
    return f'{{"{name}":[{",".join(lines)}]{cursor}}}'.encode()
