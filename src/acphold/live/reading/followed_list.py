"""The list of sessions and its changes, whichever process makes them.

Every moment, and whenever something happens in our own daemon, the journal says which rows have
changed since, and the processes say what runs. A database is only asked if somebody announced a
change, or if that would not be heard. So a killed process is noticed, too, and nothing
depends on a clock that can be set. A row changes when a turn begins, but not when it ends: a turn
that has begun and that no process runs is read once more at the next look.
"""

# See docs/decisions.md, 22.

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Container, Iterable, Sequence
from contextlib import aclosing, suppress
from math import inf
from time import monotonic

from msgspec import Struct

from acp_wire.tasks import timeout
from acphold.errors import RewrittenError
from acphold.journal.journal import Journal, Outcomes, row_of
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.reading import bounds
from acphold.live.reading.processes import KnownOwners, Live


class Changed(Struct, frozen=True):
    """Sessions of the list that are new or changed, and the ids of those that left it; if it
    `is_all`, the newest sessions and all live ones, newest first."""

    rows: Sequence[SessionRow]
    live: Live
    outcomes: Outcomes
    gone: Sequence[str] = ()
    is_all: bool = False


async def follow_list(
    journal: Journal,
    newest: int,
    activity: asyncio.Event | None = None,
    look: float | None = None,
    running: float = inf,
) -> AsyncGenerator[Changed, None]:
    """Yield the list with so many of the newest sessions, then each change of any, archived or not.

    `activity` is set when something changes in a session of our own process, or of the daemon that
    we hear; for what others do, the journal and the processes are looked at every `look` seconds,
    by default as often as a person notices. Those with a running turn are told again every
    `running` seconds. Goes on until it is closed, and starts again if the journal may have gone
    back; raises JournalError.
    """
    while True:
        with suppress(RewrittenError):
            look = bounds.LOOK_SECONDS if look is None else look
            following = _follow(journal, newest, activity or asyncio.Event(), look, running)
            async with aclosing(following) as found:
                async for each in found:
                    yield each


async def _follow(
    journal: Journal, newest: int, activity: asyncio.Event, look: float, running: float
) -> AsyncGenerator[Changed, None]:
    """See `follow_list`; ends with RewrittenError if the journal may have gone back."""
    changes, owners = await journal.changes(None), KnownOwners(journal)
    live = await owners.live(has_news=True)
    rows = {row.session_id: row for row in await journal.page(ListFilter(), None, newest)}
    for session_id in live.keys() - rows.keys():
        if (row := await _row(journal, session_id, live)) is not None:
            rows[session_id] = row
    listed = sorted(rows.values(), key=lambda row: row.key)
    changed = Changed(listed, live, await journal.outcomes([*rows]), is_all=True)
    told = monotonic()
    while True:
        if changed.is_all or changed.rows or changed.gone:
            yield changed
        if not changes.more:
            await asyncio.sleep(bounds.LOOKS_APART_SECONDS)
            with suppress(TimeoutError):
                async with timeout(look):
                    await activity.wait()
        activity.clear()
        changes = await journal.changes(changes.last, if_told=True)
        before, live = live, await owners.live(has_news=bool(changes.session_ids))
        was, now_is = (
            {id_: (session, process.pid) for id_, (session, process) in of.items()}
            for of in (before, live)
        )
        different = [id_ for id_ in was | now_is if was.get(id_) != now_is.get(id_)]
        if monotonic() >= told + running:
            told = monotonic()
            different += [id_ for id_ in live if _is_running(live, id_)]
        for row in changed.rows:
            id_ = row.session_id  # it may have ended behind our look
            if changed.outcomes.get(id_, b"") is None and not _is_running(live, id_):
                different += [id_] if await _row(journal, id_, live) != row else []
        changed = await _read_changes(journal, changes.session_ids, different, before, live)


async def _read_changes(
    journal: Journal,
    written: Sequence[str],
    different: Iterable[str],
    before: Container[str],
    live: Live,
) -> Changed:
    """Return the sessions that were `written`, or whose live state is `different`, as they are now.

    `before` has the sessions that were live until now.
    """
    rows, gone = list[SessionRow](), list[str]()
    for session_id in dict.fromkeys((*written, *different)):
        row = await _row(journal, session_id, live)
        if row is None:
            # A live session without a row was deleted meanwhile, and is ignored.
            if session_id in written:
                gone.append(session_id)
        elif row.prompted or session_id in live:
            rows.append(row)
        elif session_id in before:  # never prompted, and closed: no list has it
            gone.append(session_id)
    outcomes = await journal.outcomes([row.session_id for row in rows]) if rows else {}
    return Changed(rows, live, outcomes, gone)


async def _row(journal: Journal, session_id: str, live: Live) -> SessionRow | None:
    """Return the row of a session; during a turn without counting that turn's messages, as it is
    read again with each piece."""
    return await row_of(journal, session_id, counted=not _is_running(live, session_id))


def _is_running(live: Live, session_id: str) -> bool:
    return session_id in live and live[session_id][0].running
