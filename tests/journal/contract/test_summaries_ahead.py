"""A summary is kept ahead of the settled one: a long turn behind a crash is not read again."""

from __future__ import annotations

from typing import Any

import pytest

from acphold.journal import bounds
from acphold.journal.journal import Append, Journal, state_of
from acphold.journal.sql.entry_rows import settled_state
from acphold.journal.sql.store import SqlJournal
from acphold.journal.sql.tables import Tables
from acphold.journal.stores import open_journal
from tests.journal.conversations import begun
from tests.journal.promises.sessions import PROMPT

AHEAD = 1000
"""After so many entries, a summary is kept here."""

TOGETHER = 25
"""Entries that are appended together."""


def turn(number: int) -> list[tuple[str, list[bytes]]]:
    """A turn of 1500 entries that says much and leaves a call, a mode and a plan."""
    name = b"%d" % number
    texts = [
        b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d"}}' % word
        for word in range(1500)
    ]
    call = b'{"sessionUpdate":"tool_call","toolCallId":"t%b","title":"x"}' % name
    mode = b'{"sessionUpdate":"current_mode_update","currentModeId":"m%b"}' % name
    entry = b'{"content":"%b","priority":"low","status":"pending"}' % name
    plan = b'{"sessionUpdate":"plan","entries":[%b]}' % entry
    end = ("turn_end", [b'{"stopReason":"end_turn"}'])
    runs = [("update", [raw]) for raw in (call, *texts[:700])]
    runs += [("update", [texts[700], mode]), *(("update", [raw]) for raw in (*texts[701:], plan))]
    return [("prompt", [PROMPT]), *runs, *([end] if number else [])]


def opened(location: str) -> SqlJournal[Any]:
    journal: Journal = open_journal(location)
    assert isinstance(journal, SqlJournal)
    return journal


@pytest.mark.parametrize("together", [False, True])
async def test_what_a_crash_left_is_summed_up_from_its_end_however_long_it_is(
    location: str, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "AHEAD_ENTRIES", AHEAD)
    journal = opened(location)
    lease = await begun(journal)
    for number in (2, 1, 0):
        runs = turn(number)
        for place in range(0, len(runs), TOGETHER):
            some = runs[place : place + TOGETHER]
            if together:
                [made] = await journal.append_all([Append(lease, some)])
                assert isinstance(made, list)
            else:
                await journal.append(lease, some)
    await journal.aclose()  # behind what the background has to do
    after_crash = opened(location)

    def summed_up(tables: Tables) -> tuple[int, int]:
        key, settled = tables.find_settled(lease.session_id)
        return settled_state(tables, key).newest(settled)[1], len(
            tables.segments(key).read(0, 1 << 30, lone_chunks=False)
        )

    through, speaking = await after_crash._ask(summed_up)
    assert lease.next_seq - through < 2 * AHEAD
    assert speaking == 14  # of 4,514 rows: chunks change no summary, so none is made a value
    whole = (await state_of(after_crash, lease.session_id)).summary()
    assert await after_crash.summary(lease.session_id) == whole
    assert (whole.turn, whole.attributes.current_mode_id) == ("running", "m0")
    taken = await after_crash.acquire(lease.session_id)
    await after_crash.append(taken, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await after_crash.settle(taken, 2500)  # in part
    last = (await state_of(after_crash, lease.session_id)).summary()
    assert await after_crash.summary(lease.session_id) == last
    await after_crash.settle(taken, taken.next_seq - 1)
    assert await after_crash.summary(lease.session_id) == last
    if (file := after_crash.file) is not None:
        assert await file.find_spoiled() == []
        assert (await file.repair()).miscounted == ()
    await after_crash.aclose()
