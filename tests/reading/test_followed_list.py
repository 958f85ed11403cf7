"""The list as it changes, beyond the facts of a row and of one look at a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from acphold.live.reading import bounds
from acphold.live.reading.followed_list import follow_list
from acphold.live.reading.local_reader import LocalReader
from acphold.live.reading.processes import LiveSession, Process
from tests.conversations import chunk
from tests.journal.promises.promise import append, begun, turn
from tests.timelines import database

DEADLINE = 90


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is looked at often."""
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.05)


@pytest.mark.postgresql
async def test_the_list_is_told_anew_when_its_database_has_gone_back() -> None:
    with database() as timeline:
        journal = open_journal(timeline.url)
        try:
            lease = await begun(journal)
            await append(journal, lease, turn("One", chunk("agent_message", "two")))
            await journal.change(lease, RowChange(prompted=True, title="kept"))
            await timeline.remember()
            for number in range(20):  # which come again, for others
                await journal.change(lease, RowChange(title=f"lost {number}"))
            async with asyncio.timeout(DEADLINE), aclosing(follow_list(journal, 10)) as found:
                told = await anext(found)
                assert told.rows[0].title == "lost 19"
                await asyncio.to_thread(timeline.go_back)
                told = await anext(found)
                assert (told.is_all, told.rows[0].title) == (True, "kept")
                await journal.change("s1", RowChange(title="new"))
                assert (await anext(found)).rows[0].title == "new"
        finally:
            await journal.aclose()


async def test_a_turn_that_was_never_seen_to_run_is_told_once_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = {"s1": (LiveSession("s1", clients=1), Process(1, "agent", []))}

    async def live_at(_: object) -> Mapping[str, tuple[LiveSession, Process]]:
        return idle

    monkeypatch.setattr("acphold.live.reading.processes.live_at", live_at)
    journal = open_journal(tmp_path / "journal.db")
    lease = await begun(journal)
    prompt, *rest = turn("One", chunk("agent_message", "two"))
    try:
        async with asyncio.timeout(DEADLINE), aclosing(follow_list(journal, 10)) as found:
            await anext(found)
            await append(journal, lease, [prompt])
            await journal.change(lease, RowChange(prompted=True))
            told = await anext(found)
            assert (told.rows[0].message_count, told.outcomes) == (1, {"s1": None})
            await append(journal, lease, rest)
            told = await anext(found)
            assert told.rows[0].message_count == 2
            assert told.outcomes["s1"] is not None
    finally:
        await journal.aclose()


async def test_the_last_words_of_a_running_turn_are_told_again_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RUNNING_SECONDS", 0.05)
    running = {"s1": (LiveSession("s1", clients=1, running=True), Process(1, "agent", []))}

    async def live_at(_: object) -> Mapping[str, tuple[LiveSession, Process]]:
        return running

    monkeypatch.setattr("acphold.live.reading.processes.live_at", live_at)
    journal = open_journal(tmp_path / "journal.db")
    lease = await begun(journal)
    prompt, *rest = turn("One", chunk("agent_message", "two"))[:-1]
    await append(journal, lease, [prompt])
    await journal.change(lease, RowChange(prompted=True))
    try:
        changes = LocalReader(journal).changes(10, said=True)
        async with asyncio.timeout(DEADLINE), aclosing(changes) as found:
            assert (await anext(found)).sessions[0].said == "One"
            await append(journal, lease, rest)  # which is no change of the row
            while (await anext(found)).sessions[0].said != "two":
                pass
    finally:
        await journal.aclose()
