"""Whoever follows a database is told of each commit, whatever else is open on the server."""

from __future__ import annotations

import asyncio
import random

import psycopg
import pytest

from acphold.journal.journal import Journal
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from tests.editor import DEADLINE
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

OPEN_ONE = "SELECT pg_current_xact_id()"
TELL = "UPDATE acphold.sessions SET changed = pg_current_xact_id() WHERE session_id = %s"


async def with_sessions(url: str, *names: str) -> Journal:
    journal = open_journal(url)
    for name in names:
        await journal.create(NewSession(name, "a", "/w"))
    return journal


async def test_an_open_transaction_of_any_database_keeps_no_change_from_being_told(
    databases: Databases,
) -> None:
    with (
        databases.new() as url,
        databases.new("template1") as elsewhere,
        psycopg.connect(elsewhere) as stranger,
        psycopg.connect(url) as beside,
    ):
        journal = await with_sessions(url, "s1", "s2", "s3")
        try:
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
        finally:
            await journal.aclose()


async def test_each_commit_of_many_writers_is_told_once_they_are_over_a_page_at_a_time(
    databases: Databases,
) -> None:
    names = [f"s{number:02}" for number in range(40)]
    choose = random.Random(7)
    with databases.new() as url:
        journal = await with_sessions(url, *names)
        lines = [psycopg.connect(url) for _ in range(6)]
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
            await journal.aclose()
