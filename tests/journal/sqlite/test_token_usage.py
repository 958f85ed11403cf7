"""Tokens and cost, as agents reported them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from acphold.record.history.entries import Segment
from acphold.record.journal import NewSession, RowChange, Tokens
from acphold.record.journal.seams import Repaired
from acphold.record.journal.sql import usage_rows
from acphold.record.journal.sqlite import search_index
from acphold.record.journal.sqlite.connection import connect
from acphold.record.journal.sqlite.session_rows import SqliteTables
from acphold.record.journal.sqlite.store import SqliteJournal
from acphold.record.journal.token_reports import MOST, SLOT_MS, Report, reports
from tests.journal.conversations import cost, encode, usage_reports, used


def reported(kind: str, raw: bytes) -> Tokens | None:
    """The tokens that one entry reports."""
    found = reports([Segment(1, 1, kind, 0, raw)])
    return found[0].tokens if found else None


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("turn_end", used(100, cachedReadTokens=5), Tokens(90, 10, None, 5, None, 100)),
        ("turn_end", {"usage": {"inputTokens": 3, "outputTokens": 4}}, Tokens(3, 4, total=7)),
        (
            "turn_end",
            {"_meta": {"quota": {"token_count": {"input_tokens": 3, "output_tokens": 4}}}},
            Tokens(3, 4, total=7),
        ),
        (
            "update",
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": ""},
                "_meta": {"usage": {"inputTokens": 8, "outputTokens": 2, "thoughtTokens": 1}},
            },
            Tokens(8, 2, 1, total=10),
        ),
        ("turn_end", {"stopReason": "end_turn"}, None),
        ("turn_end", {"usage": None}, None),
        ("turn_end", {"usage": {"inputTokens": "many"}}, None),
        ("turn_end", {"usage": {"inputTokens": -1, "totalTokens": 1 << 60}}, None),
        ("turn_end", {"_meta": {"quota": {"token_count": 7}}}, None),
        ("update", {"sessionUpdate": "usage_update", "used": 5, "size": 9}, None),
        ("update", {"sessionUpdate": "agent_message_chunk", "content": '"usage"'}, None),
        ("prompt", [{"type": "text", "text": '"usage"'}], None),
    ],
)
def test_tokens_are_read_where_agents_report_them(
    kind: str, value: object, expected: Tokens | None
) -> None:
    assert reported(kind, encode(value)) == expected


def test_what_is_no_json_reports_nothing() -> None:
    assert reported("turn_end", b'{"usage": tokens') is None
    assert reported("update", b'"usage_update"') is None


async def test_a_cost_that_the_next_made_void_is_still_known(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await journal.create(NewSession("s", "a", "/w"))
    for amount in (1.0, 3.0):
        kind, raw = cost(amount)
        await journal.append(lease, [(kind, [raw])], RowChange(prompted=True))
        await journal.settle(lease, lease.next_seq - 1)
    (found,) = await usage_reports(journal)
    assert [report.cost for report in found.reports] == [1.0, 2.0]
    await rebuilt(journal, path)
    (found,) = await usage_reports(journal)
    assert [report.cost for report in found.reports] == [1.0, 2.0]


async def rebuilt(journal: SqliteJournal, path: Path) -> None:
    other = connect(str(path), 60.0)
    for _ in search_index.forget(other):
        pass
    other.close()
    assert await journal.index.catch_up(0) == 1
    await journal.index.catch_up(9)


def in_any_order(random: Random) -> Iterator[list[Report]]:
    """Reports of a session as they may come to be kept: in pieces, some of them late or twice, of
    a clock that goes back; with whatever an agent may tell."""
    at = 1000 * SLOT_MS
    told: list[Report] = []
    for seq in range(1, 200):
        at += random.choice([0, 1, SLOT_MS // 7, SLOT_MS, -SLOT_MS])
        tokens = random.choice(
            [None, Tokens(total=seq), Tokens(seq, 1, None, seq), Tokens(MOST - 1)]
        )
        cost = random.choice([None, seq / 8, random.random(), 1e308])
        currency = "" if cost is None else random.choice(["USD", "USD", "EUR", "", f"C{seq}"])
        so_far = random.randrange(20) == 0
        told.append(Report(seq, at, tokens, seq % 3 == 0 and not so_far, cost, currency, so_far))
    pieces = [told[start : start + 7] for start in range(0, len(told), 7)]
    late = random.randrange(len(pieces))
    pieces.insert(random.randrange(len(pieces)), pieces[late])
    pieces.append(pieces.pop(random.randrange(len(pieces))))
    yield from pieces


@pytest.mark.parametrize("seed", range(8))
async def test_the_sums_by_slots_are_what_was_reported_in_whatever_order_it_is_kept(
    path: Path, seed: int
) -> None:
    await SqliteJournal.open(path).aclose()
    database = connect(str(path), 60.0)
    for some in in_any_order(Random(seed)):
        usage_rows.keep(SqliteTables(database), 7, some)
        assert usage_rows.has_right_sums(SqliteTables(database), 7)
    (kept,) = database.execute("SELECT count(*) FROM usage_slots").fetchone()
    assert kept > 10
    database.close()


async def test_wrong_sums_are_seen_and_made_anew(journal: SqliteJournal, path: Path) -> None:
    lease = await journal.create(NewSession("s", "a", "/w"))
    kind, raw = cost(2.0)
    await journal.append(lease, [(kind, [raw])], RowChange(prompted=True))
    await journal.settle(lease, lease.next_seq - 1)
    assert await journal.file.find_spoiled() == []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE usage_costs SET cost = 3.0")
    assert await journal.file.find_spoiled() == ["s"]
    assert await journal.file.repair() == Repaired(("s",), 0)
    assert await journal.file.find_spoiled() == []
    assert (await journal.index.usage("agent")).total.costs == {"USD": 2.0}
