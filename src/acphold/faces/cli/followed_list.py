"""The list of sessions as it changes: a line for each change, in words or as JSON."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from os.path import basename
from shutil import get_terminal_size
from typing import Final, TextIO

import msgspec

from acp_wire.tasks import beside
from acphold.errors import ConnectionLostError
from acphold.faces.cli import bounds
from acphold.faces.cli.journals import text_to_match
from acphold.faces.cli.list_table import LEAST_TITLE
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import cell_width, cut, folder, on_one_line, titled
from acphold.journal.rows import ListFilter
from acphold.live.reading.json_facts import session_json
from acphold.live.reading.listed_sessions import ListedSession, News, Wanted
from acphold.live.reading.local_reader import LocalReader, session_pages

ID_WIDTH: Final = 8
"""Characters of an id: enough for a person to tell sessions apart."""


async def follow_list(
    reader: LocalReader,
    report: Callable[[News], None],
    limit: int | None = None,
    show: Callable[[], Awaitable[None]] | None = None,
    *,
    said: bool = False,
) -> None:
    """Report the sessions and their changes, until nobody reads or the person ends it.

    `show` prints the list first; changes that happen meanwhile are reported after it. With `said`,
    they have the last words.
    """
    from acphold.faces.screen.plain import is_unread

    async def report_changes() -> None:
        pending, known = show, set[str]()
        everything = Wanted(ListFilter(archived="include", include_unprompted=True), said=said)
        found_by = reader.changes(limit or bounds.FOLLOWED_SESSIONS, said=said)
        async with aclosing(found_by) as changes:
            async for news in changes:
                report(news)
                listed = {it.row.session_id for it in news.sessions}
                known = (known | listed) - {*news.gone}
                # A list after a restart lacks sessions that are gone, archived, or only older.
                if news.is_all and (missing := known - listed):
                    with suppress(ConnectionLostError):  # then the next list tells it
                        found: list[ListedSession] = []
                        async for page in session_pages(reader, everything):
                            found += [it for it in page if it.row.session_id in missing]
                            missing -= {it.row.session_id for it in page}
                            if not missing:
                                break
                        report(News(found, [*missing]))
                        known -= missing
                if pending is not None:
                    await pending()
                    pending = None
                sys.stdout.flush()

    async with beside(report_changes(), "follow") as task:
        while not task.done() and not is_unread(sys.stdout):
            await asyncio.wait({task}, timeout=bounds.READER_LOOK_SECONDS)
    if not task.cancelled():
        task.result()


class AsJson:
    """A line per event: the first has all `sessions`, each other one a `session` that is new or has
    changed, or the id of one that is `gone`. If a server no longer has the missed changes, a line
    has all `sessions` again."""

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
    """A line per event, below the list itself: the time, a session's new state, and its agent."""

    def __init__(self, wanted: Wanted, out: TextIO) -> None:
        self._wanted = wanted
        self._out = out
        self._known: dict[str, tuple[str, str]] = {}
        self._is_listed = False

    def __call__(self, news: News) -> None:
        for it in news.sessions:
            row = it.row
            if not _fits(self._wanted, it):
                self._over(row.session_id, "archived" if row.archived else "left")
                continue
            shown = it.state, titled(row.title)
            if self._known.get(row.session_id) != shown:
                self._known[row.session_id] = shown
                if self._is_listed:
                    path = basename(row.cwd) if self._out.isatty() else folder(row.cwd)
                    where = on_one_line(f"{agent_name(row.agent)} in {path}")
                    self._line(row.session_id, *shown, where)
        for session_id in news.gone:
            self._over(session_id, "deleted")
        self._is_listed = True

    def _over(self, session_id: str, how: str) -> None:
        if (known := self._known.pop(session_id, None)) is not None:
            self._line(session_id, how, known[1])

    def _line(self, session_id: str, state: str, title: str, where: str = "") -> None:
        short = on_one_line(session_id)[:ID_WIDTH]
        line = f"{time.strftime('%H:%M:%S')}  {state:<11}  {short:<{ID_WIDTH}}  "
        if self._out.isatty():
            room = get_terminal_size().columns - 1
            where = cut(where, room // 3)
            title = cut(title, max(room - len(line) - cell_width(where) - 2, LEAST_TITLE))
        self._out.write(f"{line}{title}  {where}".rstrip() + "\n")


def _fits(wanted: Wanted, session: ListedSession) -> bool:
    matched = f"{text_to_match(session.row)}\0{session.said or ''}" if wanted.words else ""
    return wanted.fits(session.row, is_live=session.live is not None, said=lambda _: matched)
