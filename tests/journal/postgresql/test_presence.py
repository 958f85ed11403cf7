"""Owners whose connection to the database has ended: they may have, too, or come back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from acphold.journal import bounds
from acphold.journal.owners import At, Free, Whose
from acphold.journal.postgresql import leases
from acphold.journal.postgresql.leases import Gone
from acphold.journal.postgresql.session_rows import PostgresqlTables
from tests.editor import DEADLINE
from tests.journal.conftest import opened
from tests.journal.conversations import begun
from tests.owners import make_silent

pytestmark = pytest.mark.postgresql


def seems(whose: Whose) -> str:
    """What another owner seems to be."""
    return {At: "alive", Gone: "gone", Free: "silent"}[type(whose)]


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as line:
        line.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_entries_appended_while_the_leases_are_checked_do_not_look_lost(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Callable[..., Any] = PostgresqlTables.execute
    loop = asyncio.get_running_loop()
    async with opened(location) as journal:
        lease = await begun(journal, "s1")

        def read_and_write(*given: Any) -> Any:
            """The agent goes on as soon as the leases are read."""
            found = read(*given)
            if "JOIN acphold.leases" in given[1] and lease.next_seq < 3:
                writing = journal.append(lease, [("update", [b"1", b"2"])])
                asyncio.run_coroutine_threadsafe(writing, loop).result(DEADLINE)
            return found

        monkeypatch.setattr(PostgresqlTables, "execute", read_and_write)
        assert await journal.renew([lease]) == []
        assert lease.next_seq == 3


async def test_what_an_owner_has_is_not_free_when_its_connection_alone_has_ended(
    location: str,
) -> None:
    async with opened(location) as journal, opened(location) as other:
        await begun(journal, "s1")
        assert seems(await other.owner("s1")) == "alive"
        end_connections(location)
        assert seems(await other.owner("s1")) == "gone"
        assert await other.delete("s1", idle_since=1 << 60) == []
        await journal.renew()
        assert seems(await other.owner("s1")) == "alive"


async def test_an_owner_is_told_for_a_while_after_its_connection_has_ended(
    location: str,
) -> None:
    async with opened(location) as journal, opened(location) as other:
        await journal.renew(addresses=["unix:/one"])
        await begun(journal, "s1")
        end_connections(location)
        [found] = await other.owners()
        assert found.addresses == ("unix:/one",)
        with psycopg.connect(location, autocommit=True) as line:
            line.execute(
                "UPDATE acphold.owners SET renewed_at = now() - make_interval(secs => %s)",
                (bounds.LATE_SECONDS + 1,),
            )
        assert await other.owners() == []


@pytest.mark.parametrize(("seconds", "whose"), [(0, "alive"), (13, "gone"), (31, "silent")])
async def test_an_owner_behind_a_pooler_lives_may_have_ended_or_is_silent_as_it_has_told_last(
    location: str, seconds: int, whose: str
) -> None:
    async with opened(location) as journal, opened(location) as other:
        await begun(journal, "s1")
        with psycopg.connect(location, autocommit=True) as line:
            line.execute(
                "UPDATE acphold.owners SET presence = NULL,"
                " renewed_at = now() - make_interval(secs => %s)",
                (seconds,),
            )
        assert seems(await other.owner("s1")) == whose


@pytest.mark.parametrize("is_known", [True, False])
async def test_whoever_has_the_place_of_an_ended_owner_has_its_sessions_at_once(
    location: str, is_known: bool
) -> None:
    async with opened(location) as journal, opened(location) as other, opened(location) as third:
        await journal.renew(addresses=["unix:/one"])
        await begun(journal, "s1")
        await other.renew(addresses=["unix:/one"])
        await third.renew(addresses=["unix:/third"])
        assert seems(await other.owner("s1")) == "alive"
        end_connections(location)
        if not is_known:  # the database was started again, and nobody has told since
            with psycopg.connect(location, autocommit=True) as line:
                line.execute("UPDATE acphold.owners SET presence = NULL")
        assert seems(await third.owner("s1")) == ("gone" if is_known else "alive")
        assert type(await other.owner("s1")) is Free


async def test_a_silent_owner_that_reports_while_its_session_is_taken_finds_it_lost(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, looked, go_on = leases.whose, threading.Event(), threading.Event()

    def slowly(*given: Any) -> Whose:
        found = asks(*given)
        looked.set()
        go_on.wait(DEADLINE)
        return found

    async with opened(location) as journal, opened(location) as other:
        lease = await begun(journal, "s1")
        make_silent(location, os.getpid())
        seen = await other.owner("s1")
        monkeypatch.setattr(leases, "whose", slowly)
        taking = asyncio.create_task(other.acquire("s1", seen))
        await asyncio.to_thread(looked.wait, DEADLINE)
        journal.late_at = 0.0
        looking = asyncio.create_task(journal.loss(lease))
        with psycopg.connect(location, autocommit=True) as line:
            while not looking.done() and not line.execute(WAITING).fetchall():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        go_on.set()
        assert (await taking).epoch > lease.epoch
        assert await looking is not None


WAITING = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def test_an_owner_whose_connection_for_its_presence_hangs_gets_another_one(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECT_SECONDS", 2)
    async with opened(location) as journal, opened(location) as other:
        await begun(journal, "s1")
        with psycopg.connect(location) as line:
            holding = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND pid IN"
            ours = " (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
            [(backend,)] = line.execute(holding + ours).fetchall()
        os.kill(backend, signal.SIGSTOP)
        try:
            async with asyncio.timeout(DEADLINE):
                await journal.renew()
        finally:
            os.kill(backend, signal.SIGCONT)
        assert seems(await other.owner("s1")) == "alive"


@pytest.mark.slow
async def test_an_owner_whose_connections_died_while_it_slept_reports_before_the_next_one_is_due(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECT_SECONDS", 2)
    async with opened(location) as journal, opened(location) as other:
        await begun(journal, "s1")
        with psycopg.connect(location) as line:
            ours = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            backends = line.execute(f"{ours} AND pid <> pg_backend_pid()".encode()).fetchall()
        for (backend,) in backends:
            os.kill(backend, signal.SIGSTOP)
        try:
            async with asyncio.timeout(bounds.RENEW_SECONDS):
                await journal.renew()
        finally:
            for (backend,) in backends:
                os.kill(backend, signal.SIGCONT)
        assert seems(await other.owner("s1")) == "alive"
