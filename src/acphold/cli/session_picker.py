"""The sessions of a journal in a list on the terminal, for a person to choose one of."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

from acphold.cli.command_line import UsageError
from acphold.cli.journals import entries, exists, opened, pages, rows_of, searched
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line, short_age
from acphold.history.times import now_ms
from acphold.hub.annotations import milliseconds
from acphold.hub.session_list import AGENT
from acphold.journal import Journal, ListFilter, SearchHit, SessionRow, Sought
from acphold.journal.location import resolved_folder
from acphold.screen.picker import ELSEWHERE, HERE, LIVE, SAID, WAITS, Line, Picked, Picker
from acphold.server.neighbours import Live, LiveSession, live_sessions

if TYPE_CHECKING:
    from acphold.client import RemoteAgent
    from acphold.schema import SessionInfo

HITS = 20
"""Places where words were said that are shown below the list."""

PREVIEWED = 200
"""Entries at the end of a session that are looked at for a preview."""


async def picked(journal: str | None, words: str = "", *, acts: bool = True) -> Picked | None:
    """What the person wants to go on with; None for nothing. With `acts` they may want more.

    Raises UsageError where there is no session yet.
    """
    if not exists(journal):
        raise UsageError(
            "there is no session yet: `acphold import` takes in what agents keep on disk, and "
            "`acphold chat AGENT` begins one"
        )
    async with opened(journal) as kept:
        return await Picker(_Sessions(kept, await live_sessions()), words=words, acts=acts).run()


async def chosen(journal: Journal, does: str, among: Collection[str] | None = None) -> str | None:
    """The id of the session that the person chooses, of all or of these; None for none.

    `does` says what becomes of it then.
    """
    source = _Sessions(journal, await live_sessions(), among)
    choice = await Picker(source, does=does, acts=False).run()
    return None if choice is None else choice.session_id


async def chosen_of(agent: RemoteAgent) -> SessionInfo | None:
    """The one of the agent's sessions that the person chooses to go on with; None for none."""
    source = _SessionsOfAgent(agent)
    choice = await Picker(source, acts=False).run()
    return None if choice is None else source.infos[choice.session_id]


class _Sessions:
    """The sessions of a journal, all or those `among` some, as the picker is shown them."""

    def __init__(self, journal: Journal, live: Live, among: Collection[str] | None = None) -> None:
        self._journal = journal
        self._live = live
        self._among = among
        self._here = resolved_folder(os.curdir)
        # Of a hundred thousand sessions most share folder and agent with many others.
        self._called = cache(lambda key: on_one_line(agent_name(key)))
        self._is_here = cache(lambda cwd: resolved_folder(cwd) == self._here)
        self._folder = cache(folder)
        self._now = now_ms()

    async def lines(self) -> AsyncIterator[Sequence[Line]]:
        some = self._among
        live = [it for it in self._live if some is None or it in some]
        yield [
            self._line(row, live=self._live[row.session_id][0])
            async for row in rows_of(self._journal, live)
        ]
        if some is not None:
            rest = rows_of(self._journal, (it for it in some if it not in self._live))
            rows = sorted([row async for row in rest], key=lambda row: -row.updated_at)
            yield [self._line(row) for row in rows]
            return
        here = ListFilter(cwd=self._here)
        for wanted, is_here in ((here, True), (ListFilter(), False)):
            async for rows in pages(self._journal, wanted):
                lines = (self._line(row) for row in rows if row.session_id not in self._live)
                yield [line for line in lines if is_here or line.group != HERE]

    def _line(self, row: SessionRow, live: LiveSession | None = None) -> Line:
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

    async def said(self, words: str) -> Sequence[Line]:
        found = await searched(self._journal, Sought(words, limit=HITS))
        seen: dict[str, SearchHit] = {}
        for hit in found:
            if self._among is None or hit.session_id in self._among:
                seen.setdefault(hit.session_id, hit)
        return [
            Line(
                hit.session_id,
                on_one_line(hit.title or "(no title)"),
                "",
                on_one_line(agent_name(hit.agent)),
                folder(hit.cwd),
                short_age(hit.at, now_ms()),
                SAID,
                on_one_line(hit.excerpt),
            )
            for hit in seen.values()
        ]

    async def end(self, session_id: str) -> Sequence[str]:
        from acphold.reports.transcript import turn_scenes
        from acphold.screen.layout import Plain, passage

        row = await self._journal.session(session_id)
        after = max(0, row.last_seq - PREVIEWED)
        told = io.StringIO()
        layout = Plain(told)
        for scene in turn_scenes([it async for it in entries(self._journal, session_id, after)]):
            layout.put(passage(scene))
        return told.getvalue().splitlines() or ["Nothing was said in this session."]


class _SessionsOfAgent:
    """The sessions that an agent lists, as the picker is shown them."""

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
