"""Lets a person choose a session from a list on the terminal: sessions of a journal here, of an
`acphold serve` far away, or those that an agent lists."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from acphold.cli.command_line import UsageError
from acphold.cli.journals import entries, opened_if_any, pages, rows_of, searched
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line, short_age
from acphold.history import Entry
from acphold.history.times import now_ms
from acphold.hub.annotations import milliseconds
from acphold.hub.session_list import AGENT
from acphold.journal import Journal, ListFilter, SearchHit, SessionRow, Sought
from acphold.journal.hits import terms
from acphold.journal.location import resolved_folder
from acphold.screen.picker import ELSEWHERE, HERE, LIVE, SAID, WAITS, Line, Picked, Picker
from acphold.server.neighbours import Live, LiveSession, live_sessions

if TYPE_CHECKING:
    from acphold.client import RemoteAgent
    from acphold.client.server_pages import FarSession, ServerPages
    from acphold.schema import SessionInfo

HITS = 20
"""Most places with the words that are shown below the list."""

PREVIEWED = 200
"""Entries at the end of a session that are read for a preview."""


async def picked(journal: str | None, words: str = "", *, acts: bool = True) -> Picked | None:
    """Return the person's choice, None for nothing. With `acts` they may do more than continue.

    Raises UsageError if there is no session yet.
    """
    async with opened_if_any(journal) as kept:
        if kept is None:
            raise UsageError(
                "there is no session yet: `acphold import` takes in what agents keep on disk, and "
                "`acphold chat AGENT` begins one"
            )
        return await Picker(_Sessions(kept, await live_sessions()), words=words, acts=acts).run()


async def chosen(journal: Journal, does: str, among: Collection[str] | None = None) -> str | None:
    """Return the id of the chosen session, of all or of these; None for none.

    `does` says what will be done with it.
    """
    source = _Sessions(journal, await live_sessions(), among)
    choice = await Picker(source, does=does, acts=False).run()
    return None if choice is None else choice.session_id


async def chosen_of(agent: RemoteAgent, words: str = "") -> SessionInfo | None:
    """Return the session of the agent that the person chooses to continue; None for none."""
    source = _SessionsOfAgent(agent)
    choice = await Picker(source, words=words, acts=False).run()
    return None if choice is None else source.infos[choice.session_id]


async def chosen_there(
    server: ServerPages, does: str, words: str = "", among: Collection[str] | None = None
) -> FarSession | None:
    """Return the session of a server that the person chooses, of all or of these; None for none."""
    source = _SessionsOfServer(server, among)
    choice = await Picker(source, words=words, does=does, acts=False).run()
    return None if choice is None else source.sessions[choice.session_id]


class _Lines:
    """Makes the lines of the list."""

    def __init__(self) -> None:
        self.here = resolved_folder(os.curdir)
        # Among a hundred thousand sessions, most share folder and agent with many others.
        self._called = cache(lambda key: on_one_line(agent_name(key)))
        self._is_here = cache(lambda cwd: resolved_folder(cwd) == self.here)
        self._folder = cache(folder)
        self._now = now_ms()

    def of(self, row: SessionRow, live: LiveSession | None = None) -> Line:
        """Return the line of a session."""
        if live is not None:
            group = WAITS if live.waiting else LIVE
        else:
            group = HERE if self._is_here(row.cwd) else ELSEWHERE
        return Line(
            row.session_id,
            on_one_line(row.title or "(no title)"),
            "" if live is None else live.state,
            self._called(row.agent),
            self._folder(row.cwd),
            short_age(row.updated_at, self._now),
            group,
        )

    def said(self, hits: Iterable[SearchHit]) -> Sequence[Line]:
        """Return the lines of sessions with hits, each with its first hit."""
        seen: dict[str, SearchHit] = {}
        for hit in hits:
            seen.setdefault(hit.session_id, hit)
        return [
            Line(
                hit.session_id,
                on_one_line(hit.title or "(no title)"),
                "",
                self._called(hit.agent),
                self._folder(hit.cwd),
                short_age(hit.at, now_ms()),
                SAID,
                on_one_line(hit.excerpt),
            )
            for hit in seen.values()
        ]


def _told(found: Sequence[Entry]) -> Sequence[str]:
    """Return the lines of a transcript of these entries."""
    from acphold.reports.transcript import turn_scenes
    from acphold.screen.layout import Plain, passage

    told = io.StringIO()
    layout = Plain(told)
    for scene in turn_scenes(found):
        layout.put(passage(scene))
    return told.getvalue().splitlines() or ["Nothing was said in this session."]


class _Sessions:
    """The sessions of a journal, all or those in `among`, as the picker shows them."""

    def __init__(self, journal: Journal, live: Live, among: Collection[str] | None = None) -> None:
        self._journal = journal
        self._live = live
        self._among = among
        self._lines = _Lines()

    async def lines(self) -> AsyncIterator[Sequence[Line]]:
        line, some = self._lines.of, self._among
        live = [it for it in self._live if some is None or it in some]
        yield [
            line(row, self._live[row.session_id][0]) async for row in rows_of(self._journal, live)
        ]
        if some is not None:
            rest = rows_of(self._journal, (it for it in some if it not in self._live))
            rows = sorted([row async for row in rest], key=lambda row: -row.updated_at)
            yield [line(row) for row in rows]
            return
        here = ListFilter(cwd=self._lines.here)
        for wanted, is_here in ((here, True), (ListFilter(), False)):
            async for rows in pages(self._journal, wanted):
                lines = (line(row) for row in rows if row.session_id not in self._live)
                yield [it for it in lines if is_here or it.group != HERE]

    async def said(self, words: str) -> Sequence[Line]:
        found = await searched(self._journal, Sought(words, limit=HITS))
        some = self._among
        return self._lines.said(it for it in found if some is None or it.session_id in some)

    async def end(self, session_id: str) -> Sequence[str]:
        row = await self._journal.session(session_id)
        after = max(0, row.last_seq - PREVIEWED)
        return _told([it async for it in entries(self._journal, session_id, after)])


class _SessionsOfServer:
    """The sessions of an `acphold serve`, all or those in `among`, as the picker shows them."""

    def __init__(self, server: ServerPages, among: Collection[str] | None) -> None:
        self._server = server
        self._among = among
        self._lines = _Lines()
        self.sessions: dict[str, FarSession] = {}

    async def lines(self) -> AsyncIterator[Sequence[Line]]:
        async for each in self._server.sessions():
            if self._is_wanted(each.row.session_id):
                self.sessions[each.row.session_id] = each
                yield [self._lines.of(each.row, each.live)]

    async def said(self, words: str) -> Sequence[Line]:
        if not terms(words):
            return ()
        found = [it.hit for it in await self._server.search(words, HITS, {})]
        for hit in found:
            if hit.session_id not in self.sessions and self._is_wanted(hit.session_id):
                self.sessions[hit.session_id] = await self._server.session(hit.session_id)
        return self._lines.said(it for it in found if it.session_id in self.sessions)

    async def end(self, session_id: str) -> Sequence[str]:
        return _told(await self._server.entries(session_id, PREVIEWED))

    def _is_wanted(self, session_id: str) -> bool:
        return self._among is None or session_id in self._among


class _SessionsOfAgent:
    """The sessions that an agent lists, as the picker shows them."""

    def __init__(self, agent: RemoteAgent) -> None:
        self._agent = agent
        self.infos: dict[str, SessionInfo] = {}

    async def lines(self) -> AsyncIterator[Sequence[Line]]:
        here, now = resolved_folder(os.curdir), now_ms()
        async for info in self._agent.sessions():
            self.infos[info.session_id] = info
            yield [
                Line(
                    info.session_id,
                    on_one_line(info.title or "(no title)"),
                    "",
                    on_one_line(agent_name(str((info.meta or {}).get(AGENT, self._agent.name)))),
                    folder(info.cwd),
                    short_age(milliseconds(info.updated_at), now) if info.updated_at else "",
                    HERE if resolved_folder(info.cwd) == here else ELSEWHERE,
                )
            ]

    async def said(self, words: str) -> Sequence[Line]:
        return ()

    async def end(self, session_id: str) -> Sequence[str]:
        return ["Only the agent knows what was said in this session."]
