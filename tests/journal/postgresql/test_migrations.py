"""A journal in a database is brought to this release: by one at a time, whole steps, from any."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from acphold.errors import JournalBusyError, JournalError, LeaseLostError, NewerJournalError
from acphold.journal import Append, NewSession, RowChange, Sought
from acphold.journal.postgresql import database, migrations
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.testing.journal_promises.scenes import append, chunk, turn
from tests.postgresql import Databases

STEPS = migrations.MIGRATIONS


def release(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, ...]) -> None:
    """Be a release that knows these steps."""
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    monkeypatch.setattr(migrations, "VERSION", len(steps))


@pytest.fixture
def first(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A journal that the first release has made, with what is found in it."""
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
    assert version(first) == len(STEPS)
    for journal in journals:
        await journal.aclose()


def taken_back(line: migrations.Line) -> None:
    """Make a journal one of the release before sums by slots."""
    line.execute("DROP TABLE acphold.rules")
    line.execute("DROP TABLE acphold.snapshots")
    line.execute("ALTER TABLE acphold.sessions DROP COLUMN moved, DROP COLUMN ruled")
    line.execute("DROP INDEX acphold.with_queue")
    line.execute(
        "ALTER TABLE acphold.sessions DROP COLUMN queued, DROP COLUMN held, DROP COLUMN held_until"
    )
    line.execute("DROP INDEX acphold.listed_tenant_unread")
    line.execute("DROP TABLE acphold.usage_slots, acphold.usage_costs")
    line.execute("DROP INDEX acphold.usage_of_sessions")
    line.execute("UPDATE acphold.meta SET value = '3' WHERE name = 'version'")


async def test_what_an_earlier_release_has_made_searchable_is_found_in_the_same_order(
    first: str,
) -> None:
    journal = PostgresqlJournal(first)
    said = {"long": "flaky and more words", "best": "flaky flaky"}
    for name, text in said.items():
        lease = await journal.create(NewSession(name, "a", "/w"))
        await append(journal, lease, turn("Go", chunk("agent_message", text)))
        await journal.settle(lease, lease.next_seq - 1)
    await journal.index.catch_up(9)
    with psycopg.connect(first) as line:  # as it was before
        taken_back(line)
        line.execute("ALTER TABLE acphold.documents DROP COLUMN size, DROP COLUMN tenant")
        line.execute("DROP INDEX acphold.listed_unread")
        line.execute("UPDATE acphold.meta SET value = '1' WHERE name = 'version'")
    await journal.aclose()
    again = PostgresqlJournal(first)
    found = await again.index.search(Sought("flaky", rank=True))
    assert [hit.session_id for hit in found] == ["best", "long"]
    await again.aclose()


async def test_a_step_that_fails_leaves_the_steps_before_it_and_is_made_by_the_next(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ("CREATE TABLE acphold.added (session_id text PRIMARY KEY)", "SELECT 1 / 0")
    release(monkeypatch, *STEPS, half)
    journal = PostgresqlJournal(first)
    with pytest.raises(JournalError):
        await journal.count()
    assert version(first) == len(STEPS)
    release(monkeypatch, *STEPS, half[:1])
    assert await journal.count() == 0
    assert version(first) == len(STEPS) + 1
    await journal.aclose()


async def test_who_has_a_lease_by_an_earlier_release_writes_nothing_more(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    release(monkeypatch, *STEPS, ())
    new = PostgresqlJournal(first)
    assert await new.count() == 1
    with pytest.raises(LeaseLostError):
        await old.append(lease, [("update", [b"1"])])
    for journal in (old, new):
        await journal.aclose()


async def test_a_process_beside_which_a_newer_release_comes_is_told_to_start_again(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    with psycopg.connect(first) as newer:
        newer.execute("UPDATE acphold.leases SET epoch = 0")
        newer.execute("UPDATE acphold.meta SET value = '99' WHERE name = 'version'")
    for work in (
        lambda: old.append(lease, [("update", [b"1"])]),
        lambda: old.append(lease, [("update", [b"1"])], RowChange(title="T")),
        lambda: old.append_all([Append(lease, [("update", [b"1"])])]),
        lambda: old.change(lease, RowChange(title="T")),
        lambda: old.take_in(lease, []),
        lambda: old.renew([lease]),
        lambda: old.acquire("s1"),
        lambda: old.create(NewSession("s2", "a", "/w")),
    ):
        with pytest.raises(NewerJournalError, match="to version 99 while this one was running"):
            await work()
    assert await old.count() == 1
    await old.aclose()


async def test_one_that_is_at_it_and_does_not_end_is_waited_for_within_a_bound(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.0)
    journal = PostgresqlJournal(first)
    with psycopg.connect(first) as line:
        line.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
        with pytest.raises(JournalBusyError, match="try again"):
            await journal.count()
    assert await journal.count() == 0
    await journal.aclose()
