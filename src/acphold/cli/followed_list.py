"""`acphold list --follow`: changes of the list, whichever process makes them, here or far away."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, TextIO

import msgspec

from acphold.cli.journals import opened
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line, visible_json
from acphold.history.timeline import turn_end
from acphold.presentation.json_facts import session_json
from acphold.server.followed_list import Changed, Snapshot, followed

if TYPE_CHECKING:
    from acphold.cli.servers import FarServer
    from acphold.client.server_feed import FarNews
    from acphold.client.server_pages import FarSession
    from acphold.journal import SessionRow

NEWEST = 200
"""Sessions shown at the beginning, unless `--limit` says otherwise."""

ID_WIDTH = 8
"""Characters of an id: enough for a person to tell sessions apart."""

LOOK_SECONDS = 1.0
"""How often we check that somebody still reads this."""

Fits = Callable[["SessionRow", Container[str]], bool]
"""Tells if a session is one of those asked for; gets the ids of live sessions, too."""


class Listed(NamedTuple):
    """A session of the list: its current state, or the outcome of its last turn, in a word; and its
    JSON."""

    row: SessionRow
    is_live: bool
    state: str
    json: str


class News(NamedTuple):
    """New and changed sessions, and the ids of those that are gone; with `is_all`, the list from
    the beginning, as far as it is shown."""

    sessions: Sequence[Listed]
    gone: Sequence[str] = ()
    is_all: bool = False


Tell = Callable[[News], None]


async def follow(
    found: AsyncGenerator[News, None],
    tell: Tell,
    show: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Report the sessions and their changes, until nobody reads or the person ends it.

    `show` prints the list first; changes that happen meanwhile are reported after it.
    """
    from acphold.screen.plain import is_unread

    async def telling() -> None:
        is_shown = show is None
        async with aclosing(found):
            async for news in found:
                tell(news)
                if show is not None and not is_shown:
                    await show()
                    is_shown = True
                sys.stdout.flush()

    task = asyncio.create_task(telling(), name="follow")
    try:
        while not task.done() and not is_unread(sys.stdout):
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


# -- where it comes from ----------------------------------------------------------------------


async def news_here(location: str | None, limit: int | None) -> AsyncGenerator[News, None]:
    """Yield news of a journal on this machine."""
    async with opened(location) as journal, aclosing(followed(journal, limit or NEWEST)) as found:
        async for each in found:
            yield news_of(each)


def news_of(found: Snapshot | Changed) -> News:
    """Turn findings in the journal into news."""
    sessions = [
        Listed(
            row,
            row.session_id in found.live,
            _state(row, found),
            session_json(row, found.live, found.outcomes),
        )
        for row in found.rows
    ]
    return News(
        sessions, () if isinstance(found, Snapshot) else found.gone, isinstance(found, Snapshot)
    )


def _state(row: SessionRow, news: Snapshot | Changed) -> str:
    if (live := news.live.get(row.session_id)) is not None and live[0].state != "live":
        return live[0].state
    if row.session_id not in news.outcomes:
        return "unread" if row.is_unread else "new"
    end = news.outcomes[row.session_id]
    if end is not None:
        return turn_end(end, 0).outcome
    return "interrupted" if live is None else "running"


async def news_there(server: FarServer, limit: int | None) -> AsyncGenerator[News, None]:
    """Yield news of a server far away; changes while it is offline come when it is back."""
    from acphold.cli.remote import Away, pages_of  # late: it brings HTTP
    from acphold.client.server_feed import followed_list

    async with (
        await pages_of(server) as pages,
        aclosing(followed_list(pages, Away(pages))) as found,
    ):
        async for each in found:
            yield _news_from(each, limit)


def _news_from(news: FarNews, limit: int | None) -> News:
    some = news.sessions[:limit] if news.is_all else news.sessions
    live = [it for it in news.sessions[len(some) :] if it.live is not None]
    told = [
        Listed(it.row, it.live is not None, _state_there(it), visible_json(it.line))
        for it in (*some, *live)
    ]
    return News(told, news.gone, news.is_all)


def _state_there(session: FarSession) -> str:
    if session.live is not None and session.live.state != "live":
        return session.live.state
    if session.outcome is not None:
        return session.outcome
    return "unread" if session.row.is_unread else "new"


# -- how it is reported -----------------------------------------------------------------------


class AsJson:
    """A line per event: the first has all `sessions`, each other one a `session` that
    is new or has changed, or the id of one that is `gone`. If a server cannot say what was missed,
    all `sessions` are reported again."""

    def __init__(self, fits: Fits, out: TextIO) -> None:
        self._fits = fits
        self._out = out
        self._shown: set[str] = set()

    def __call__(self, news: News) -> None:
        rows = {it.row.session_id: it.json for it in news.sessions if _fits(self._fits, it)}
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

    def __init__(self, fits: Fits, out: TextIO) -> None:
        self._fits = fits
        self._out = out
        self._known: dict[str, tuple[str, str]] = {}
        self._has_begun = False

    def __call__(self, news: News) -> None:
        for it in news.sessions:
            row = it.row
            if not _fits(self._fits, it):
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


def _fits(fits: Fits, session: Listed) -> bool:
    return fits(session.row, (session.row.session_id,) if session.is_live else ())
