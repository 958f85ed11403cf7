"""Search in a database finds the same, whichever way it takes."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
import pytest

from acphold.journal import bounds
from acphold.journal.postgresql import search
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.rows import ListFilter, NewSession
from acphold.journal.seams import Sought
from acphold.journal.sql.search import search as searched
from tests.conversations import chunk
from tests.journal.promises.promise import append, running, text, turn
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize("walked", [0, 3, 1000])
async def test_what_is_sought_is_found_newest_first_however_rare_it_is(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, walked: int
) -> None:
    monkeypatch.setattr(bounds, "WALKED_DOCUMENTS", walked)
    with databases.new() as url:
        journal = PostgresqlJournal(url)
        for number in range(8):
            lease = await journal.create(NewSession(f"s{number}", "ab"[number % 2], "/w"))
            said = "common word" if number else "common word, and a rare one"
            await append(journal, lease, turn("Go", chunk("agent_message", said)))
            await journal.settle(lease, lease.next_seq - 1)
        newest = [f"s{number}" for number in reversed(range(8))]
        for limit, agents in product((1, 3, 20), ((), ("a",))):
            found = await journal.index.search(Sought("common", limit=limit, agents=agents))
            wanted = [name for name in newest if not agents or int(name[1]) % 2 == 0]
            assert [hit.session_id for hit in found] == wanted[:limit]
        assert [hit.session_id for hit in await journal.index.search("rare")] == ["s0"]
        assert await journal.index.search("absent") == []
        await journal.aclose()


@pytest.mark.parametrize("seq", [1, 3])
async def test_a_row_that_cannot_be_read_keeps_no_other_from_being_found(
    databases: Databases, seq: int
) -> None:
    damage = (
        "UPDATE acphold.segments SET raw = '\\x28b52ffd00'"
        " WHERE session_id = 's2' AND last_seq = %s"
    )
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        journal = PostgresqlJournal(url)
        for name in ("s1", "s2"):
            lease = await journal.create(NewSession(name, "a", "/w"))
            await append(journal, lease, turn("Go", chunk("agent_message", f"needle{name}")))
            await journal.settle(lease, lease.next_seq - 1)
        line.execute(damage, [seq])
        line.execute("DELETE FROM acphold.documents")
        line.execute("UPDATE acphold.sessions SET indexed_through = 0")
        assert await journal.index.catch_up(9) == 0
        assert {hit.session_id for hit in await journal.index.search("needle*")} == {"s1", "s2"}
        line.execute(damage, [2])  # after it was indexed
        assert [hit.session_id for hit in await journal.index.search("needle*")] == ["s1"]
        await journal.aclose()


async def test_the_end_of_a_session_that_cannot_be_read_keeps_no_other_from_being_found(
    databases: Databases,
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        journal = PostgresqlJournal(url)
        for name in ("s1", "s2"):
            await running(journal, name, text("Go"), chunk("agent_message", "needle"))
        line.execute(
            "UPDATE acphold.segments SET raw = '\\x28b52ffd00'"
            " WHERE session_id = 's2' AND last_seq = 2"
        )
        assert [hit.session_id for hit in await journal.index.search("needle")] == ["s1"]
        await journal.aclose()


DOCUMENTS = """
    INSERT INTO acphold.documents (session_id, seq, at, words)
    SELECT 's' || n % 100, n, n, to_tsvector('simple', 'common w' || n % 50 || ' w' || n % 37)
    FROM generate_series(1, 30000) AS n
"""


def test_what_is_in_no_document_is_not_looked_for_in_each(databases: Databases) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(DOCUMENTS)
        line.execute("ANALYZE acphold.documents")
        line.execute("SET enable_seqscan = off")  # as where there are many more
        asked = {"query": "'absent'", "since": 0, "limit": 20}
        plan = line.execute(
            "EXPLAIN " + search._OF_ALL.format(asked="", documents="acphold.documents"), asked
        ).fetchall()
        assert "documents_words" in str(plan)
        assert "documents_at" not in str(plan)


OF_TENANTS = (
    """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        created_at, updated_at, prompted, tenant, settled_through, indexed_through)
    SELECT 's' || n, n, 'a', '/w', '/w', '[]', n, n, true,
        CASE WHEN n <= 2 THEN 'small' ELSE 'big' END, 10, 10
    FROM generate_series(1, 20000) AS n
    """,
    """
    INSERT INTO acphold.documents (session_id, seq, at, words, tenant)
    SELECT session_id, seq, number * 10 + seq, to_tsvector('simple', 'common w' || seq), tenant
    FROM acphold.sessions, generate_series(1, 3) AS seq
    """,
    "INSERT INTO acphold.shares VALUES ('s7', 'small', false)",
    "ANALYZE",
)
"""Two sessions of one tenant, three documents in each, and all others another one's, but for one
that is shared."""

READ = """
    SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
    FROM pg_stat_xact_user_tables WHERE schemaname = 'acphold' AND relname = %s
"""


def read_of(line: psycopg.Connection[tuple[Any, ...]], *names: str) -> list[int]:
    """The rows of these tables that were read, as the server counts them now."""
    rows = [line.execute(READ, (name,)).fetchone() for name in names]
    return [0 if row is None else int(row[0]) for row in rows]


@pytest.mark.parametrize("rank", [False, True])
@pytest.mark.parametrize("words", ["common", "w3", "absent", "common w3"])
def test_what_a_tenant_has_is_found_without_a_look_at_what_others_have(
    databases: Databases, words: str, rank: bool
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for statement in OF_TENANTS:
            line.execute(statement)
        with line.transaction():
            # The server may still count reads of an earlier transaction on this connection.
            before = read_of(line, "documents", "sessions")
            searched(
                PostgresqlTables(line),
                Sought(words, tenant="small", rank=rank),
                search.find_in_index,
            )
            read = read_of(line, "documents", "sessions")
        assert all(now - was <= 100 for was, now in zip(before, read, strict=True)), (before, read)


@pytest.mark.parametrize("tenant", [None, "small"])
def test_a_page_of_what_was_only_listed_looks_at_nothing_else(
    databases: Databases, tenant: str | None
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for statement in OF_TENANTS:
            line.execute(statement)
        with line.transaction():
            line.execute("UPDATE acphold.sessions SET unread = '' WHERE session_id IN ('s1', 's9')")
            before = line.execute(READ, ("sessions",)).fetchone()
            rows = PostgresqlTables(line).page(ListFilter(unread=True, tenant=tenant), None, 50)
            read = line.execute(READ, ("sessions",)).fetchone()
        assert [row.session_id for row in rows] == (["s1"] if tenant else ["s9", "s1"])
        assert read is not None
        assert before is not None
        assert read[0] - before[0] <= 20
