"""The list of sessions and its changes, whichever process makes them.

A row is read when the journal says that it has changed. The activity of a live session is requested
from its process, every second, and whenever a row has changed or something happens in our own
process. So a killed process is noticed, too, and nothing depends on a clock that can be set. A row
changes when a turn begins, but not when it ends: if a turn was seen to have begun, the session is
read once more when its process reports later that none runs.
"""

# See docs/decisions.md, 22.

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Container, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct

from acp_wire.tasks import end, timeout_at
from acphold.errors import RewrittenError
from acphold.journal.journal import Journal, row_of
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.reading import bounds
from acphold.live.reading.neighbours import Live, live_anywhere


class Changed(Struct, frozen=True):
    """Sessions of the list that are new or changed, and the ids of those that left it; if it
    `is_all`, the newest sessions and all live ones, newest first."""

    rows: Sequence[SessionRow]
    live: Live
    outcomes: Mapping[str, bytes | None]
    gone: Sequence[str] = ()
    is_all: bool = False


async def follow_list(
    journal: Journal,
    newest: int,
    activity: asyncio.Event | None = None,
    look: float | None = None,
) -> AsyncGenerator[Changed, None]:
    """Yield the list with so many of the newest sessions, then each change of any, archived or not.

    `activity` is set when something changes in a session of our own process; for what others do,
    the journal and the processes are looked at every `look` seconds, by default as often as a
    person notices. Goes on until it is closed, and starts again if the journal may have gone back;
    raises JournalError.
    """
    while True:
        with suppress(RewrittenError):
            following = _follow(journal, newest, activity or asyncio.Event(), look)
            async with aclosing(following) as found:
                async for each in found:
                    yield each


async def _follow(
    journal: Journal, newest: int, activity: asyncio.Event, look: float | None
) -> AsyncGenerator[Changed, None]:
    """See `follow_list`; ends with RewrittenError if the journal may have gone back.

    Each round reads the journal's changes and, beside that, asks the processes. `open_turns` has
    the sessions that were read with a turn that had not ended. The next question to the processes
    takes them over as `due_turns`: those in which no turn runs any more are read once more.
    """
    look_at_journal = look or bounds.JOURNAL_LOOK_SECONDS
    look_at_processes = look or bounds.PROCESSES_LOOK_SECONDS
    last = (await journal.changes(None)).last
    live = await live_anywhere(journal)
    rows = {row.session_id: row for row in await journal.page(ListFilter(), None, newest)}
    for session_id in live.keys() - rows.keys():
        if (row := await _row(journal, session_id, live)) is not None:
            rows[session_id] = row
    listed = sorted(rows.values(), key=lambda row: row.key)
    snapshot = Changed(listed, live, await journal.outcomes([*rows]), is_all=True)
    yield snapshot
    loop = asyncio.get_running_loop()
    asking: asyncio.Task[Live] | None = None
    asked_at = loop.time()
    read_at, is_more = asked_at - look_at_journal, False
    open_turns, due_turns = _open_turns(snapshot), dict[str, SessionRow]()
    try:
        while True:
            now = loop.time()
            written: Sequence[str] = ()
            if is_more or activity.is_set() or now >= read_at + look_at_journal:
                read_at = now
                changes = await journal.changes(last)
                last, written, is_more = changes.last, changes.session_ids, changes.more
            if written:
                changed = await _read_changes(journal, written, (), live, live)
                open_turns |= _open_turns(changed)
                if changed.rows or changed.gone:
                    yield changed

            if asking is None and (
                written or activity.is_set() or now >= asked_at + look_at_processes
            ):
                activity.clear()
                asked_at, open_turns, due_turns = now, {}, open_turns
                asking = asyncio.create_task(live_anywhere(journal), name="ask processes")
            if asking is not None:
                # Use their answer at once: it may have a question to a person.
                await asyncio.wait([asking], timeout=0 if is_more else bounds.JOURNAL_LOOK_SECONDS)
            if asking is not None and asking.done():
                before, live, asking = live, asking.result(), None
                was, now_is = (
                    {id_: (session, process.pid) for id_, (session, process) in of.items()}
                    for of in (before, live)
                )
                different = [id_ for id_ in was | now_is if was.get(id_) != now_is.get(id_)]
                for session_id, row in due_turns.items():
                    is_over = not _is_running(live, session_id)
                    if is_over and await _row(journal, session_id, live) != row:
                        different.append(session_id)
                if different:
                    changed = await _read_changes(journal, (), different, before, live)
                    open_turns |= _open_turns(changed)
                    if changed.rows or changed.gone:
                        yield changed

            if not is_more:
                with suppress(TimeoutError):
                    async with timeout_at(read_at + look_at_journal):
                        await activity.wait()
                await asyncio.sleep(now + bounds.LOOKS_APART_SECONDS - loop.time())
    finally:
        await end(asking)


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
    outcomes = await journal.outcomes([row.session_id for row in rows])
    return Changed(rows, live, outcomes, gone)


def _open_turns(found: Changed) -> dict[str, SessionRow]:
    """Return the sessions whose last turn had no end when they were read."""
    outcomes = found.outcomes
    return {row.session_id: row for row in found.rows if outcomes.get(row.session_id, b"") is None}


async def _row(journal: Journal, session_id: str, live: Live) -> SessionRow | None:
    """Return the row of a session; during a turn without counting that turn's messages, as it is
    read again with each piece."""
    return await row_of(journal, session_id, counted=not _is_running(live, session_id))


def _is_running(live: Live, session_id: str) -> bool:
    return session_id in live and live[session_id][0].running
