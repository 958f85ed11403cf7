"""`acphold list --follow`: changes of the list, whichever process makes them, here or far away."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TextIO

import msgspec

from acphold.cli.readers import described
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line
from acphold.presentation.json_facts import session_json
from acphold.reading.session_reader import ListedSession, News, SessionReader, Wanted
from acphold.tasks import beside

NEWEST = 200
"""Sessions shown at the beginning, unless `--limit` says otherwise."""

ID_WIDTH = 8
"""Characters of an id: enough for a person to tell sessions apart."""

LOOK_SECONDS = 1.0
"""Seconds between two checks that somebody still reads this."""


async def follow(
    reader: SessionReader,
    tell: Callable[[News], None],
    limit: int | None = None,
    show: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Report the sessions and their changes, until nobody reads or the person ends it.

    `show` prints the list first; changes that happen meanwhile are reported after it.
    """
    from acphold.screen.plain import is_unread

    async def telling() -> None:
        is_shown = show is None
        async with aclosing(reader.changes(limit or NEWEST)) as found:
            async for news in found:
                tell(news)
                if show is not None and not is_shown:
                    await show()
                    is_shown = True
                sys.stdout.flush()

    async with beside(telling(), "follow") as task:
        while not task.done() and not is_unread(sys.stdout):
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
    if not task.cancelled():
        task.result()


# -- how it is reported -----------------------------------------------------------------------


class AsJson:
    """A line per event: the first has all `sessions`, each other one a `session` that
    is new or has changed, or the id of one that is `gone`. If a server cannot say what was missed,
    all `sessions` are reported again."""

    def __init__(self, wanted: Wanted, out: TextIO) -> None:
        self._wanted = wanted
        self._out = out
        self._shown: set[str] = set()

    def __call__(self, news: News) -> None:
        rows = {
            it.row.session_id: session_json(it) for it in news.sessions if _fits(self._wanted, it)
        }
        if news.is_all:
            self._shown = {*rows}
            self._out.write(f'{{"sessions":[{",".join(rows.values())}]}}\n')
            return
        self._shown |= rows.keys()
        self._out.writelines(f'{{"session":{row}}}\n' for row in rows.values())
        others = {it.row.session_id for it in news.sessions} - rows.keys()
        for session_id in self._shown & {*news.gone, *others}:
            self._out.write(f'{{"gone":{msgspec.json.encode(session_id).decode()}}}\n')
            self._shown.discard(session_id)


class AsWords:
    """For people, below the list itself: the time, a session's new state, and its agent."""

    def __init__(self, wanted: Wanted, out: TextIO) -> None:
        self._wanted = wanted
        self._out = out
        self._known: dict[str, tuple[str, str]] = {}
        self._has_begun = False

    def __call__(self, news: News) -> None:
        for it in news.sessions:
            row = it.row
            if not _fits(self._wanted, it):
                self._over(row.session_id, "archived" if row.archived else "left")
                continue
            found = it.state, on_one_line(row.title or "(no title)")
            if self._known.get(row.session_id) != found:
                self._known[row.session_id] = found
                if self._has_begun:
                    where = f"{on_one_line(agent_name(row.agent))} in {folder(row.cwd)}"
                    self._line(row.session_id, *found, where)
        for session_id in news.gone:
            self._over(session_id, "deleted")
        self._has_begun = True

    def _over(self, session_id: str, how: str) -> None:
        if (known := self._known.pop(session_id, None)) is not None:
            self._line(session_id, how, known[1])

    def _line(self, session_id: str, state: str, title: str, where: str = "") -> None:
        short = on_one_line(session_id)[:ID_WIDTH]
        line = f"{time.strftime('%H:%M:%S')}  {state:<11}  {short:<{ID_WIDTH}}  {title}  {where}"
        self._out.write(f"{line.rstrip()}\n")


def _fits(wanted: Wanted, session: ListedSession) -> bool:
    return wanted.fits(session.row, is_live=session.live is not None, said=described)
