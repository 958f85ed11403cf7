"""A page of the list is read along an index, however many sessions there are."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.rows import ListFilter, ListKey
from acphold.journal.sql.session_tables import agents, granted
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

SESSIONS = 20_000
UNREAD = "n % 4 = 1 OR n % 2000 = 8"
"""Many of nobody's, few of the big tenant's."""

FILL = f"""
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        created_at, updated_at, prompted, unread, tenant, archived)
    SELECT 's' || n, n, 'a', '/w', '/w', '[]', n, n, true, CASE WHEN {UNREAD} THEN 'u'::bytea END,
        CASE WHEN n % 200 = 0 THEN 'small' WHEN n % 2 = 0 THEN 'big' ELSE '' END, n % 10 = 3
    FROM generate_series(1, {SESSIONS}) AS n
"""


def rows_read(line: Line) -> int:
    """Rows that a connection has read: by its transaction so far, and by those before it that the
    server has not yet added up."""
    (read,) = line.execute(
        "SELECT sum(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_xact_user_tables"
        " WHERE schemaname = 'acphold'"
    ).fetchone() or (None,)
    assert read is not None
    return int(read)


@pytest.mark.parametrize(
    ("filter", "rows"),
    [
        (ListFilter(), 20),
        (ListFilter(archived="include"), 20),
        (ListFilter(unread=True), 20),
        (ListFilter(unread=True, archived="include"), 20),
        (ListFilter(unread=True, include_unprompted=True, cwd="/w", agents=("a",)), 20),
        (ListFilter(tenant="small"), 20),
        (ListFilter(tenant="small", archived="include", cwd="/w", agents=("a",)), 20),
        (ListFilter(tenant="small", include_unprompted=True), 20),
        (ListFilter(tenant="big"), 20),
        (ListFilter(tenant="big", unread=True), 10),
        (ListFilter(tenant="big", unread=True, archived="include"), 10),
        (ListFilter(tenant="small", unread=True), 0),
        (ListFilter(agents=("b",), unread=True), 2),
        (ListFilter(cwd="/v"), 3),
    ],
)
def test_a_page_reads_hardly_more_rows_than_it_has(
    databases: Databases, filter: ListFilter, rows: int
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(FILL)
        line.execute("VACUUM ANALYZE")
        line.execute("UPDATE acphold.sessions SET agent = 'b' WHERE number IN (5, 7, 9)")
        line.execute("UPDATE acphold.sessions SET folder = '/v' WHERE number IN (11, 12, 14)")
        with psycopg.connect(url, prepare_threshold=1) as reader:
            tables, before = PostgresqlTables(reader), 0
            for _ in range(8):  # behind five, the server may keep a plan for all values
                assert len(tables.page(filter, None, 20)) == rows
                read, before = rows_read(reader) - before, rows_read(reader)
                assert read <= 5 * 20


def test_a_page_reads_hardly_more_blocks_of_ten_times_as_many_sessions(
    databases: Databases,
) -> None:
    blocks: list[int] = []
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for first, last in ((1, SESSIONS // 10), (SESSIONS // 10 + 1, SESSIONS)):
            line.execute(FILL.replace("series(1,", f"series({first},").replace("20000", f"{last}"))
            line.execute(
                "INSERT INTO acphold.segments SELECT session_id, 9, 1, 1, 'update', '{}'"
                " FROM acphold.sessions ON CONFLICT DO NOTHING"
            )
            line.execute(
                "INSERT INTO acphold.links SELECT 'a', session_id, session_id, number"
                " FROM acphold.sessions ON CONFLICT DO NOTHING"
            )
            line.execute("VACUUM ANALYZE")
            asked: list[tuple[str, Any]] = []

            class Tables(PostgresqlTables):
                def execute(self, statement: str, values: Any = ()) -> Any:
                    asked.append((statement, values))  # noqa: B023
                    return super().execute(statement, values)

            assert len(Tables(line).page(ListFilter(), None, 50, counted=False)) == 50
            [(statement, values)] = asked
            explained = line.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values
            ).fetchone()
            assert explained is not None
            plan = explained[0][0]["Plan"]
            blocks.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    assert blocks[1] <= 1.2 * blocks[0] <= 400, blocks  # the indexes are deeper


def test_a_page_of_many_sessions_is_planned_once(databases: Databases) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(FILL)
        line.execute("VACUUM ANALYZE")
        line.prepare_threshold = 2
        tables = PostgresqlTables(line)
        for place in range(20):
            assert len(tables.page(ListFilter(), ListKey(SESSIONS - place, ""), 20)) == 20
        plans = line.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
            " WHERE statement LIKE '%updated_at DESC%'"
        ).fetchall()
    assert plans == [(20 - 2 - 5, 5)]  # the server tries five, and keeps the one for all values


def test_the_owners_of_a_few_sessions_are_found_without_reading_all_leases(
    databases: Databases,
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(FILL)
        line.execute(
            "INSERT INTO acphold.leases SELECT session_id, 'o' || number % 3, 1, false"
            " FROM acphold.sessions"
        )
        line.execute(
            "INSERT INTO acphold.owners SELECT 'o' || n, '', n, '[]', now(), false, n, now()"
            " FROM generate_series(1, 20) AS n"
        )
        line.execute("VACUUM ANALYZE")
        with psycopg.connect(url) as reader:
            assert granted(PostgresqlTables(reader), ["s4", "s5", "s6", "s7"]) == {"s4", "s5", "s7"}
            assert rows_read(reader) <= 4 * 3 + 20


def test_the_agents_of_all_sessions_are_found_without_reading_all(databases: Databases) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        line.execute(FILL)
        line.execute("UPDATE acphold.sessions SET agent = 'b' WHERE number % 7 = 0")
        line.execute("VACUUM ANALYZE")
        with psycopg.connect(url) as reader:
            assert agents(PostgresqlTables(reader)) == ["a", "b"]
            assert rows_read(reader) <= 5
