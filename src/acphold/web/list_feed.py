"""The list of sessions as a stream of events.

    GET /sessions/feed    event `snapshot` {"sessions": [ROW…]}, then `change` {"session": ROW} or
                          {"gone": ID}, each with an `id` to go on after, in `Last-Event-ID`

A ROW whose session waits for a person also has its `openQuestions`, each as in the inbox.

The journal is followed once for all clients, started by the first of them. An id is
`ERA.CHANGE.LIVE`: the era of the journal's positions (see `acphold.journal.lineage`), the last
change in the journal, and the beginnings of the ids of the sessions that are live. A client that
reconnects, also after the server restarted, gets the sessions that have changed since, those that
are live, and those that were; a snapshot if they are very many, or if the journal has gone back. A
client that does not see all sessions always gets a snapshot: its events have no numbers, which
would tell how much goes on in the others.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final, NamedTuple

from msgspec.json import encode

from acphold.errors import AmbiguousIdError, JournalError, UnknownSessionError
from acphold.journal import Journal, ListFilter, SessionRow
from acphold.presentation.json_facts import session_json
from acphold.reading.followed_list import ActivitySignal
from acphold.reading.local_reader import LocalReader
from acphold.reading.requests import NoQuery
from acphold.reading.session_reader import ListedSession, News
from acphold.schema import LIST_SESSIONS
from acphold.server.principals import Principal
from acphold.server.service import served_journal
from acphold.tasks import end
from acphold.web import bounds
from acphold.web.exchange import HttpExchange
from acphold.web.gate import Admitted, Gate, RefusedError
from acphold.web.http_clients import LAST_EVENT_ID
from acphold.web.journal_pages import JournalReader

log = logging.getLogger(__name__)

PREFIX: Final = 12
"""Characters of the id of a live session in a position."""

_PLAIN: Final = re.compile(r"[\w-]+", re.ASCII)
_POSITION: Final = re.compile(r"([0-9a-f]+)\.([0-9]{1,19})\.([\w,-]*)", re.ASCII)


class Row(NamedTuple):
    """A session as clients get it, and its row of the list."""

    found: SessionRow
    is_live: bool
    json: str


class ToldChange(NamedTuple):
    """A change: its text for clients that see all, its session now (or None), and its message."""

    session_id: str
    event: bytes
    said: str
    now: SessionRow | None


class ListFeed:
    """The feed; an async context manager.

    Changes of one `run` are numbered from 1; each snapshot of the journal begins a new run.
    """

    def __init__(self, reader: JournalReader, gate: Gate, activity_signal: ActivitySignal) -> None:
        self._reader = reader
        self._gate = gate
        self._activity_signal = activity_signal
        self._watchers: Counter[str] = Counter()
        self._following: asyncio.Task[None] | None = None
        self._run = ""  # "" until the first snapshot
        self._era = ""
        self._last = 0
        self._rows: dict[str, Row] = {}
        self._told: deque[ToldChange] = deque()
        self._told_bytes = 0
        self._number = 0
        self._news = asyncio.Event()

    async def __aenter__(self) -> ListFeed:
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._following)

    @property
    def watchers(self) -> int:
        """Number of connected clients."""
        return self._watchers.total()

    # -- one client ------------------------------------------------------------------------

    async def answer(self, exchange: HttpExchange, admitted: Admitted) -> None:
        """Serve one client until it goes or its token is revoked; raises RefusedError and
        ForbiddenError."""
        if exchange.method != "GET":
            raise RefusedError(405, "use GET")
        exchange.query(NoQuery)
        admitted.principal.check(LIST_SESSIONS.name, b"{}")
        token = admitted.token
        if self.watchers >= bounds.FEEDS or self._watchers[token] >= bounds.FEEDS_OF_TOKEN:
            raise RefusedError(429, "too many streams")
        self._watchers[token] += 1
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="follow the list")
        position = exchange.headers.get(LAST_EVENT_ID, "")
        events = self._events(admitted.principal, position)
        streaming = asyncio.create_task(exchange.stream(events), name="feed of the list")
        try:
            with self._gate.connected(admitted, lambda _: streaming.cancel()):
                await asyncio.wait([streaming])
        finally:
            await end(streaming)
            self._watchers[token] -= 1
            if not self._watchers[token]:
                del self._watchers[token]
            if not self._watchers:
                asyncio.get_running_loop().call_later(bounds.FEED_LINGER_SECONDS, self._rest)

    async def _events(self, who: Principal, position: str) -> AsyncIterator[bytes]:
        """Yield the events for one client after a position."""
        loop = asyncio.get_running_loop()
        run, at = "", 0
        theirs = set[str]()  # the sessions told to a client that does not see all
        silent_until = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS
        while True:
            said = b""
            news = self._news
            before_all = self._number - len(self._told)
            if self._run and not (run == self._run and before_all <= at):
                run, at = self._run, self._number
                missed = await self._missed(position) if who.sees_all else None
                position = ""
                if missed is None:
                    id_ = self._position if who.sees_all else run
                    rows = await self._seen_by(who)
                    theirs = {row.found.session_id for row in rows}
                    listed = ",".join(row.json for row in rows)
                    missed = _event("snapshot", id_, f'{{"sessions":[{listed}]}}')
                said = missed
            elif self._run and at < self._number:
                due = islice(self._told, at - before_all, None)
                at = self._number
                if who.sees_all:
                    said = b"".join(it.event for it in due)
                else:
                    changes = [_told_to(who, theirs, it) for it in due]
                    said = b"".join(_event("change", run, it) for it in changes if it)
            if said:
                yield said
                silent_until = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS
            try:
                async with asyncio.timeout_at(silent_until):
                    await news.wait()
            except TimeoutError:
                yield b":\n\n"
                silent_until = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS

    async def _missed(self, position: str) -> bytes | None:
        """Return the events since a position; None if they cannot be told."""
        if (found := _POSITION.fullmatch(position)) is None or found[1] != self._era:
            return None
        after, beginnings = int(found[2]), [*filter(None, found[3].split(","))]
        if len(beginnings) > bounds.LIVE_IN_POSITION:
            return None
        reached = self._position

        async def read(journal: Journal) -> News | None:
            reader = LocalReader(journal)
            known = list[str]()
            for beginning in beginnings:
                try:
                    known.append((await journal.resolve(beginning)).session_id)
                except UnknownSessionError:
                    pass
                except AmbiguousIdError as several:
                    known += several.matches
            return await reader.missed(after, known, bounds.KEPT_CHANGES)

        if (news := await self._reader.ask(read)) is None:
            return None
        said = [f'{{"session":{session_json(it)}}}' for it in news.sessions]
        said += map(_gone, news.gone)
        # A client that goes in the middle asks for all of them again.
        *earlier, last = [*said] or [""]
        if not last:
            return b":\n\n"
        return b"".join(
            [*(_event("change", position, it) for it in earlier), _event("change", reached, last)]
        )

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
        live = [id_[:PREFIX] for id_, row in self._rows.items() if row.is_live]
        if (
            len(live) > bounds.LIVE_IN_POSITION
            or not self._era
            or any(not _PLAIN.fullmatch(it) for it in live)
        ):
            return "-"
        return f"{self._era}.{self._last}.{','.join(live)}"

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
            self._run = ""
            await asyncio.sleep(bounds.FEED_RETRY_SECONDS)

    def _rest(self) -> None:
        if not self._watchers and self._following is not None:
            self._following.cancel()
            self._following = None
            self._run, self._rows = "", {}
            self._forget()

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in the reader's thread: changes become text there, once for all clients."""
        journal = served_journal(self._reader.location)
        try:
            with self._activity_signal.heard() as activity:
                async with aclosing(
                    LocalReader(journal).changes(bounds.SNAPSHOT_SESSIONS, activity)
                ) as found:
                    async for news in found:
                        rows = {it.row.session_id: _row(it) for it in news.sessions}
                        away = [
                            it.row.session_id
                            for it in news.sessions
                            if it.row.archived and it.live is None
                        ]
                        if news.is_all:
                            loop.call_soon_threadsafe(self._begin, rows, news.last)
                        else:
                            loop.call_soon_threadsafe(self._tell, rows, away, news)
        finally:
            await journal.aclose()

    def _begin(self, rows: dict[str, Row], last: int) -> None:
        self._run, self._number, self._rows = secrets.token_hex(6), 0, rows
        self._forget()
        self._reach(rows, last)
        self._wake()

    def _reach(self, rows: dict[str, Row], last: int) -> None:
        self._last = last
        for row in rows.values():
            self._era = row.found.lineage.partition(".")[0]

    def _tell(self, rows: dict[str, Row], away: Sequence[str], news: News) -> None:
        before = self._position
        self._rows |= rows
        for session_id in (*away, *news.gone):
            self._rows.pop(session_id, None)
        self._reach(rows, news.last)
        changes: list[tuple[str, str, SessionRow | None]] = [
            (id_, f'{{"session":{row.json}}}', row.found) for id_, row in rows.items()
        ]
        changes += [(id_, _gone(id_), None) for id_ in news.gone]
        for left, (session_id, said, now) in zip(
            range(len(changes) - 1, -1, -1), changes, strict=True
        ):
            # A client that goes in the middle asks for all of them again.
            event = _event("change", before if left else self._position, said)
            self._number += 1
            self._told.append(ToldChange(session_id, event, said, now))
            self._told_bytes += len(event)
            while len(self._told) > bounds.KEPT_CHANGES or (
                self._told_bytes > bounds.KEPT_CHANGES_BYTES and len(self._told) > 1
            ):
                self._told_bytes -= len(self._told.popleft().event)
        if len(self._rows) > 2 * bounds.SNAPSHOT_SESSIONS:
            newest = sorted(self._rows.items(), key=lambda it: -it[1].found.updated_at)
            self._rows = {
                id_: row
                for n, (id_, row) in enumerate(newest)
                if n < bounds.SNAPSHOT_SESSIONS or row.is_live
            }
        self._wake()

    def _forget(self) -> None:
        self._told.clear()
        self._told_bytes = 0

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _row(session: ListedSession) -> Row:
    return Row(session.row, session.live is not None, session_json(session))


def _told_to(who: Principal, theirs: set[str], told: ToldChange) -> str:
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
        found = await journal.page(ListFilter(tenant=who.tenant), None, bounds.SNAPSHOT_SESSIONS)
    else:
        try:
            found = [await journal.session(who.session_id)]
        except UnknownSessionError:
            found = []
    seen = [row for row in found if who.scopes_in(row)]
    return [_row(session) for session in await LocalReader(journal).listed(seen)]


def _event(name: str, id_: str, data: str) -> bytes:
    """Return an event (HTML, 9.2.6, "Interpreting an event stream"); `data` is on one line."""
    return f"event: {name}\nid: {id_}\ndata: {data}\n\n".encode()
