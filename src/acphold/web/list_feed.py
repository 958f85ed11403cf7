"""The list of sessions as a stream of events.

    GET /sessions/feed    event `snapshot` {"sessions": [ROW…]}, then `change` {"session": ROW} or
                          {"gone": ID}, each with an `id` to go on after, in `Last-Event-ID`

The journal is followed once for all clients, started by the first of them. A client's position is
kept for a while: one that falls further behind gets a snapshot again, and so does one that
reconnects after the server restarted. A client that does not see all sessions also gets a snapshot
when it reconnects: its events have no numbers, which would tell how much goes on in the others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from types import TracebackType
from typing import Final, NamedTuple

from msgspec.json import encode

from acphold.errors import ForbiddenError, JournalError, UnknownSessionError
from acphold.journal import Journal, ListFilter, SessionRow
from acphold.presentation.json_facts import session_json
from acphold.schema import LIST_SESSIONS
from acphold.server.followed_list import Changed, Snapshot, followed
from acphold.server.neighbours import live_at_nodes, live_sessions
from acphold.server.principals import Principal
from acphold.server.service import served_journal
from acphold.server.stirrings import Stirrings
from acphold.web.exchange import Exchange
from acphold.web.gate import Admitted, Gate, RefusedError
from acphold.web.http_clients import LAST_EVENT_ID
from acphold.web.journal_reader import JournalReader
from acphold.web.parameters import Parameters

log = logging.getLogger(__name__)

FEED: Final = "/sessions/feed"

NEWEST: Final = 200
"""Sessions of a snapshot, beside the live ones."""

KEPT: Final = 1000
"""Changes kept for clients that are behind."""

HEARTBEAT_SECONDS: Final = 15.0
"""Seconds between two heartbeats, so that no proxy takes the stream for dead."""

LINGER_SECONDS: Final = 60.0
"""Seconds that the journal is still followed without a client: one may come back."""

AGAIN_SECONDS: Final = 1.0
"""Seconds until a journal that cannot be read is tried again."""

WATCHERS: Final = 256
OF_A_TOKEN: Final = 32
"""Most streams in total, and per token."""


class Row(NamedTuple):
    """A session as clients get it, and its row of the list."""

    found: SessionRow
    is_live: bool
    json: str


class Told(NamedTuple):
    """A change: its text for clients that see all, its session now (or None), and its message."""

    session_id: str
    event: bytes
    said: str
    now: SessionRow | None


class ListFeed:
    """The feed; an async context manager.

    Changes of one `era` are numbered from 1; each snapshot of the journal begins a new era.
    """

    def __init__(self, reader: JournalReader, gate: Gate, stirrings: Stirrings) -> None:
        self._reader = reader
        self._gate = gate
        self._stirrings = stirrings
        self._watchers: Counter[str] = Counter()
        self._following: asyncio.Task[None] | None = None
        self._era = ""  # "" until the first snapshot
        self._rows: dict[str, Row] = {}
        self._told: deque[Told] = deque(maxlen=KEPT)
        self._number = 0
        self._news = asyncio.Event()

    async def __aenter__(self) -> ListFeed:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    @property
    def watchers(self) -> int:
        """Number of connected clients."""
        return self._watchers.total()

    # -- one client ------------------------------------------------------------------------

    async def answer(self, exchange: Exchange, admitted: Admitted) -> None:
        """Serve one client until it goes or its token is revoked; raises RefusedError."""
        if exchange.method != "GET":
            raise RefusedError(405, "GET is wanted")
        Parameters(exchange.scope.get("query_string", b""), ())
        try:
            admitted.principal.check(LIST_SESSIONS.name, b"{}")
        except ForbiddenError as exc:
            raise RefusedError(403, str(exc)) from None
        token = admitted.token
        if self.watchers >= WATCHERS or self._watchers[token] >= OF_A_TOKEN:
            raise RefusedError(429, "too many streams")
        self._watchers[token] += 1
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="follow the list")
        position = exchange.headers.get(LAST_EVENT_ID, "")
        events = self._events(admitted.principal, position)
        streaming = asyncio.create_task(exchange.stream(events), name="feed of the list")
        key = self._gate.connected(admitted, lambda _: streaming.cancel())
        try:
            await asyncio.wait([streaming])
        finally:
            self._gate.disconnected(key)
            streaming.cancel()
            await asyncio.wait([streaming])
            self._watchers[token] -= 1
            if not self._watchers[token]:
                del self._watchers[token]
            if not self._watchers:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._rest)

    async def _events(self, who: Principal, position: str) -> AsyncIterator[bytes]:
        """Yield the events for one client after a position."""
        loop = asyncio.get_running_loop()
        era, _, number = position.partition(".")
        at = int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1
        theirs = set[str]()  # the sessions told to a client that does not see all
        silent_until = loop.time() + HEARTBEAT_SECONDS
        while True:
            said = b""
            news = self._news
            before_all = self._number - len(self._told)
            if self._era and not (era == self._era and before_all <= at <= self._number):
                era, at = self._era, self._number
                rows = await self._seen_by(who)
                theirs = {row.found.session_id for row in rows}
                position = self._position if who.sees_all else era
                listed = ",".join(row.json for row in rows)
                said = _event("snapshot", position, f'{{"sessions":[{listed}]}}')
            elif self._era and at < self._number:
                due = islice(self._told, at - before_all, None)
                at = self._number
                if who.sees_all:
                    said = b"".join(it.event for it in due)
                else:
                    changes = [_told_to(who, theirs, it) for it in due]
                    said = b"".join(_event("change", era, it) for it in changes if it)
            if said:
                yield said
                silent_until = loop.time() + HEARTBEAT_SECONDS
            try:
                async with asyncio.timeout_at(silent_until):
                    await news.wait()
            except TimeoutError:
                yield b":\n\n"
                silent_until = loop.time() + HEARTBEAT_SECONDS

    async def _seen_by(self, who: Principal) -> list[Row]:
        """Return the sessions this client may see, newest first."""
        rows: Iterable[Row] = self._rows.values()
        if not who.sees_all:
            # The newest of all may include few that this client may see.
            newest = {it.found.session_id: it for it in rows if who.scopes_in(it.found)}
            older = await self._reader.ask(lambda journal: _rows_of(journal, who))
            rows = {**{it.found.session_id: it for it in older}, **newest}.values()
        return sorted(rows, key=lambda row: -row.found.updated_at)

    @property
    def _position(self) -> str:
        return f"{self._era}.{self._number}"

    # -- all clients -----------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follow the journal, and one that replaces it, until no client is left."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._reader.run(self._read(loop))
            except JournalError as exc:
                log.warning("the list cannot be followed: %s", exc)
            except Exception:  # nobody awaits this task, and clients wait for it
                log.exception("the list was given up for a moment")
            self._era = ""
            await asyncio.sleep(AGAIN_SECONDS)

    def _rest(self) -> None:
        if not self._watchers and self._following is not None:
            self._following.cancel()
            self._following = None
            self._era, self._rows = "", {}
            self._told.clear()

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in the reader's thread: changes become text there, once for all clients."""
        journal = served_journal(self._reader.location)
        try:
            with self._stirrings.heard() as stirred:
                async with aclosing(followed(journal, NEWEST, stirred)) as found:
                    async for news in found:
                        rows = {row.session_id: _row(row, news) for row in news.rows}
                        away = [row.session_id for row in news.rows if row.archived]
                        if isinstance(news, Snapshot):
                            loop.call_soon_threadsafe(self._begin, rows)
                        else:
                            loop.call_soon_threadsafe(self._tell, rows, away, news.gone)
        finally:
            await journal.aclose()

    def _begin(self, rows: dict[str, Row]) -> None:
        self._era, self._number, self._rows = secrets.token_hex(6), 0, rows
        self._told.clear()
        self._wake()

    def _tell(self, rows: dict[str, Row], away: Sequence[str], gone: Sequence[str]) -> None:
        for session_id, row in rows.items():
            self._note(session_id, f'{{"session":{row.json}}}', row.found)
        for session_id in gone:
            self._note(session_id, _gone(session_id), None)
        self._rows |= rows
        for session_id in (*away, *gone):
            self._rows.pop(session_id, None)
        if len(self._rows) > 2 * NEWEST:
            newest = sorted(self._rows.items(), key=lambda it: -it[1].found.updated_at)
            self._rows = {
                id_: row for n, (id_, row) in enumerate(newest) if n < NEWEST or row.is_live
            }
        self._wake()

    def _note(self, session_id: str, said: str, now: SessionRow | None) -> None:
        self._number += 1
        event = _event("change", self._position, said)
        self._told.append(Told(session_id, event, said, now))

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _row(row: SessionRow, news: Snapshot | Changed) -> Row:
    told = session_json(row, news.live, news.outcomes)
    return Row(row, row.session_id in news.live, told)


def _told_to(who: Principal, theirs: set[str], told: Told) -> str:
    """Return a change as text for a client that does not see all, "" for nothing.

    A session of `theirs`, those the client was told of, is reported as gone once it may not see it.
    """
    if told.now is not None and who.scopes_in(told.now):
        theirs.add(told.session_id)
        return told.said
    if told.session_id in theirs:
        theirs.discard(told.session_id)
        return _gone(told.session_id)
    return ""


def _gone(session_id: str) -> str:
    return f'{{"gone":{encode(session_id).decode()}}}'


async def _rows_of(journal: Journal, who: Principal) -> list[Row]:
    """Return the newest sessions that this client may see."""
    if who.session_id is None:
        found = await journal.page(ListFilter(tenant=who.tenant), None, NEWEST)
    else:
        try:
            found = [await journal.session(who.session_id)]
        except UnknownSessionError:
            found = []
    outcomes = await journal.outcomes([row.session_id for row in found])
    live = {**await live_at_nodes(journal), **await live_sessions()}
    news = Changed(found, (), live, outcomes)
    return [_row(row, news) for row in found if who.scopes_in(row)]


def _event(name: str, id_: str, data: str) -> bytes:
    """Return an event (HTML, 9.2.6, "Interpreting an event stream"); `data` is on one line."""
    return f"event: {name}\nid: {id_}\ndata: {data}\n\n".encode()
