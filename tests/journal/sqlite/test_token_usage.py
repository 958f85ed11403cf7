"""Tokens and cost, as agents reported them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from acphold.conversation.history.entries import PastEntry, Segment
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import Grouping, Tokens
from acphold.journal.sql.usage_sums import MOST_COST, MOST_TOKENS
from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.connection import connect
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.token_reports import MOST, reports
from tests.conversations import encode
from tests.journal.conversations import cost, usage_reports, used


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
    assert sum(search_index.forget(other, search_index.volumes(other), [1]))
    other.close()
    assert await journal.index.catch_up(0) == 1
    await journal.index.catch_up(9)


async def test_what_an_agent_tells_beyond_all_sense_adds_up_to_a_number_all_the_same(
    journal: SqliteJournal,
) -> None:
    tokens = encode({"stopReason": "end_turn", "usage": {"totalTokens": MOST - 1}})
    many = [PastEntry("turn_end", at, tokens) for at in (-1 << 50, *range(1, 10_000), 1 << 50)]
    dear = [PastEntry(*pair[:1], 1, pair[1]) for pair in (cost(1e308), cost(0.0), cost(1e308))]
    lease = await journal.create(NewSession("s", "a", "/w"))
    await journal.take_in(lease, [*many, *dear], RowChange(prompted=True))
    for by in get_args(Grouping):
        total = (await journal.index.usage(by)).total
        assert (total.tokens.total, total.costs) == (MOST_TOKENS, {"USD": MOST_COST})
