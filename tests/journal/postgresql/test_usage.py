"""PostgreSQL sums up the same tokens and cost as the reports of all sessions."""

from __future__ import annotations

from random import Random

import psycopg
import pytest

from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.seams import Grouping, UsageSums
from acphold.journal.sql import usage_sums
from acphold.journal.token_reports import SessionUsage
from tests.journal.sqlite.test_usage_sums import fill, keeps_sums
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize("seed", range(2))
async def test_all_that_was_reported_is_in_the_sums_and_nothing_else(
    databases: Databases, seed: int
) -> None:
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        journal, tables = PostgresqlJournal(url), PostgresqlTables(line)
        random = Random(seed)
        times = await fill(journal, random)

        async def reported(cwd: str | None, since: int) -> list[SessionUsage]:
            asked = usage_sums.SumsQuery(tables, "agent", (), cwd, since)
            return [*usage_sums.sessions(tables, since, asked.wanted, asked.values)]

        async def sums(
            by: Grouping, agents: tuple[str, ...], cwd: str | None, since: int
        ) -> UsageSums:
            return usage_sums.sums(tables, by, agents, cwd, since)

        await keeps_sums(times, random, reported, sums)
        left = "SELECT session_id FROM acphold.usage EXCEPT SELECT session_id FROM acphold.sessions"
        assert line.execute(left).fetchall() == []
        await journal.aclose()
