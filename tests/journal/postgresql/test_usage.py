"""PostgreSQL sums up the same tokens and cost as the reports of all sessions."""

from __future__ import annotations

from itertools import product
from random import Random

import psycopg
import pytest

from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.seams import Grouping
from acphold.journal.sql import usage_sums
from acphold.journal.token_reports import SessionUsage
from tests.journal.sqlite.test_usage_sums import HOUR, expected, fill
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
        groupings: tuple[Grouping, ...] = ("agent", "day", "folder", "session")
        sinces = (0, 100 * HOUR, random.choice(times) + 1)
        wanted = product(groupings, (None, "a", "Copilot"), (None, "/w/one"), sinces)
        for by, agent, cwd, since in wanted:
            asked = usage_sums.SumsQuery(tables, (), cwd, since)
            reported = [*usage_sums.sessions(tables, since, asked.wanted, asked.values)]
            sums = usage_sums.sums(tables, by, (agent,) if agent else (), cwd, since)
            assert {sum_.name: sum_ for sum_ in sums.groups} == expected(reported, by, agent)
            if by == "session":  # the newest first
                names = [sum_.name for sum_ in sums.groups]
                assert names == [s.session_id for s in reported if s.session_id in names]
            of_all = [s for s in reported if agent in (None, s.agent, *_agents(s))]
            assert sums.total.sessions == len(of_all)
            assert sums.total.not_reported == sum(_is_silent(s, agent) for s in of_all)
            told = [sum_.tokens.total or 0 for sum_ in sums.groups]
            assert (sums.total.tokens.total or 0) == sum(told)
            assert sums.by_request == {
                report.agent
                for session in reported
                for report in session.reports
                if not report.by_turn and agent in (None, report.agent)
            }
        left = "SELECT session_id FROM acphold.usage EXCEPT SELECT session_id FROM acphold.sessions"
        assert line.execute(left).fetchall() == []
        await journal.aclose()


def _agents(session: SessionUsage) -> set[str]:
    return {report.agent for report in session.reports}


def _is_silent(session: SessionUsage, agent: str | None) -> bool:
    return not any(
        report.tokens is not None for report in session.reports if agent in (None, report.agent)
    )
