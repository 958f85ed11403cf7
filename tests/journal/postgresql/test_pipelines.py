"""Connections on which the event loop itself asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from acphold.errors import LeaseLostError
from acphold.journal import bounds
from acphold.journal.journal import Append
from acphold.journal.postgresql.pipelines import Answer, Pipelines
from acphold.journal.postgresql.store import PostgresqlJournal
from acphold.journal.rows import NewSession
from tests.conversations import entries_of
from tests.journal.conftest import opened

pytestmark = pytest.mark.postgresql


@pytest_asyncio.fixture(params=["prepared", "behind a pooler"])
async def lines(request: pytest.FixtureRequest, location: str) -> AsyncIterator[Pipelines]:
    threshold = 2 if request.param == "prepared" else None
    made = Pipelines(
        lambda: psycopg.connect(location, autocommit=True, prepare_threshold=threshold)
    )
    await made.ready()
    yield made
    await made.aclose()


async def test_answers_come_in_the_order_of_the_questions(lines: Pipelines) -> None:
    asked = [lines.ask("SELECT %s::bigint, %s::text", (n, None)) for n in range(100)]
    assert [await it.wait() for it in asked] == [[[n.to_bytes(8), None]] for n in range(100)]


async def test_a_question_that_fails_has_no_answer_and_those_behind_it_have(
    lines: Pipelines,
) -> None:
    division = "SELECT 1 / %s::bigint"
    asked = [lines.ask(division, (n,)) for n in (1, 0, 1, 2**63, 1)]
    one = [[(1).to_bytes(8)]]
    assert [await it.wait() for it in asked] == [one, None, one, None, one]
    assert await lines.ask(division, (1,)).wait() == one


async def test_whoever_asks_while_the_connection_is_lost_has_no_answer_and_the_next_one_has(
    lines: Pipelines,
) -> None:
    asked = lines.ask("SELECT pg_terminate_backend(pg_backend_pid())", ())
    assert await asked.wait() is None
    assert await lines.ask("SELECT 1", ()).wait() is None
    await lines.ready()
    assert await lines.ask("SELECT 1::bigint", ()).wait() == [[(1).to_bytes(8)]]


async def test_who_waits_has_an_answer_in_the_next_pass_of_the_loop() -> None:
    answer = Answer[int]()
    waiting = asyncio.create_task(answer.wait())
    await asyncio.sleep(0)
    answer.set_result(7)
    await asyncio.sleep(0)
    assert waiting.done()
    assert await waiting == 7


async def test_who_is_cancelled_has_the_answer_all_the_same() -> None:
    answer = Answer[int]()
    had: list[int] = []

    async def wait() -> None:
        had.append(await answer.wait())
        await asyncio.sleep(0)
        had.append(-1)

    waiting = asyncio.create_task(wait())
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    answer.set_result(7)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert had == [7]


async def test_a_question_that_waits_too_long_ends_its_connection(
    lines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_bound", 0.1)
    [line] = lines._open
    monkeypatch.setattr(line, "_bound", 0.1)
    asked = [lines.ask(it, ()) for it in ("SELECT pg_sleep(60)", "SELECT 1")]
    assert [await it.wait() for it in asked] == [None, None]


async def test_the_loop_goes_on_while_more_is_written_than_the_server_takes_at_once(
    lines: Pipelines,
) -> None:
    large = b"x" * (16 << 20)
    asked = lines.ask("SELECT length(%s::bytea)::bigint", (large,))
    answer = asyncio.create_task(asked.wait())
    steps = 0
    while not answer.done():
        await asyncio.sleep(0)
        steps += 1
    assert await answer == [[len(large).to_bytes(8)]]
    assert steps > 10


async def test_many_sessions_append_at_once_over_few_connections(location: str) -> None:
    async with opened(location) as journal:
        names = [f"s{number}" for number in range(100)]
        leases = [await journal.create(NewSession(name, "a", "/w")) for name in names]
        other = PostgresqlJournal(location)
        await other.acquire("s7")
        for number in range(5):
            done = await journal.append_all(
                [Append(lease, [("update", [b"%d" % number])]) for lease in leases]
            )
            assert [n for n, it in enumerate(done) if isinstance(it, LeaseLostError)] == [7]
        await other.aclose()
        with psycopg.connect(location) as line:
            row = line.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND query LIKE 'WITH held%'"
            ).fetchone()
        assert row is not None
        assert 1 < row[0] <= bounds.PIPELINES + 1  # and a thread told of the lost one
        for name in names:
            raws = [it.raw for it in entries_of(await journal.read(name, 0))]
            assert raws == ([] if name == "s7" else [b"0", b"1", b"2", b"3", b"4"])
