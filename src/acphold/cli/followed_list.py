"""`acphold list --follow`: what changes in the list, whichever process changes it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TextIO

import msgspec

from acphold.cli.journals import opened
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import folder, on_one_line
from acphold.history.timeline import turn_end
from acphold.presentation.json_facts import session_json
from acphold.server.followed_list import Changed, Snapshot, followed

if TYPE_CHECKING:
    from acphold.journal import SessionRow
    from acphold.server.neighbours import Live

NEWEST = 200
"""Sessions that are there in the beginning, unless `--limit` says otherwise."""

ID_WIDTH = 8
"""Characters of an id: enough for a person to tell sessions apart."""

LOOK_SECONDS = 1.0
"""How often is looked whether anybody reads this still."""

Fits = Callable[["SessionRow", "Live"], bool]
"""Whether a session is one of those that are asked for."""

Tell = Callable[[Snapshot | Changed], None]


async def follow(
    location: str | None,
    limit: int | None,
    tell: Tell,
    show: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Tell what there is and what changes, until nobody reads it or the person ends it.

    `show` prints what there is; what changes meanwhile is told behind it.
    """
    from acphold.screen.plain import is_unread

    async def telling() -> None:
        async with (
            opened(location) as journal,
            aclosing(followed(journal, limit or NEWEST)) as found,
        ):
            async for news in found:
                tell(news)
                if show is not None and isinstance(news, Snapshot):
                    await show()
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


class AsJson:
    """A line an event: the first has the `sessions` that are there, each other one `session` that
    is new or has changed, or the id of one that is `gone`."""

    def __init__(self, fits: Fits, out: TextIO) -> None:
        self._fits = fits
        self._out = out
        self._shown: set[str] = set()

    def __call__(self, news: Snapshot | Changed) -> None:
        rows = {
            row.session_id: session_json(row, news.live, news.outcomes)
            for row in news.rows
            if self._fits(row, news.live)
        }
        self._shown |= rows.keys()
        if isinstance(news, Snapshot):
            self._out.write(f'{{"sessions":[{",".join(rows.values())}]}}\n')
            return
        self._out.writelines(f'{{"session":{row}}}\n' for row in rows.values())
        others = {row.session_id for row in news.rows} - rows.keys()
        for session_id in self._shown & {*news.gone, *others}:
            self._out.write(f'{{"gone":{msgspec.json.encode(session_id).decode()}}}\n')
            self._shown.discard(session_id)


class AsWords:
    """For people: when, what became of which session, and whose it is; behind the list itself."""

    def __init__(self, fits: Fits, out: TextIO) -> None:
        self._fits = fits
        self._out = out
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, news: Snapshot | Changed) -> None:
        for row in news.rows:
            if not self._fits(row, news.live):
                self._over(row.session_id, "archived" if row.archived else "left")
                continue
            found = _state(row, news), on_one_line(row.title or "(no title)")
            if self._known.get(row.session_id) != found:
                self._known[row.session_id] = found
                if isinstance(news, Changed):
                    where = f"{on_one_line(agent_name(row.agent))} in {folder(row.cwd)}"
                    self._line(row.session_id, *found, where)
        if isinstance(news, Changed):
            for session_id in news.gone:
                self._over(session_id, "deleted")

    def _over(self, session_id: str, how: str) -> None:
        if (known := self._known.pop(session_id, None)) is not None:
            self._line(session_id, how, known[1])

    def _line(self, session_id: str, state: str, title: str, where: str = "") -> None:
        short = on_one_line(session_id)[:ID_WIDTH]
        line = f"{time.strftime('%H:%M:%S')}  {state:<11}  {short:<{ID_WIDTH}}  {title}  {where}"
        self._out.write(f"{line.rstrip()}\n")


def _state(row: SessionRow, news: Snapshot | Changed) -> str:
    """What goes on in it; at rest, how its last turn ended."""
    if (live := news.live.get(row.session_id)) is not None and live[0].state != "live":
        return live[0].state
    if row.session_id not in news.outcomes:
        return "unread" if row.is_unread else "new"
    end = news.outcomes[row.session_id]
    if end is not None:
        return turn_end(end, 0).outcome
    return "interrupted" if live is None else "running"
