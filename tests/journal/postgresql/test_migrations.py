"""A journal in a database is brought to this release: by one at a time, whole steps, from any."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256

import psycopg
import pytest

from acphold.errors import (
    JournalBusyError,
    JournalError,
    JournalUnavailableError,
    LeaseLostError,
    NewerJournalError,
    OlderJournalError,
)
from acphold.record.journal import Append, NewSession, RowChange, bounds
from acphold.record.journal.postgresql import migrations
from acphold.record.journal.postgresql.store import PostgresqlJournal
from tests.postgresql import Databases

STEPS = migrations.MIGRATIONS
FIRST, VERSION = migrations.FIRST, migrations.VERSION

DIGESTS = (
    "03c64494d0ad25a0",
    "2a28d73e2b725273",
    "709bc89dab0738e8",
    "d5f831448394b891",
    "b86e1ac1872716c8",
    "4e099a289abe1c1e",
    "56cd7e0f73af58ca",
)
"""A digest of each step, as in tests/journal/sqlite/test_migrations.py."""


def test_no_step_that_databases_have_been_through_is_edited() -> None:
    assert [sha256("\n".join(step).encode()).hexdigest()[:16] for step in STEPS] == [*DIGESTS]


def release(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, ...]) -> None:
    """Be a release that knows these steps."""
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    monkeypatch.setattr(migrations, "VERSION", FIRST + len(steps) - 1)


@pytest.fixture
def first(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A journal made by the first release, with its content."""
    with databases.new("template1") as url:
        release(monkeypatch, STEPS[0])
        with psycopg.connect(url, autocommit=True) as line:
            migrations.migrate(line, "it", create=True)
        release(monkeypatch, *STEPS)
        yield url


def version(url: str) -> int | None:
    with psycopg.connect(url) as line:
        return migrations.version(line)


async def test_of_many_that_come_at_once_one_brings_it_to_this_release(first: str) -> None:
    journals = [PostgresqlJournal(first, create=False) for _ in range(4)]
    assert await asyncio.gather(*(journal.count() for journal in journals)) == [0] * 4
    assert version(first) == VERSION
    for journal in journals:
        await journal.aclose()


async def test_one_from_before_the_first_release_is_refused(first: str) -> None:
    with psycopg.connect(first) as line:
        line.execute("UPDATE acphold.meta SET value = '5' WHERE name = 'version'")
    journal = PostgresqlJournal(first)
    with pytest.raises(JournalUnavailableError, match=f"version {FIRST - 1}, from before"):
        await journal.count()
    await journal.aclose()


async def test_a_step_that_fails_leaves_the_steps_before_it_and_is_made_by_the_next(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ("CREATE TABLE acphold.added (session_id text PRIMARY KEY)", "SELECT 1 / 0")
    release(monkeypatch, *STEPS, half)
    journal = PostgresqlJournal(first)
    with pytest.raises(JournalError):
        await journal.count()
    assert version(first) == VERSION
    release(monkeypatch, *STEPS, half[:1])
    assert await journal.count() == 0
    assert version(first) == VERSION + 1
    await journal.aclose()


async def test_who_has_a_lease_by_an_earlier_release_writes_nothing_more(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    release(monkeypatch, *STEPS, ())
    new = PostgresqlJournal(first)
    with psycopg.connect(first) as line:  # as if it had told nothing for long
        line.execute("UPDATE acphold.owners SET presence = NULL, renewed_at = 'epoch'")
    assert await new.count() == 1
    with pytest.raises(LeaseLostError):
        await old.append(lease, [("update", [b"1"])])
    for journal in (old, new):
        await journal.aclose()


async def test_one_in_which_an_earlier_release_owns_sessions_is_left_to_it(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    release(monkeypatch, *STEPS, ())
    new = PostgresqlJournal(first)
    with pytest.raises(OlderJournalError, match=rf"process {os.getpid()} on .*`acphold agent stop"):
        await new.count()
    release(monkeypatch, *STEPS)
    await old.append(lease, [("update", [b"1"])])
    await old.aclose()
    release(monkeypatch, *STEPS, ())
    assert await new.count() == 1
    assert version(first) == VERSION + 1
    await new.aclose()


async def test_a_process_beside_which_a_newer_release_comes_is_told_to_start_again(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    with psycopg.connect(first) as newer:
        newer.execute("UPDATE acphold.leases SET epoch = 0")
        newer.execute("UPDATE acphold.meta SET value = '99' WHERE name = 'version'")
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: old.append(lease, [("update", [b"1"])]),
        lambda: old.append(lease, [("update", [b"1"])], RowChange(title="T")),
        lambda: old.append_all([Append(lease, [("update", [b"1"])])]),
        lambda: old.change(lease, RowChange(title="T")),
        lambda: old.take_in(lease, []),
        lambda: old.renew([lease]),
        lambda: old.acquire("s1"),
        lambda: old.create(NewSession("s2", "a", "/w")),
    ]
    for work in attempts:
        with pytest.raises(NewerJournalError, match="to version 99 while this process was running"):
            await work()
    assert await old.count() == 1
    await old.aclose()


async def test_one_that_is_at_it_and_does_not_end_is_waited_for_within_a_bound(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "UPGRADE_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.0)
    journal = PostgresqlJournal(first)
    with psycopg.connect(first) as line:
        line.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
        with pytest.raises(JournalBusyError, match="try again"):
            await journal.count()
    assert await journal.count() == 0
    await journal.aclose()
