"""The sessions of a journal in a list on the terminal, for a person to choose one of."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from functools import partial

from acphold.cli.command_line import UsageError
from acphold.cli.journals import entries, exists, opened, pages, searched
from acphold.cli.list import Live, live_sessions
from acphold.cli.terminal_text import folder, on_one_line, short_age
from acphold.errors import UnknownSessionError
from acphold.history.times import now_ms
from acphold.journal import Journal, ListFilter, SearchHit, SessionRow, Sought
from acphold.known_agents import short_name
from acphold.screen.picker import ELSEWHERE, HERE, LIVE, SAID, WAITS, Line, Picked, Picker
from acphold.server.neighbours import LiveSession

HITS = 20
"""Places where words were said that are shown below the list."""

PREVIEWED = 200
"""Entries at the end of a session that are looked at for a preview."""


async def picked(journal: str | None, words: str = "", *, acts: bool = True) -> Picked | None:
    """What the person chooses; None for nothing. With `acts` they may want more than to go on.

    Raises UsageError where there is no session yet.
    """
    if not exists(journal):
        raise UsageError(
            "there is no session yet: `acphold import` takes in what agents keep on disk, and "
            "`acphold chat AGENT` begins one"
        )
    async with opened(journal) as kept:
        return await Picker(_Sessions(kept, await live_sessions()), words=words, acts=acts).run()


class _Sessions:
    """The sessions of a journal, as the picker is shown them."""

    def __init__(self, journal: Journal, live: Live) -> None:
        self._journal = journal
        self._live = live
        self._here = os.path.realpath(os.curdir)
        self._line = partial(_line, now=now_ms(), here=self._here)

    async def lines(self) -> AsyncIterator[Sequence[Line]]:
        live = [row async for row in self._rows_of(self._live)]
        yield [self._line(row, live=self._live[row.session_id][0]) for row in live]
        here = ListFilter(cwd=self._here)
        for wanted, is_here in ((here, True), (ListFilter(), False)):
            async for rows in pages(self._journal, wanted):
                lines = (self._line(row) for row in rows if row.session_id not in self._live)
                yield [line for line in lines if is_here or line.group != HERE]

    async def _rows_of(self, session_ids: Iterable[str]) -> AsyncIterator[SessionRow]:
        for session_id in session_ids:
            with suppress(UnknownSessionError):  # of another journal
                yield await self._journal.session(session_id)

    async def said(self, words: str) -> Sequence[Line]:
        found = await searched(self._journal, Sought(words, limit=HITS))
        seen: dict[str, SearchHit] = {}
        for hit in found:
            seen.setdefault(hit.session_id, hit)
        return [
            Line(
                hit.session_id,
                on_one_line(hit.title or "(no title)"),
                "",
                on_one_line(short_name(hit.agent)),
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


def _line(row: SessionRow, *, now: int, here: str, live: LiveSession | None = None) -> Line:
    if live is not None:
        group = WAITS if live.waiting else LIVE
    else:
        group = HERE if os.path.realpath(row.cwd) == here else ELSEWHERE
    return Line(
        row.session_id,
        on_one_line(row.title or "(no title)"),
        "" if live is None else live.state,
        on_one_line(short_name(row.agent)),
        folder(row.cwd),
        short_age(row.updated_at, now),
        group,
    )
