"""What a prompt costs, exactly: see `bench.exact`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg
import pytest

from acphold.journal import bounds as journal_bounds
from acphold.journal.postgresql.database import Database
from acphold.journal.postgresql.pipelines import Pipelines
from acphold.journal.postgresql.session_rows import appending
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.live.hub import bounds
from bench.exact import PAUSE, RELAY, SOCKET, measure, measure_line
from tests.hub.shared import shared
from tests.postgresql import Databases

COSTS = {
    ("hub", "prompt"): (5_850, 114, 8_240, 33_200),
    ("hub", PAUSE): (6_428, 366, 41_200, 33_100),
    ("hub", "prompt with ten updates"): (8_690, 165, 22_145, 36_500),
    ("hub", "prompt with ten updates apart"): (22_816, 624, 58_710, 37_800),
    ("hub", "load of 1,000"): (30_200, 744, 0, 3_150),
    ("hub", "one more client"): (9_978, 165, 22_145, 36_500),
    ("library", "prompt"): (5_400, 136, 4_120, 33_500),
    ("library", PAUSE): (6_043, 390, 37_080, 33_300),
    ("library", "prompt with ten updates"): (7_756, 180, 21_630, 35_300),
    ("library", "prompt with ten updates apart"): (27_438, 646, 60_770, 37_800),
    ("library", "load of 1,000"): (30_180, 744, 0, 3_150),
    ("library", "one more client"): (9_060, 180, 21_630, 36_900),
    (SOCKET, "prompt"): (6_233, 180, 6_180, 33_800),
    (SOCKET, "prompt with ten updates"): (8_956, 224, 21_115, 37_200),
    (SOCKET, "prompt with ten updates apart"): (29_315, 690, 57_165, 38_200),
    (RELAY, "prompt"): (868, 0, 0, 772),
    (RELAY, "prompt with ten updates"): (1_268, 0, 0, 772),
}
"""Bytecodes until the answer, on Python 3.11, steps of SQLite's machine, bytes that its log grows
by, and at most so many bytecodes behind the answer; of a library's agent only those in which its
own code has a part. Whoever changes one says in the commit why it had to rise; one that fell is
lowered here, so that it stays so."""

LINES = {
    "list --all": (554, 110),
    "list --json --all": (460, 76),
    "usage --by session": (386, 145),
}
"""Bytecodes, on Python 3.11, and steps of SQLite's machine for each line that a command prints."""

EXACT = 0.01
"""A cost that rises by less, as a part, need not be explained."""

BEHIND = 1.15
"""More than the table has, behind an answer, at most: how often threads look for work differs."""

OTHER_PYTHONS = 1.25
"""Bytecodes of another minor version than 3.11, as a multiple, at most."""


@pytest.mark.parametrize(("kind", "work"), COSTS)
def test_the_cost_of_a_prompt_is_that_of_the_table(kind: str, work: str) -> None:
    expected, steps, log_bytes, behind = COSTS[kind, work]

    cost = measure(kind, work)
    is_same = abs(cost.bytecodes - expected) <= EXACT * expected
    if sys.version_info[:2] != (3, 11):
        is_same = cost.bytecodes <= OTHER_PYTHONS * expected
        behind *= OTHER_PYTHONS
    dearest = f"the table has {expected}; dearest: {cost.dearest}"
    assert is_same, f"{cost.bytecodes} bytecodes, {dearest}"
    assert cost.steps == pytest.approx(steps, EXACT, 1)
    assert cost.log_bytes == pytest.approx(log_bytes, EXACT)
    assert cost.bytecodes_behind <= BEHIND * behind


@pytest.mark.parametrize("command", LINES)
def test_the_cost_of_a_line_of_a_list_is_that_of_the_table(command: str) -> None:
    expected, steps = LINES[command]

    cost = measure_line(command)
    is_same = abs(cost.bytecodes - expected) <= EXACT * expected
    if sys.version_info[:2] != (3, 11):
        is_same = cost.bytecodes <= OTHER_PYTHONS * expected
    assert is_same, f"{cost.bytecodes} bytecodes, the table has {expected}; dearest: {cost.dearest}"
    assert cost.steps == pytest.approx(steps, EXACT, 1)


@pytest.mark.postgresql
@pytest.mark.parametrize(("reads", "statements"), [([], 2), ([10], 3), ([1] * 10, 12)])
async def test_a_prompt_on_a_database_costs_a_statement_for_each_read_of_its_agent_and_two(
    reads: list[int], statements: int, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask, run = Pipelines.ask, Database.run

    def note(self: Pipelines, statement: str, values: Any) -> Any:
        asked.append(statement)
        return ask(self, statement, values)

    async def note_work(self: Database, work: Any, **options: bool) -> Any:
        asked.append("in a thread")
        return await run(self, work, **options)

    monkeypatch.setattr(journal_bounds, "ANNOUNCED_SECONDS", 600.0)  # all that comes by the clock
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 600.0)
    monkeypatch.setattr(bounds, "REST_SECONDS", 600.0)
    with databases.new() as location:
        async with shared(location) as house:
            client, session = await house.talked("hi", "hello")
            monkeypatch.setattr(Pipelines, "ask", note)
            monkeypatch.setattr(Database, "run", note_work)
            turn = await house.begun(client, session, "hi")
            for number in reads:
                await house.agent.say(session, *["x "] * number)
            await house.ended(session, turn)
            assert asked == [appending(1)] * statements


@pytest.mark.postgresql
async def test_a_session_of_three_turns_touches_few_rows_of_a_database_with_20_000_sessions(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 600.0)
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    settled = asyncio.Event()
    settle = PostgresqlJournal.settle

    async def note(self: PostgresqlJournal, *arguments: Any, **options: Any) -> None:
        await settle(self, *arguments, **options)
        settled.set()

    monkeypatch.setattr(PostgresqlJournal, "settle", note)
    with databases.new() as location, psycopg.connect(location, autocommit=True) as line:
        for statement in SETTLED_SESSIONS:
            line.execute(statement)
        before = _rows_touched(line)
        async with shared(location) as house:
            client, session = await house.talked("hi", "hello")
            for text in ("again", "and again"):
                settled.clear()
                turn = await house.begun(client, session, text)
                await house.agent.say(session, *["x "] * 10)
                await house.ended(session, turn)
            await settled.wait()
        assert _rows_touched(line) - before <= 300


SETTLED_SESSIONS = (
    """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        title, created_at, updated_at, summed_at, prompted, message_count, settled_through,
        indexed_through, packed_through)
    SELECT 's' || n, n, 'a', '/', '/', '[]', 'Words', n, n, n, true, 2, 3, 3, 3
    FROM generate_series(1, 20000) AS n
    """,
    "INSERT INTO acphold.leases SELECT session_id, '', 1, false FROM acphold.sessions",
    "INSERT INTO acphold.links SELECT 'a', session_id, session_id, number FROM acphold.sessions",
    "INSERT INTO acphold.segments"
    " SELECT session_id, 3, 1, updated_at, 'update', '{}' FROM acphold.sessions",
    "INSERT INTO acphold.usage_sums SELECT session_id, 1, 'a', '', '', 1, 1 FROM acphold.sessions",
    "INSERT INTO acphold.documents (session_id, seq, at, words)"
    " SELECT session_id, 1, updated_at, 'word' FROM acphold.sessions",
    "INSERT INTO acphold.shares SELECT session_id, 'guest', true FROM acphold.sessions",
    "INSERT INTO acphold.meta VALUES ('added_up', '')",  # else all are looked through, once
    "VACUUM ANALYZE",
)


def _rows_touched(line: psycopg.Connection[Any]) -> int:
    """Rows that were read or written by connections that have ended, and by `line`."""
    others = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    while line.execute(others).fetchone():
        pass
    line.execute("SELECT pg_stat_force_next_flush()")
    (touched,) = line.execute(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd + n_tup_del)"
        "::bigint FROM pg_stat_user_tables WHERE schemaname = 'acphold'"
    ).fetchone() or (0,)
    return int(touched)
