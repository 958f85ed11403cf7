"""`session/list`: the journal's sessions and those that only the agent knows, in one list.

Source: spec v1, session list. Nobody loses a conversation by installing acphold: what the agent
lists of its own stands in the same list, each session once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from acphold.agents import Agent
from acphold.errors import AcpholdError, InvalidParamsError
from acphold.hub.marks import iso_time
from acphold.hub.options import array
from acphold.journal import Journal, ListFilter, ListKey, SessionRow
from acphold.journal import cursor as cursors
from acphold.schema import LIST_SESSIONS, SessionInfo, decode, encode
from acphold.schema.splice import splice

log = logging.getLogger(__name__)

PAGE_SIZE = 50

AGENT_DEADLINE = 3.0
"""Seconds the agent has to list its own sessions; afterwards the list goes without the rest."""

AGENT_SESSIONS = 5000
"""How many of the agent's own sessions are asked for at most."""

FILTERS = 8
"""For how many folders the agent's own sessions are kept at once."""


class _Place(Struct, frozen=True):
    """One line of the list, where it stands, and its JSON."""

    key: ListKey
    info: SessionInfo
    raw: bytes


class Listing:
    """Pages of the list for one agent.

    The agent's own sessions are fetched with every first page and kept for the pages after it.
    """

    def __init__(self, journal: Journal, agent: Agent) -> None:
        self._journal = journal
        self._agent = agent
        self._agents_own: dict[str | None, list[_Place]] = {}

    async def page(self, cwd: str | None, cursor: str | None, held: frozenset[str]) -> bytes:
        """One page, newest first: the result of `session/list`. Raises CursorError."""
        filter = ListFilter(agent=self._agent.key, cwd=cwd, held=held)
        after = None
        if cursor is not None:
            after = cursors.decode(cursor, filter, self._journal.cursor_secret)
        if after is None or cwd not in self._agents_own:
            await self._ask_agent(cwd)
        rows = await self._journal.page(filter, after, PAGE_SIZE + 1)
        places = [_place(row) for row in rows]
        places += [
            place
            for place in await self._strangers(cwd, held)
            if after is None or after < place.key
        ]
        places.sort(key=lambda place: (-place.key.updated_at, _backwards(place.key.session_id)))
        shown, more = places[:PAGE_SIZE], len(places) > PAGE_SIZE
        page = {"sessions": array([place.raw for place in shown])}
        if more:
            next_cursor = cursors.encode(shown[-1].key, filter, self._journal.cursor_secret)
            page["nextCursor"] = encode(next_cursor)
        return splice(b"{}", page)

    def agents_own(self, session_id: str) -> SessionInfo | None:
        """What the agent said of a session of its own when it was last asked."""
        for places in self._agents_own.values():
            for place in places:
                if place.info.session_id == session_id:
                    return place.info
        return None

    async def _strangers(self, cwd: str | None, held: frozenset[str]) -> list[_Place]:
        """The agent's own sessions that the journal does not know."""
        places = self._agents_own.get(cwd, [])
        ours = await self._journal.linked(
            self._agent.key, [place.info.session_id for place in places]
        )
        return [
            place
            for place in places
            if place.info.session_id not in ours | held and cwd in (None, place.info.cwd)
        ]

    async def _ask_agent(self, cwd: str | None) -> None:
        """Fetch what the agent lists; its failure never fails ours."""
        found: dict[str, _Place] = {}
        self._agents_own.pop(cwd, None)
        while len(self._agents_own) >= FILTERS:
            del self._agents_own[next(iter(self._agents_own))]
        self._agents_own[cwd] = []
        if not self._agent.alive or self._agent.capabilities.session_capabilities.list is None:
            return
        try:
            async with asyncio.timeout(AGENT_DEADLINE):
                await self._collect(cwd, found)
        except TimeoutError:
            log.warning("the agent did not list all its sessions within %s s", AGENT_DEADLINE)
        except AcpholdError as exc:
            log.warning("the agent could not list its sessions: %s", exc)
        self._agents_own[cwd] = list(found.values())

    async def _collect(self, cwd: str | None, found: dict[str, _Place]) -> None:
        params: dict[str, str] = {} if cwd is None else {"cwd": cwd}
        seen_cursors: set[str] = set()
        while len(found) < AGENT_SESSIONS:
            raw = await self._agent.ask(LIST_SESSIONS.name, msgspec.json.encode(params))
            page = decode(_AgentsPage, raw).value
            for line in page.sessions:
                with suppress(InvalidParamsError):  # one line that nobody can read
                    read = decode(SessionInfo, line)
                    info = read.value
                    key = ListKey(milliseconds(info.updated_at), info.session_id)
                    raw = encode(info) if read.flaws else bytes(line)
                    found[info.session_id] = _Place(key, info, raw)
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors:
                return
            seen_cursors.add(cursor)
            params = {**params, "cursor": cursor}


class _AgentsPage(Struct, rename="camel"):
    """A page of the agent's, its lines raw: fields newer than this release stay in them."""

    sessions: list[Raw] = []
    next_cursor: str | None = None


def _place(row: SessionRow) -> _Place:
    info = SessionInfo(
        session_id=row.session_id,
        cwd=row.cwd,
        additional_directories=row.additional_directories,
        title=row.title,
        updated_at=iso_time(row.updated_at),
        meta={"acphold/messageCount": row.message_count},
    )
    return _Place(row.key, info, encode(info))


def milliseconds(updated_at: str | None) -> int:
    """An ISO 8601 time as the journal counts; 0, the end of the list, when there is none."""
    try:
        return int(datetime.fromisoformat(updated_at or "").timestamp() * 1000)
    except ValueError:
        return 0


def _backwards(text: str) -> tuple[int, ...]:
    """A sort key that orders strings from high to low, as the journal orders equal times."""
    return (*(-ord(letter) for letter in text), 1)
