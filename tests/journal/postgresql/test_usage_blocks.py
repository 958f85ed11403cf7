"""Sums that a database keeps of many sessions are those of the sessions, whatever is open."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import psycopg
import pytest

from acphold.journal import bounds
from acphold.journal.postgresql import session_rows, usage_blocks
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.seams import Grouping, UsageSums
from acphold.journal.sql import usage_blocks as blocks, usage_sums
from acphold.journal.token_reports import SLOT_MS
from tests.journal.postgresql.test_list_page import rows_read
from tests.postgresql import Databases

pytestmark = pytest.mark.postgresql

GROUPINGS: Final[tuple[Grouping, ...]] = ("agent", "day", "folder", "model")

FILL: Final = (
    """
    INSERT INTO acphold.sessions (session_id, number, agent, cwd, folder, additional_directories,
        created_at, updated_at, prompted, summed_at)
    SELECT 's' || n, n * 7, 'a' || n % 3, '/w' || n % 4, '/w' || n % 4, '[]',
        n * 900000::bigint, n * 900000::bigint, true, n * 900000::bigint
    FROM generate_series({first}, {last}) AS n
    """,
    """
    INSERT INTO acphold.usage_sums
        (session_id, slot, agent, model, currency, told, by_request, cost, total)
    SELECT session_id, number / 7 + k, agent, 'm' || k, 'USD', 1, k, 0.5, 7
    FROM acphold.sessions CROSS JOIN generate_series(1, 3) AS k WHERE number >= 7 * {first}
    """,
    "INSERT INTO acphold.meta VALUES ('added_up', '') ON CONFLICT DO NOTHING",
    "VACUUM ANALYZE",
)
"""Sessions with 21 tokens each."""


def fill(line: Line, first: int, last: int) -> None:
    for statement in FILL:
        line.execute(statement.format(first=first, last=last).encode())


def make_all(line: Line) -> None:
    while usage_blocks.make_next(PostgresqlTables(line)):
        pass


def holding(line: Line) -> int:
    """The number of blocks that hold, after a comparison of all sums with those of the sessions."""

    def seen(sums: UsageSums) -> UsageSums:
        return UsageSums([*sums.groups], sums.total, sums.by_request)

    tables = PostgresqlTables(line)
    with tables.reading():
        for by, agents in product(GROUPINGS, ((), ("a1",), ("a0", "a2"), ("nobody",))):
            kept = usage_sums.sums(tables, by, agents, None, 0, usage_blocks.kept_sums)
            asked = seen(usage_sums.sums(tables, by, agents, None, 0))
            assert seen(kept) == asked, (by, agents)
        return len(usage_blocks.kept_sums(tables, "agent")[0])


@pytest.fixture
def line(location: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A connection to a journal with four blocks of eight sessions."""
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 8)
    with psycopg.connect(location, autocommit=True) as line:
        fill(line, 1, 34)
        delete(line, "s34")  # the mark of this hour is written
        make_all(line)
        assert holding(line) == 4
        yield line


def used(name: str) -> tuple[str, ...]:
    """Statements that report 7 tokens more in a session."""
    return (
        f"UPDATE acphold.usage_sums SET total = total + 7 WHERE session_id = '{name}'",
        f"UPDATE acphold.sessions SET changed = pg_current_xact_id() WHERE session_id = '{name}'",
    )


def do(line: Line, *statements: str) -> None:
    for statement in statements:
        line.execute(statement.encode())


def delete(line: Line, *names: str) -> None:
    with line.transaction():
        session_rows.delete(PostgresqlTables(line), names, as_if_never=False)


def test_what_is_committed_after_a_block_was_made_ends_it_whenever_it_began(
    line: Line, location: str
) -> None:
    with (
        psycopg.connect(location) as early,
        psycopg.connect(location) as open_one,
        psycopg.connect(location) as late,
    ):
        do(early, "SELECT pg_current_xact_id()")
        do(open_one, *used("s3"))
        do(late, *used("s10"))
        late.commit()
        assert holding(line) == 3
        make_all(line)  # beside two that are open
        assert holding(line) == 4
        do(late, *used("s11"))
        late.commit()
        do(early, *used("s12"))
        make_all(line)
        assert holding(line) == 4
        early.commit()  # its number is lower than that of the change before
        assert holding(line) == 3
        open_one.commit()
        assert holding(line) == 2
        make_all(line)
        assert holding(line) == 4


def test_a_reader_sees_the_blocks_of_its_moment(line: Line, location: str) -> None:
    with psycopg.connect(location) as reader:
        tables = PostgresqlTables(reader)
        with tables.reading():
            before = usage_sums.sums(tables, "agent", (), None, 0, usage_blocks.kept_sums).total
            do(line, *used("s3"))
            delete(line, "s20")
            make_all(line)
            after = usage_sums.sums(tables, "agent", (), None, 0, usage_blocks.kept_sums).total
            assert after == before
        assert holding(reader) == 4


def test_a_session_that_is_deleted_while_its_block_is_made_is_not_in_it(
    line: Line, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums_of = blocks._sums_of
    do(line, *used("s3"))
    with psycopg.connect(location, autocommit=True) as other:

        def meanwhile(*given: object) -> bytes:
            delete(other, "s5")
            return sums_of(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(blocks, "_sums_of", meanwhile)
            assert usage_blocks.make_next(PostgresqlTables(line))
    assert holding(line) == 3
    make_all(line)
    assert holding(line) == 4
    assert line.execute("SELECT count(*) FROM acphold.usage_ends").fetchone() == (0,)


def test_deletions_in_the_same_blocks_wait_neither_for_each_other_nor_for_the_upkeep(
    line: Line, location: str
) -> None:
    with (
        psycopg.connect(location) as one,
        psycopg.connect(location) as two,
        psycopg.connect(location) as keeper,
    ):
        for other in (one, two):
            do(other, "SET lock_timeout = 1")
        do(keeper, "LOCK acphold.usage_blocks IN SHARE UPDATE EXCLUSIVE MODE")
        delete(one, "s1")
        delete(two, "s10")
        delete(one, "s11")
        delete(two, "s2")
        assert holding(line) == 4
        two.commit()
        assert holding(line) == 2
        one.rollback()
        assert holding(line) == 2
        assert not usage_blocks.make_next(PostgresqlTables(line)), "another process is at it"
        keeper.rollback()
        make_all(line)
        assert holding(line) == 4


def test_no_sums_of_a_deleted_session_are_kept(line: Line) -> None:
    delete(line, "s1", "s8", "s30")
    rows = line.execute("SELECT highest FROM acphold.usage_blocks ORDER BY 1").fetchall()
    assert rows == [(17 * 7 - 1,), (25 * 7 - 1,)]


def test_blocks_of_another_server_do_not_hold(line: Line) -> None:
    do(line, "UPDATE acphold.meta SET value = '1 1 1 ' WHERE name = 'usage_blocks'")
    assert holding(line) == 0
    make_all(line)
    assert holding(line) == 4


FEW, MANY = 2 * 1024 + 100, 19 * 1024 + 100


def test_hardly_more_is_read_for_the_sums_of_ten_times_as_many_sessions(
    databases: Databases,
) -> None:
    ways = [*product(GROUPINGS, ((), ("a1",)), (None,)), *product(GROUPINGS, ((),), ("/mine",))]
    read: dict[tuple[Grouping, tuple[str, ...], str | None], list[int]] = {it: [] for it in ways}
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            fill(line, first, last)
            do(
                line,
                "UPDATE acphold.sessions SET cwd = '/mine', folder = '/mine' WHERE number < 70",
                "VACUUM ANALYZE",
            )
            make_all(line)
            for by, agents, cwd in ways:
                with psycopg.connect(url) as reader:
                    tables = PostgresqlTables(reader)
                    found = usage_sums.sums(tables, by, agents, cwd, 0, usage_blocks.kept_sums)
                    known = 9 if cwd else len(range(1, last + 1, 3)) if agents else last
                    assert found.total.tokens.total == known * 21
                    read[by, agents, cwd].append(rows_read(reader))
    assert all(many < few * 1.2 for few, many in read.values()), read


SINCE = 300
"""Sessions that were active since the time that is asked for."""


def test_what_is_read_for_the_sums_since_a_time_does_not_grow_with_what_was_before(
    databases: Databases,
) -> None:
    groupings: tuple[Grouping, ...] = ("day", "session")
    ways = [*product(groupings, ((), ("a1",)), (None, "/w1"), (0, 1))]
    read: dict[tuple[Grouping, tuple[str, ...], str | None, int], list[int]]
    read = {it: [] for it in ways}
    with databases.new() as url, psycopg.connect(url, autocommit=True) as line:
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            fill(line, first, last)
            for by, agents, cwd, within in ways:  # a slot is a quarter of an hour
                since = (last - SINCE) * SLOT_MS + within
                with psycopg.connect(url, prepare_threshold=1) as reader:
                    tables, before = PostgresqlTables(reader), 0
                    for _ in range(7):  # behind five, the server may keep a plan for all values
                        usage_sums.sums(tables, by, agents, cwd, since, usage_blocks.kept_sums)
                        now, before = rows_read(reader) - before, rows_read(reader)
                read[by, agents, cwd, within].append(now)
    assert all(many < few * 1.2 for few, many in read.values()), read
