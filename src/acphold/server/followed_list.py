"""The list of sessions as it changes, whichever processes change it: what it is, then what is new.

A row is looked at when the journal says that it has changed; what goes on in a live session is
asked of the process that has it, every second, and whenever a row has changed or something stirs
in our own. So a process that is killed is noticed, too, and nothing here depends on a clock that
can be set. A row changes where a turn begins, and not where it ends: a session of which a turn was
seen to have begun is looked at once more when its process, asked behind that, says that none runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from msgspec import Struct

from acphold.errors import UnknownSessionError
from acphold.journal import ListFilter, Owners, SessionRow, Sessions
from acphold.server.neighbours import Live, LiveSession, live_at_nodes, live_sessions

LOOK_SECONDS: Final = 0.25
"""Between two looks at the journal; one takes some microseconds when nothing was written."""

LIVE_SECONDS: Final = 1.0
"""Between two looks at the processes."""

APART_SECONDS: Final = 0.05
"""What is between them at least, however much stirs."""


class Snapshot(Struct, frozen=True):
    """The newest sessions and all that are live, the newest first."""

    rows: Sequence[SessionRow]
    live: Live
    outcomes: Mapping[str, bytes | None]


class Changed(Struct, frozen=True):
    """Sessions of the list that are new or other than before, and the ids of those it has no
    more."""

    rows: Sequence[SessionRow]
    gone: Sequence[str]
    live: Live
    outcomes: Mapping[str, bytes | None]


class Followed(Sessions, Owners, Protocol):
    """What is asked of a journal here."""


async def followed(
    journal: Followed, newest: int, stirred: asyncio.Event | None = None
) -> AsyncGenerator[Snapshot | Changed, None]:
    """The list, with so many of the newest sessions, then each change of any, archived or not.

    `stirred` is set when something is other in a session of our own process. Goes on until it is
    closed; raises JournalError.
    """
    stirred = stirred or asyncio.Event()
    last = (await journal.changes(None)).last
    live = await _live(journal)
    rows = {row.session_id: row for row in await journal.page(ListFilter(), None, newest)}
    for session_id in live.keys() - rows.keys():
        if (row := await _row(journal, session_id, live)) is not None:
            rows[session_id] = row
    listed = sorted(rows.values(), key=lambda row: row.key)
    snapshot = Snapshot(listed, live, await journal.outcomes([*rows]))
    yield snapshot
    loop = asyncio.get_running_loop()
    asking: asyncio.Task[Live] | None = None
    asked = loop.time()
    looked, is_more = asked - LOOK_SECONDS, False
    begun, asked_about = _begun(snapshot), dict[str, SessionRow]()
    try:
        while True:
            now = loop.time()
            written: Sequence[str] = ()
            if is_more or now >= looked + LOOK_SECONDS:
                looked = now
                changes = await journal.changes(last)
                last, written, is_more = changes.last, changes.session_ids, changes.more
            if written:
                changed = await _changed(journal, written, (), live, live)
                begun |= _begun(changed)
                if changed.rows or changed.gone:
                    yield changed
            if asking is None and (written or stirred.is_set() or now >= asked + LIVE_SECONDS):
                stirred.clear()
                asked, begun, asked_about = now, {}, begun
                asking = asyncio.create_task(_live(journal), name="ask who is live")
            if asking is not None:
                # What waits for somebody is told as soon as its process has said so.
                await asyncio.wait([asking], timeout=0 if is_more else LOOK_SECONDS)
            if asking is not None and asking.done():
                before, live, asking = live, asking.result(), None
                different = _different(before, live)
                different += [
                    session_id
                    for session_id, told in asked_about.items()
                    if not _is_running(live, session_id)
                    and await _row(journal, session_id, live) != told
                ]
                if different:
                    changed = await _changed(journal, (), different, before, live)
                    begun |= _begun(changed)
                    if changed.rows or changed.gone:
                        yield changed
            if not is_more:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(looked + LOOK_SECONDS):
                        await stirred.wait()
                await asyncio.sleep(now + APART_SECONDS - loop.time())
    finally:
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])


async def _live(journal: Owners) -> Live:
    return {**await live_at_nodes(journal), **await live_sessions()}


async def _changed(
    journal: Sessions, written: Sequence[str], different: Sequence[str], before: Live, live: Live
) -> Changed:
    rows, gone = list[SessionRow](), list[str]()
    for session_id in dict.fromkeys((*written, *different)):
        row = await _row(journal, session_id, live)
        if row is None:
            # What is live and has no row is a session of another journal, which is nothing to us.
            if session_id in written:
                gone.append(session_id)
        elif row.prompted or session_id in live:
            rows.append(row)
        elif session_id in before:  # never prompted, and left: no list has it
            gone.append(session_id)
    outcomes = await journal.outcomes([row.session_id for row in rows])
    return Changed(rows, gone, live, outcomes)


def _begun(told: Snapshot | Changed) -> dict[str, SessionRow]:
    """The sessions of which the last turn has no end, as far as was seen."""
    return {
        row.session_id: row for row in told.rows if told.outcomes.get(row.session_id, b"") is None
    }


async def _row(journal: Sessions, session_id: str, live: Live) -> SessionRow | None:
    """The row of a session; while a turn runs, without the messages of that turn: it is read anew
    with each piece of it."""
    try:
        return await journal.session(session_id, counted=not _is_running(live, session_id))
    except UnknownSessionError:
        return None


def _is_running(live: Live, session_id: str) -> bool:
    return session_id in live and live[session_id][0].running


def _different(before: Live, live: Live) -> list[str]:
    """The sessions that are live now, or were, and are not as they were."""
    all_ = before.keys() | live.keys()
    return [id_ for id_ in all_ if _as_told(before, id_) != _as_told(live, id_)]


def _as_told(live: Live, session_id: str) -> tuple[LiveSession, int] | None:
    found = live.get(session_id)
    return None if found is None else (found[0], found[1].pid)
