"""The journal of a remote `acphold serve`, read: the list, entries, and search hits.

Source: `web.journal_pages`. Everything is requested with plain GETs, so no client attaches, and no
agent is started.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from acphold.errors import (
    AmbiguousIdError,
    ConnectionLostError,
    RemoteError,
    RemoteRefusalError,
    RewrittenError,
    SilentPeerError,
    UnknownSessionError,
)
from acphold.history import Entry
from acphold.history.entries import PROMPT
from acphold.hub.annotations import milliseconds
from acphold.journal import Origin, SearchHit, SessionRow
from acphold.journal.journal import Speaker
from acphold.rpc import MAX_MESSAGE
from acphold.schema.splice import members
from acphold.server.neighbours import LiveSession
from acphold.transports.http_client import beginning, http_client
from acphold.transports.known_servers import ca_for, token_for
from acphold.transports.obstacles import said_in, why
from acphold.transports.route import Route
from acphold.transports.urls import origin_of

T = TypeVar("T")

AT_ONCE: Final = 500
"""Sessions or entries of one page."""

READINGS: Final = 5
"""Times a session is read from its end again, because a turn was settled meanwhile."""


class _Live(Struct, rename="camel"):
    state: str
    clients: int = 0


class _Row(Struct, rename="camel"):
    session_id: str
    agent: str
    cwd: str
    title: str | None
    created_at: str
    updated_at: str
    message_count: int = 0
    unread: bool = False
    archived: bool = False
    outcome: str | None = None
    origins: tuple[Origin, ...] = ()
    live: _Live | None = None


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


class _Change(Struct):
    session: Raw = Raw()
    gone: str | None = None


class _Entry(Struct):
    seq: int
    kind: str
    at: str
    update: Raw = Raw(b"null")


class _Rows(Struct, rename="camel"):
    sessions: list[Raw]
    next_cursor: str | None = None


class _Entries(Struct):
    entries: list[Raw]
    before: int | None = None


class _Hits(Struct, rename="camel"):
    hits: list[Raw]
    next_cursor: str | None = None


class _Inbox(Struct):
    questions: list[Raw]


class _Decided(Struct):
    decisions: list[Raw]


class FarSession(NamedTuple):
    """A session there; `outcome` is that of its last turn, None if it has not ended. `line` is its
    JSON as it came, here and below."""

    row: SessionRow
    live: LiveSession | None
    outcome: str | None
    line: str


class FarHit(NamedTuple):
    """A search hit there."""

    hit: SearchHit
    line: str


class ServerPages:
    """See the module; an async context manager. Raises ConnectionLostError, RemoteRefusalError, and
    RemoteError for requests that the server does not answer."""

    def __init__(
        self, url: str, token: str | None, *, seconds: float, ca: str | None = None
    ) -> None:
        self.origin = origin_of(url)
        self._route = Route(
            url,
            token=token or token_for(url),
            seconds=seconds,
            limit=MAX_MESSAGE,
            trusted=ca or ca_for(url),
        )

    async def __aenter__(self) -> ServerPages:
        self._http = http_client(self._route)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def sessions(self, at_once: int = AT_ONCE, **wanted: str) -> AsyncIterator[FarSession]:
        """Yield the sessions that are wanted, newest first, `at_once` of them on a page."""
        asked = {name: value for name, value in wanted.items() if value}
        while True:
            page = await self._get("/sessions", {**asked, "limit": str(at_once)}, _Rows)
            for raw in page.sessions:
                yield self._session(raw)
            if page.next_cursor is None:
                return
            asked["cursor"] = page.next_cursor

    async def has_list(self) -> bool:
        """Return True if sessions are listed there, as by `acphold serve`; other servers do not
        list them."""
        try:
            await anext(self.sessions(1), None)
        except (ConnectionLostError, RemoteError, RemoteRefusalError):
            return False
        return True

    async def session(self, given: str, at_once: int = AT_ONCE) -> FarSession:
        """Return the session with this id, or whose id begins so; `-` is the newest.

        Raises UnknownSessionError, AmbiguousIdError.
        """
        found: list[FarSession] = []
        async for session in self.sessions(at_once, archived="include", unprompted="true"):
            if session.row.session_id == given or given in ("-", "@last"):
                return session
            if session.row.session_id.startswith(given):
                found.append(session)
        if not found:
            raise UnknownSessionError(given)
        if len(found) > 1:
            raise AmbiguousIdError(given, tuple(it.row.session_id for it in found))
        return found[0]

    async def entries(self, session_id: str, at_most: int | None = None) -> list[Entry]:
        """Return the entries of a session, or so many at its end, in order."""
        for _ in range(READINGS):
            found: list[Entry] = []
            with suppress(RewrittenError):
                async for entry in self.back(session_id, min(at_most or AT_ONCE, AT_ONCE)):
                    found.append(entry)
                    if len(found) == at_most:
                        break
                return found[::-1]
        raise ConnectionLostError(f"session {session_id!r} is written faster than it can be read")

    async def back(self, session_id: str, at_once: int = AT_ONCE) -> AsyncIterator[Entry]:
        """Yield the entries of a session, from its end to its beginning; RewrittenError if a turn
        is settled meanwhile."""
        before: int | None = None
        while True:
            asked = {"limit": str(at_once)} | ({} if before is None else {"before": str(before)})
            path = f"/sessions/{quote(session_id, safe='')}/entries"
            page = await self._get(path, asked, _Entries)
            for raw in page.entries:
                yield _entry(self._read(raw, _Entry))
            if page.before is None:
                return
            before = page.before

    async def search(self, words: str, limit: int, wanted: Mapping[str, str]) -> list[FarHit]:
        """Return search hits for the words, at most `limit`."""
        asked = {name: value for name, value in wanted.items() if value} | {"q": words}
        found: list[FarHit] = []
        while len(found) < limit:
            asked["limit"] = str(min(limit - len(found), AT_ONCE))
            page = await self._get("/search", asked, _Hits)
            found += [FarHit(_hit(self._read(it, _Hit)), _line(it)) for it in page.hits]
            if page.next_cursor is None:
                break
            asked["cursor"] = page.next_cursor
        return found

    async def inbox(self) -> list[str]:
        """Return the open questions there, as lines of JSON: see `acphold inbox --json`."""
        return [_line(raw) for raw in (await self._get("/inbox", {}, _Inbox)).questions]

    async def decisions(self, limit: int) -> list[str]:
        """Return the last decisions there, newest first, as lines of JSON."""
        asked = {"limit": str(min(limit, AT_ONCE))}
        return [
            _line(raw) for raw in (await self._get("/inbox/history", asked, _Decided)).decisions
        ]

    # -- as it changes ------------------------------------------------------------------------

    @asynccontextmanager
    async def events(
        self, path: str, after: str, silence: float, largest: int
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Yield the events of a stream behind the one with this id, for the block; each has at most
        `largest` bytes. They end, or the connection is lost, also after `silence` in seconds."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        timeout = httpx2.Timeout(self._route.seconds, read=silence, pool=None)
        url = f"{self.origin}{path}"
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    head, said = answer.headers, await beginning(answer)
                    raise self._route.refused(answer.status_code, head, said, url)
                yield aiter(httpx2.EventSource(answer, max_event_size=largest))
        except httpx2.TimeoutException:
            raise SilentPeerError(f"{self.origin} does not answer") from None
        except httpx2.HTTPError as exc:
            raise ConnectionLostError(f"{self.origin} cannot be reached: {why(exc)}") from None

    def listed(self, text: str) -> list[FarSession]:
        """Return the sessions of a snapshot of the list."""
        return [self._session(raw) for raw in self._read(Raw(text.encode()), _Rows).sessions]

    def changed(self, text: str) -> FarSession | str | None:
        """Return the subject of a change of the list: a session as it is now, or the id of a
        removed one."""
        change = self._read(Raw(text.encode()), _Change)
        return self._session(change.session) if bytes(change.session) else change.gone

    def _session(self, raw: Raw) -> FarSession:
        row = self._read(raw, _Row)
        return FarSession(_row(row), _live(row), row.outcome, _line(raw))

    async def _get(self, path: str, asked: dict[str, str], kind: type[T]) -> T:
        try:
            answer = await self._http.get(f"{self.origin}{path}", params=asked)
        except httpx2.TimeoutException:
            raise SilentPeerError(f"{self.origin} does not answer") from None
        except httpx2.HTTPError as exc:
            raise ConnectionLostError(f"{self.origin} cannot be reached: {why(exc)}") from None
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
        return self._read(Raw(answer.content), kind)

    def _read(self, raw: Raw, kind: type[T]) -> T:
        try:
            return Decoder(kind).decode(raw)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            told = f"{self.origin} answers what cannot be read ({exc}): is it an `acphold serve`?"
            raise ConnectionLostError(told) from None


def _line(raw: Raw) -> str:
    """Return it on one line: in JSON a line break only stands between two tokens."""
    return bytes(raw).decode().replace("\n", " ").replace("\r", " ")


def _row(row: _Row) -> SessionRow:
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
        unread=b"" if row.unread else None,
    )


def _live(row: _Row) -> LiveSession | None:
    if row.live is None:
        return None
    return LiveSession(
        row.session_id,
        row.live.clients,
        running=row.live.state == "running",
        waiting=row.live.state == "waiting",
    )


def _entry(entry: _Entry) -> Entry:
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
