"""The list as it changes: what no row and no look at a process tells by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.journal import RowChange
from acphold.journal.stores import open_journal
from acphold.server.followed_list import followed
from acphold.server.neighbours import LiveSession, Process
from acphold.testing.journal_promises.scenes import append, begun, chunk, turn

DEADLINE = 30


async def test_a_turn_that_was_never_seen_to_run_is_told_once_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = asyncio.Event()
    may_answer.set()
    idle = {"s1": (LiveSession("s1", clients=1), Process(1, "agent", []))}

    async def live_sessions() -> Mapping[str, tuple[LiveSession, Process]]:
        await may_answer.wait()
        return idle

    monkeypatch.setattr("acphold.server.followed_list.live_sessions", live_sessions)
    journal = open_journal(tmp_path / "journal.db")
    lease = await begun(journal)
    prompt, *rest = turn("One", chunk("agent_message", "two"))
    try:
        async with asyncio.timeout(DEADLINE), aclosing(followed(journal, 10)) as found:
            await anext(found)
            may_answer.clear()  # the process is slow: it is asked, and answers when it is over
            await append(journal, lease, [prompt])
            await journal.change(lease, RowChange(prompted=True))
            told = await anext(found)
            assert (told.rows[0].message_count, told.outcomes) == (1, {"s1": None})
            await append(journal, lease, rest)
            may_answer.set()
            told = await anext(found)
            assert told.rows[0].message_count == 2
            assert told.outcomes["s1"] is not None
    finally:
        await journal.aclose()
