"""`session/list`: the journal's sessions and those that only the agent knows, in one list.

Source: spec v1, session list. Nobody loses a conversation by installing holdfast: what the agent
lists of its own stands in the same list, each session once.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import msgspec
from msgspec import Struct

from holdfast.agents import Agent
from holdfast.errors import HoldfastError
from holdfast.hub.marks import iso_time
from holdfast.journal import Journal, ListFilter, ListKey, SessionRow
from holdfast.journal import cursor as cursors
from holdfast.schema import LIST_SESSIONS, ListSessionsResponse, SessionInfo, decode

log = logging.getLogger(__name__)

PAGE_SIZE = 50

AGENT_DEADLINE = 3.0
"""Seconds the agent has to list its own sessions; afterwards the list goes without the rest."""

AGENT_SESSIONS = 5000
"""How many of the agent's own sessions are asked for at most."""


class _Place(Struct, frozen=True):
    """One line of the list and where it stands."""

    key: ListKey
    info: SessionInfo


class Listing:
    """Pages of the list for one agent.

    The agent's own sessions are fetched with every first page and kept for the pages after it.
    """

    def __init__(self, journal: Journal, agent: Agent) -> None:
        self._journal = journal
        self._agent = agent
        self._agents_own: list[_Place] = []

    async def page(
        self, cwd: str | None, cursor: str | None, held: frozenset[str]
    ) -> ListSessionsResponse:
        """One page, newest first; raises CursorError."""
        filter = ListFilter(agent=self._agent.key, cwd=cwd, held=held)
        after = None
        if cursor is not None:
            after = cursors.decode(cursor, filter, self._journal.cursor_secret)
        else:
            self._agents_own = await self._ask_agent(cwd)
        rows = await self._journal.page(filter, after, PAGE_SIZE + 1)
        places = [_Place(row.key, _info(row)) for row in rows]
        places += [
            place
            for place in self._agents_own
            if (after is None or after < place.key) and (cwd is None or place.info.cwd == cwd)
        ]
        places.sort(key=lambda place: (-place.key.updated_at, _backwards(place.key.session_id)))
        shown, more = places[:PAGE_SIZE], len(places) > PAGE_SIZE
        next_cursor = (
            cursors.encode(shown[-1].key, filter, self._journal.cursor_secret) if more else None
        )
        return ListSessionsResponse(
            sessions=tuple(place.info for place in shown), next_cursor=next_cursor
        )

    def title_of(self, session_id: str) -> str | None:
        """The title the agent gave a session of its own, if it was listed."""
        for place in self._agents_own:
            if place.info.session_id == session_id:
                return place.info.title
        return None

    async def _ask_agent(self, cwd: str | None) -> list[_Place]:
        """What the agent lists and the journal does not know; its failure never fails ours."""
        if not self._agent.alive or self._agent.capabilities.session_capabilities.list is None:
            return []
        found: dict[str, SessionInfo] = {}
        try:
            async with asyncio.timeout(AGENT_DEADLINE):
                await self._collect(cwd, found)
        except TimeoutError:
            log.warning("the agent did not list all its sessions within %s s", AGENT_DEADLINE)
        except HoldfastError as exc:
            log.warning("the agent could not list its sessions: %s", exc)
        ours = await self._journal.linked(self._agent.key, found)
        return [
            _Place(ListKey(_milliseconds(info.updated_at), info.session_id), info)
            for info in found.values()
            if info.session_id not in ours
        ]

    async def _collect(self, cwd: str | None, found: dict[str, SessionInfo]) -> None:
        params: dict[str, str] = {} if cwd is None else {"cwd": cwd}
        seen_cursors: set[str] = set()
        while len(found) < AGENT_SESSIONS:
            raw = await self._agent.ask(LIST_SESSIONS.name, msgspec.json.encode(params))
            page = decode(ListSessionsResponse, raw).value
            found.update((info.session_id, info) for info in page.sessions)
            cursor = page.next_cursor
            if cursor is None or cursor in seen_cursors:
                return
            seen_cursors.add(cursor)
            params = {**params, "cursor": cursor}


def _info(row: SessionRow) -> SessionInfo:
    return SessionInfo(
        session_id=row.session_id,
        cwd=row.cwd,
        additional_directories=row.additional_directories,
        title=row.title,
        updated_at=iso_time(row.updated_at),
        meta={"holdfast/messageCount": row.message_count},
    )


def _milliseconds(updated_at: str | None) -> int:
    """An ISO 8601 time as the journal counts; 0, the end of the list, when there is none."""
    try:
        return int(datetime.fromisoformat(updated_at or "").timestamp() * 1000)
    except ValueError:
        return 0


def _backwards(text: str) -> tuple[int, ...]:
    """A sort key that orders strings from high to low, as the journal orders equal times."""
    return (*(-ord(letter) for letter in text), 1)
