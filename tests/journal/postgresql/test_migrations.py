"""A journal in a database is brought to this release: by one at a time, whole steps, from any."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import psycopg
import pytest

from acphold.conversation.history.entries import PastEntry
from acphold.errors import (
    JournalBusyError,
    JournalError,
    JournalUnavailableError,
    LeaseLostError,
    NewerJournalError,
    OlderJournalError,
)
from acphold.journal import bounds
from acphold.journal.journal import Append
from acphold.journal.postgresql import migrations
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.rows import NewSession, RowChange
from tests.journal.first_tables import first_tables
from tests.postgresql import Databases
from tests.raw_entries import prompt, update

pytestmark = pytest.mark.postgresql

FIRST, VERSION = migrations.FIRST, migrations.VERSION


MADE = (20, "96cb8bb5701d964e")
"""As for a file: see `tests.journal.sqlite.test_migrations`."""


def test_the_version_is_raised_with_each_change_of_the_tables() -> None:
    digest = sha256("\n".join(migrations.TABLES).encode()).hexdigest()[:16]
    assert (VERSION, digest) == MADE


COLUMNS = """
    SELECT table_name, column_name, data_type, column_default, is_nullable, collation_name
    FROM information_schema.columns WHERE table_schema = 'acphold' ORDER BY 1, 2
"""

INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'acphold' ORDER BY 1"


@pytest.mark.parametrize("is_next", [False, True])
def test_a_journal_of_the_first_version_gets_the_tables_of_this_one(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, is_next: bool
) -> None:
    if is_next:
        release(monkeypatch, NEXT, "ALTER TABLE acphold.sessions ADD COLUMN later text")
    with databases.new("template1") as old, databases.new("template1") as new:
        make(old)
        for url in (old, new):
            with psycopg.connect(url, autocommit=True) as line:
                migrations.migrate(line, "it", create=url == new)
        found = []
        for url in (old, new):
            with psycopg.connect(url) as line:
                found.append([line.execute(it).fetchall() for it in (COLUMNS, INDEXES)])
        assert found[0] == found[1]
        assert version(old) == version(new) == VERSION + is_next


def make(url: str) -> None:
    """Make an empty journal of the first version in a database."""
    first, statements = first_tables("postgresql")
    assert first == FIRST
    with psycopg.connect(url, autocommit=True) as line:
        line.execute("CREATE SCHEMA acphold")
        for statement in statements:
            line.execute(statement.encode())
        line.execute(
            "INSERT INTO acphold.meta VALUES ('cursor_secret', 'secret'), ('version', %s)",
            (str(first).encode(),),
        )


NEXT = "CREATE TABLE acphold.added (session_id text PRIMARY KEY)"


def release(monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """Be the next release, which makes these tables, too."""
    monkeypatch.setattr(migrations, "TABLES", (*migrations.TABLES, *more))
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)


@pytest.fixture
def first(databases: Databases) -> Iterator[str]:
    """A journal made by the first release."""
    with databases.new("template1") as url:
        make(url)
        yield url


def version(url: str) -> int:
    with psycopg.connect(url) as line:
        return migrations.version(line)


async def test_of_many_that_come_at_once_one_brings_it_to_this_release(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, NEXT)
    journals = [PostgresqlJournal(first, create=False) for _ in range(4)]
    assert await asyncio.gather(*(journal.count() for journal in journals)) == [0] * 4
    assert version(first) == VERSION + 1
    for journal in journals:
        await journal.aclose()


async def test_a_title_that_was_the_beginning_of_a_prompt_becomes_the_rules(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = PostgresqlJournal(first)
    title = "Hi! Can you please fix the flaky test?"
    lease = await journal.create(NewSession("s1", "a", "/", title=title))
    asked, named = prompt(title), update("session_info_update", title=title)
    await journal.append(lease, [(asked[0], [asked[1]])], RowChange(prompted=True))
    await journal.release(lease)
    lease = await journal.create(NewSession("s2", "a", "/"))
    told = [PastEntry(kind, 1, raw) for kind, raw in (asked, named)]
    await journal.take_in(lease, told, RowChange(prompted=True, title=title), release=True)
    await journal.aclose()
    release(monkeypatch, NEXT)
    journal = PostgresqlJournal(first)
    assert (await journal.session("s1")).title == "Fix the flaky test"
    assert (await journal.session("s2")).title == title
    await journal.aclose()


async def test_one_from_before_the_first_release_is_refused(first: str) -> None:
    with psycopg.connect(first) as line:
        line.execute("UPDATE acphold.meta SET value = '19' WHERE name = 'version'")
    journal = PostgresqlJournal(first)
    with pytest.raises(JournalUnavailableError, match=f"version {FIRST - 1}, from before"):
        await journal.count()
    await journal.aclose()


def test_who_reads_what_stays_as_it_is_is_not_waited_for(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, NEXT)
    with databases.new("template1") as url:
        make(url)
        with psycopg.connect(url) as reader, psycopg.connect(url, autocommit=True) as line:
            reader.execute("SELECT 1 FROM acphold.documents, acphold.segments")
            line.execute("SET lock_timeout = 1")
            migrations.migrate(line, "it", create=False)
        assert version(url) == VERSION + 1


WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_who_has_waited_for_the_upgrade_of_another_takes_no_lease_away(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, NEXT)
    with databases.new("template1") as url:
        make(url)

        def upgrade() -> None:
            with psycopg.connect(url, autocommit=True) as line:
                migrations.migrate(line, "it", create=False)

        with (
            ThreadPoolExecutor(1) as thread,
            psycopg.connect(url) as first,
            psycopg.connect(url, autocommit=True) as watch,
        ):
            first.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
            waiting = thread.submit(upgrade)
            while watch.execute(WAITS).fetchone() is None:
                assert not waiting.done()
            migrations.migrate(first, "it", create=False)
            first.execute("INSERT INTO acphold.leases VALUES ('s', 'me', 5, false)")
            first.commit()
            waiting.result()
            assert watch.execute("SELECT epoch FROM acphold.leases").fetchone() == (5,)


def test_tables_without_a_version_are_no_empty_journal(databases: Databases) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        migrations.migrate(line, "it", create=True)
        line.execute("DELETE FROM acphold.meta")  # as pg_restore --schema-only leaves it
        with pytest.raises(psycopg.errors.DuplicateTable):
            migrations.migrate(line, "it", create=True)
        assert line.execute("SELECT 1 FROM acphold.meta").fetchone() is None


async def test_an_upgrade_that_fails_leaves_it_as_it_was_and_is_made_by_the_next(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as half:
        release(half, NEXT, "SELECT 1 / 0")
        journal = PostgresqlJournal(first)
        with pytest.raises(JournalError):
            await journal.count()
    assert version(first) == FIRST
    release(monkeypatch, NEXT)
    assert await journal.count() == 0
    assert version(first) == VERSION + 1
    await journal.aclose()


async def test_who_has_a_lease_by_an_earlier_release_writes_nothing_more(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgresqlJournal(first)
    lease = await old.create(NewSession("s1", "a", "/w"))
    release(monkeypatch, NEXT)
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
    release(monkeypatch, NEXT)
    new = PostgresqlJournal(first)
    with pytest.raises(OlderJournalError, match=rf"process {os.getpid()} on .*`acphold agent stop"):
        await new.count()
    await old.append(lease, [("update", [b"1"])])
    await old.aclose()
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
    release(monkeypatch, NEXT)
    monkeypatch.setattr(bounds, "UPGRADE_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(bounds, "RETRY_SECONDS", 0.0)
    journal = PostgresqlJournal(first)
    with psycopg.connect(first) as line:
        line.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
        with pytest.raises(JournalBusyError, match="try again"):
            await journal.count()
    assert await journal.count() == 0
    with psycopg.connect(first) as line:
        line.execute("SELECT pg_advisory_xact_lock(%s)", (migrations.LOCK,))
        later = PostgresqlJournal(first)  # which has nothing to upgrade
        assert await later.count() == 0
        await later.aclose()
    await journal.aclose()
