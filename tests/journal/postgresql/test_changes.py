"""Whoever follows a database is told of each commit, whatever else is open on the server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from acphold.errors import RewrittenError
from acphold.journal import bounds
from acphold.journal.journal import Journal
from acphold.journal.postgresql.changes import Position
from acphold.journal.rows import NewSession, RowChange
from tests.editor import DEADLINE
from tests.journal.conftest import opened
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

OPEN_ONE = "SELECT pg_current_xact_id()"
TELL = "UPDATE acphold.sessions SET changed = pg_current_xact_id() WHERE session_id = %s"


@asynccontextmanager
async def with_sessions(url: str, *names: str) -> AsyncIterator[Journal]:
    async with opened(url) as journal:
        for name in names:
            await journal.create(NewSession(name, "a", "/w"))
        yield journal


async def test_an_open_transaction_of_any_database_keeps_no_change_from_being_told(
    databases: Databases, location: str
) -> None:
    with (
        databases.new("template1") as elsewhere,
        psycopg.connect(elsewhere) as stranger,
        psycopg.connect(location) as beside,
    ):
        async with with_sessions(location, "s1", "s2", "s3") as journal:
            stranger.execute(OPEN_ONE)
            last = (await journal.changes(None)).last
            beside.execute(TELL, ("s1",))
            await journal.change("s2", RowChange(archived=True))
            news = await journal.changes(last)
            assert [*news.session_ids] == ["s2"]
            await journal.change("s3", RowChange(archived=True))
            news = await journal.changes(news.last)
            assert [*news.session_ids] == ["s3"]
            beside.commit()  # its number is lower than both
            news = await journal.changes(news.last)
            assert [*news.session_ids] == ["s1"]
            assert not (await journal.changes(news.last)).session_ids
            await journal.delete("s2")
            assert [*(await journal.changes(news.last)).session_ids] == ["s2"]


async def test_deleted_sessions_are_told_for_an_hour_and_forgotten_with_a_later_deletion(
    location: str,
) -> None:
    names = [f"s{number}" for number in range(9)]
    with psycopg.connect(location, autocommit=True) as beside:
        async with with_sessions(location, *names) as journal:

            async def left_by_deleting(*names: str) -> list[str]:
                await journal.delete(*names)
                gone = beside.execute("SELECT session_id FROM acphold.gone ORDER BY session_id")
                return [name for (name,) in gone.fetchall()]

            def let_pass(seconds: int) -> None:
                beside.execute("UPDATE acphold.access_changes SET at = at - %s", (seconds * 1000,))

            assert await left_by_deleting("s0", "s1") == ["s0", "s1"]
            let_pass(bounds.KEPT_CHANGES_SECONDS - 100)
            assert await left_by_deleting("s2") == ["s0", "s1", "s2"]
            let_pass(200)
            await journal.access.forget_ended()
            assert await left_by_deleting("s3") == ["s2", "s3"]


@pytest.mark.parametrize("away", [-1, 1])
async def test_who_was_away_for_half_as_long_as_that_reads_all_again(
    location: str, away: int
) -> None:
    half = bounds.KEPT_CHANGES_SECONDS // 2
    async with with_sessions(location, "s1") as journal:
        now = Position.read((await journal.changes(None)).last)
        await journal.change("s1", RowChange(archived=True))
        recent, old = (
            str(replace(now, at=now.at + away * seconds)) for seconds in (half - 60, half + 60)
        )
        assert [*(await journal.changes(recent)).session_ids] == ["s1"]
        with pytest.raises(RewrittenError):
            await journal.changes(old)


async def test_each_commit_of_many_writers_is_told_once_they_are_over_a_page_at_a_time(
    location: str,
) -> None:
    names = [f"s{number:02}" for number in range(40)]
    choose = random.Random(7)
    async with with_sessions(location, *names) as journal:
        lines = [psycopg.connect(location) for _ in range(6)]
        try:
            last = (await journal.changes(None)).last
            due, told = set[str](), set[str]()
            pending: dict[int, list[str]] = {}
            free = [*names]
            async with asyncio.timeout(DEADLINE):
                for _ in range(120):
                    place = choose.randrange(len(lines))
                    if place in pending and choose.random() < 0.5:
                        lines[place].commit()
                        due |= {*pending.pop(place)}
                    elif free:
                        name = free.pop(choose.randrange(len(free)))
                        lines[place].execute(TELL, (name,))
                        pending.setdefault(place, []).append(name)
                    news = await journal.changes(last, 2)
                    assert not told & {*news.session_ids}, "each has changed once"
                    told |= {*news.session_ids}
                    last = news.last
                    if not news.more:
                        assert told == due
            for place, some in pending.items():
                lines[place].commit()
                due |= {*some}
            more = True
            while more:
                news = await journal.changes(last, 1)
                told |= {*news.session_ids}
                last, more = news.last, news.more
            assert told == due
        finally:
            for line in lines:
                line.close()


def questions(journal: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The number of questions that a journal asks its database from now on."""
    asked = 0
    ask = journal._database.run

    async def counted(*given: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return await ask(*given, **named)

    monkeypatch.setattr(journal._database, "run", counted)
    return lambda: asked


async def test_who_follows_a_database_asks_it_once_something_is_announced(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_sessions(location, "s1") as journal, opened(location) as other:
        last = (await journal.changes(None)).last
        asked = questions(journal, monkeypatch)
        async with asyncio.timeout(DEADLINE):
            before = -1
            while before != (before := asked()):  # until it listens
                last = (await journal.changes(last, if_told=True)).last
                await asyncio.sleep(0.05)
            for _ in range(20):
                assert not (await journal.changes(last, if_told=True)).session_ids
            assert asked() == before
            await other.change("s1", RowChange(archived=True))
            # Not by events: they come from a database.
            while not (news := await journal.changes(last, if_told=True)).session_ids:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [*news.session_ids] == ["s1"]


async def test_announcing_and_listening_take_no_connection_of_their_own(location: str) -> None:
    with psycopg.connect(location, autocommit=True) as line:

        def connections() -> set[int]:
            found = line.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend'"
            )
            return {pid for (pid,) in found.fetchall()}

        line.execute("LISTEN acphold")
        async with with_sessions(location, "s1") as journal, asyncio.timeout(DEADLINE):
            lease = await journal.acquire("s1")
            await journal.append(lease, [("update", [b"{}"])])
            before = connections()
            last = (await journal.changes(None)).last
            for archived in (True, False):
                await journal.change("s1", RowChange(archived=archived))
                last = (await journal.changes(last, if_told=True)).last
            while not [*line.notifies(timeout=0.0)]:  # noqa: ASYNC110 - from a database
                await asyncio.sleep(0.05)
            assert connections() <= before


async def test_what_a_command_changes_last_is_announced_before_it_ends(
    location: str,
) -> None:
    async with with_sessions(location, "s1"):
        pass
    with psycopg.connect(location, autocommit=True) as line:
        line.execute("LISTEN acphold")
        async with opened(location) as command:
            for archived in (True, False):
                await command.change("s1", RowChange(archived=archived))
        assert {note.channel for note in line.notifies(timeout=0.1)} == {"acphold"}


async def test_behind_a_pooler_nothing_is_heard_and_the_log_is_read_each_time(
    databases_pooled: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    with databases_pooled.new() as url:
        async with with_sessions(url, "s1") as journal, opened(url) as other:
            last = (await journal.changes(None)).last
            asked = questions(journal, monkeypatch)
            for _ in range(5):
                last = (await journal.changes(last, if_told=True)).last
            assert asked() == 5
            await other.change("s1", RowChange(archived=True))
            assert [*(await journal.changes(last, if_told=True)).session_ids] == ["s1"]


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_tokens_of_machines_whose_clocks_differ_are_judged_by_the_clock_of_the_database(
    ahead: int, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead * 10**9)
    async with opened(location) as journal:
        await journal.access.changes(None)
        assert abs(journal.access.now_ms() - clock() // 10**6) < 5_000
