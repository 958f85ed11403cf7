"""The list of sessions as a stream of events.

    GET /sessions/feed    event `snapshot` {"sessions": [ROW…]}, then `change` {"session": ROW} or
                          {"gone": ID}, each with an `id` to go on after, in `Last-Event-ID`

A ROW whose session waits for a person also has its `openQuestions`, each as in the inbox.

The journal is followed once for all clients, from the first of them until a minute after the last.
Each such run has a name, and its changes have numbers; an id is `RUN.NUMBER`. A client that
reconnects within a run gets the changes that it missed, otherwise a snapshot. A client that does
not see all sessions always gets a snapshot: its events have no numbers, which would tell how much
goes on in the others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from itertools import islice
from typing import Final, NamedTuple

from msgspec.json import encode
from msgspec.structs import replace

from acp_wire.schema import LIST_SESSIONS
from acp_wire.tasks import end, timeout
from acp_wire.workspace.threads import Threads
from acphold.errors import JournalError
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.hub.alerts import Activity
from acphold.live.reading.json_facts import session_json
from acphold.live.reading.listed_sessions import ListedSession, News, Wanted
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.requests import NoQuery
from acphold.live.server.methods import Asked
from acphold.live.server.principals import Principal
from acphold.live.server.service import journal_at
from acphold.web import bounds
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted, Gate
from acphold.web.http_clients import LAST_EVENT_ID
from acphold.web.journal_pages import JournalReader, reader_of

log = logging.getLogger(__name__)

HEARTBEAT: Final = b":\n\n"
"""A comment, which tells the client that the stream is alive."""


class FeedRow(NamedTuple):
    """A session of the list: its row, and the JSON that clients get: its owner, and others."""

    row: SessionRow
    is_live: bool
    json: str
    for_others: str

    def json_for(self, principal: Principal) -> str:
        """Return its JSON for a client that may see it."""
        is_owners = principal.session_id is None and principal.owns(self.row.tenant)
        told = self.json if is_owners else self.for_others
        if (person := principal.tenant or "") == "":
            return told
        is_pinned = "true" if person in self.row.pins else "false"
        return f'{told.rpartition(",")[0]},"pinned":{is_pinned}}}'


class FeedChange(NamedTuple):
    """A change of a session, and its event for clients that see all sessions.

    `after` is the session after the change, None if it is gone.
    """

    session_id: str
    event: bytes
    after: FeedRow | None

    def data_for(self, principal: Principal, sent_ids: set[str]) -> str:
        """Return its data for a client that does not see all, "" for nothing.

        A session in `sent_ids`, which this keeps up to date, is reported as gone once the client
        may not see it.
        """
        if self.after is not None and principal.scopes_in(self.after.row):
            sent_ids.add(self.session_id)
            return _change_data(self.after.json_for(principal))
        if self.session_id in sent_ids:
            sent_ids.discard(self.session_id)
            return _removal_data(self.session_id)
        return ""


class ListFeed:
    """The feed; an async context manager.

    Changes of one `run` are numbered from 1; each snapshot of the journal begins a new run.
    """

    def __init__(self, reader: JournalReader, gate: Gate, activity: Activity) -> None:
        self._reader = reader
        self._gate = gate
        self._activity = activity
        self._watchers: Counter[str] = Counter()
        self._following: asyncio.Task[None] | None = None
        self._run = ""  # "" until the first snapshot
        self._rows: dict[str, FeedRow] = {}
        self._is_cut = False  # older sessions are in none of them
        self._changes: deque[FeedChange] = deque()  # the newest ones of this run
        self._changes_bytes = 0
        self._number = 0  # of the last change
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
        exchange.require("GET")
        exchange.query(NoQuery)
        admitted.principal.check(Asked.read(LIST_SESSIONS.name))
        token = admitted.token
        if self.watchers >= bounds.FEEDS or self._watchers[token] >= bounds.FEEDS_OF_TOKEN:
            raise RefusedError(429, "too many streams are open; try again later")
        self._watchers[token] += 1
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="follow the list")
        position = exchange.headers.get(LAST_EVENT_ID, "")
        events = self._events(admitted.principal, position)
        streaming = asyncio.create_task(exchange.stream(events), name="feed of the list")
        try:
            with self._gate.connected(admitted, lambda _: streaming.cancel()):
                await asyncio.wait([streaming])
            if not exchange.is_streamed:  # sent away before its first step
                raise RefusedError(503, "this server is ending; try again")
        finally:
            await end(streaming)
            self._watchers -= Counter([token])  # which forgets who has none
            if not self._watchers:
                loop = asyncio.get_running_loop()
                loop.call_later(bounds.FEED_LINGER_SECONDS, self._stop_if_unused)

    async def _events(self, principal: Principal, position: str) -> AsyncIterator[bytes]:
        """Yield the events for one client after a position."""
        loop = asyncio.get_running_loop()
        run, number = "", 0  # the run and the last change that this client has
        named, _, digits = position.partition(".")
        if principal.sees_all and named == self._run and digits.isdecimal() and len(digits) < 20:
            run, number = named, min(int(digits), self._number)
        sent_ids = set[str]()  # of the sessions sent to a client that does not see all
        heartbeat_at = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS
        while True:
            news = self._news  # before anything is read: a later change sets this one
            events = b""
            dropped = self._number - len(self._changes)
            if self._run and (run != self._run or number < dropped):
                run, number = self._run, self._number
                id_ = f"{run}.{number}" if principal.sees_all else run
                rows: Iterable[FeedRow] = self._rows.values()
                if not principal.sees_all:
                    # The newest of all may include few that this client may see.
                    newest = [it for it in rows if principal.scopes_in(it.row)]
                    older = await self._reader.ask(lambda it: _rows_of(it, principal))
                    rows = {it.row.session_id: it for it in (*older, *newest)}.values()
                rows = sorted(rows, key=lambda it: -it.row.updated_at)
                sent_ids = {it.row.session_id for it in rows}
                listed = ",".join(it.json_for(principal) for it in rows)
                is_cut = (
                    self._is_cut if principal.sees_all else len(rows) >= bounds.SNAPSHOT_SESSIONS
                )
                more = ',"more":true' if is_cut else ""
                events = _event("snapshot", id_, f'{{"sessions":[{listed}]{more}}}')
            elif self._run and number < self._number:
                changes = islice(self._changes, number - dropped, None)
                number = self._number
                if principal.sees_all:
                    events = b"".join(change.event for change in changes)
                else:
                    visible = [change.data_for(principal, sent_ids) for change in changes]
                    events = b"".join(_event("change", run, data) for data in visible if data)
            if events:
                yield events
                heartbeat_at = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS
            try:
                async with timeout(heartbeat_at - loop.time()):
                    await news.wait()
            except TimeoutError:
                yield HEARTBEAT
                heartbeat_at = loop.time() + bounds.STREAM_HEARTBEAT_SECONDS

    # -- all clients -----------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follow the journal, and one that replaces it, until no client is left."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._reader.run(self._read(loop))
            except JournalError as exc:
                log.warning("cannot follow the session list: %s", exc)
            except Exception:  # nobody awaits this task, and clients wait for it
                log.exception("following the session list failed; trying again")
            self._run = ""
            await asyncio.sleep(bounds.RETRY_SECONDS)

    def _stop_if_unused(self) -> None:
        if not self._watchers and self._following is not None:
            self._following.cancel()
            self._following = None
            self._run, self._rows = "", {}
            self._clear_changes()

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in the reader's thread: changes become text there, once for all clients."""
        journal = journal_at(self._reader.location)
        try:
            with self._activity.listen() as activity:
                reader = LocalReader(journal)
                changed = reader.changes(bounds.SNAPSHOT_SESSIONS, activity, said=True)
                async with aclosing(changed) as changes:
                    async for news in changes:
                        # In a thread: one may have a long question.
                        made = await Threads(1).run(_feed_rows, news)
                        rows = {it.row.session_id: it for it in made}
                        loop.call_soon_threadsafe(self._publish, rows, news)
        finally:
            await journal.aclose()

    def _publish(self, rows: dict[str, FeedRow], news: News) -> None:
        """Begin a run, or change the list and add the events of these changes to those of the
        run."""
        if news.is_all:
            self._run, self._number, self._rows = secrets.token_hex(6), 0, rows
            self._is_cut = len(rows) >= bounds.SNAPSHOT_SESSIONS
            self._clear_changes()
            self._wake()
            return
        rows = {id_: it for id_, it in rows.items() if self._rows.get(id_) != it}
        self._rows |= rows
        archived = [id_ for id_, it in rows.items() if it.row.archived and not it.is_live]
        for session_id in (*archived, *news.gone):
            self._rows.pop(session_id, None)

        changes: list[tuple[str, str, FeedRow | None]] = [
            (id_, _change_data(it.json), it) for id_, it in rows.items()
        ]
        changes += [(id_, _removal_data(id_), None) for id_ in news.gone]
        for session_id, data, after in changes:
            self._number += 1
            event = _event("change", f"{self._run}.{self._number}", data)
            self._changes.append(FeedChange(session_id, event, after))
            self._changes_bytes += len(event)

        while len(self._changes) > bounds.KEPT_CHANGES or (
            self._changes_bytes > bounds.KEPT_CHANGES_BYTES and len(self._changes) > 1
        ):
            self._changes_bytes -= len(self._changes.popleft().event)
        if len(self._rows) > 2 * bounds.SNAPSHOT_SESSIONS:
            self._is_cut = True
            newest = sorted(self._rows.items(), key=lambda item: -item[1].row.updated_at)
            self._rows = {
                id_: it
                for place, (id_, it) in enumerate(newest)
                if place < bounds.SNAPSHOT_SESSIONS or it.is_live
            }
        self._wake()

    def _clear_changes(self) -> None:
        self._changes.clear()
        self._changes_bytes = 0

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _feed_rows(news: News) -> list[FeedRow]:
    return [*map(_feed_row, news.sessions)]


def _feed_row(session: ListedSession) -> FeedRow:
    row, told = session.row, session_json(session)
    seen = row.seen_by(row.tenant, as_guest=True)
    others = replace(session, row=seen, project="")
    for_others = told if seen is row and not session.project else session_json(others)
    return FeedRow(row, session.live is not None, told, for_others)


def _change_data(json: str) -> str:
    return f'{{"session":{json}}}'


def _removal_data(session_id: str) -> str:
    return f'{{"gone":{encode(session_id).decode()}}}'


async def _rows_of(journal: Journal, principal: Principal) -> list[FeedRow]:
    """Return the newest sessions that this client may see."""
    is_one = principal.session_id is not None
    wanted = ListFilter(archived="include" if is_one else "exclude", include_unprompted=is_one)
    reader = reader_of(journal, principal)
    page = await reader.page(Wanted(wanted), None, bounds.SNAPSHOT_SESSIONS)
    return [_feed_row(session) for session in page.sessions if principal.scopes_in(session.row)]


def _event(name: str, id_: str, data: str) -> bytes:
    """Return an event (HTML, 9.2.6, "Interpreting an event stream"); `data` is on one line."""
    return f"event: {name}\nid: {id_}\ndata: {data}\n\n".encode()
