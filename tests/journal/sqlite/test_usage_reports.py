"""Tokens and cost, session by session, as agents reported them."""

from __future__ import annotations

from typing import Any

from acphold.conversation.history.entries import PastEntry
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.token_reports import SessionUsage
from tests.conversations import encode
from tests.journal.conversations import cost, usage_reports, used

DAY = 24 * 3600 * 1000


def answer(**more: Any) -> tuple[str, bytes]:
    """The end of a turn."""
    return "turn_end", encode({"stopReason": "end_turn", **more})


async def told(
    journal: SqliteJournal, *days: list[tuple[str, bytes]], agent: str = "a", cwd: str = "/w"
) -> SessionUsage:
    """The usage of a session with these entries, a list for each day."""
    lease = await journal.create(NewSession(f"s-{agent}", agent, cwd))
    for number, entries in enumerate(days, 1):
        past = [PastEntry(kind, number * DAY, raw) for kind, raw in entries]
        await journal.take_in(lease, past, RowChange(updated_at=number * DAY, prompted=True))
        await journal.index.catch_up(9)
    (found,) = await usage_reports(journal)
    return found


async def test_tokens_of_each_turn_are_kept_with_their_times(journal: SqliteJournal) -> None:
    found = await told(journal, [answer(**used(100))], [answer(**used(50)), answer(**used(70))])
    assert [(r.at, r.tokens and r.tokens.total) for r in found.reports] == [
        (DAY, 100),
        (2 * DAY, 50),
        (2 * DAY, 70),
    ]


async def test_each_turn_gets_what_came_to_it_where_an_agent_counts_the_whole_session(
    journal: SqliteJournal,
) -> None:
    turns = [answer(**used(100)), answer(**used(150)), answer(**used(30)), answer(**used(45))]
    found = await told(journal, turns, agent="Copilot")
    assert [r.tokens and r.tokens.total for r in found.reports] == [100, 50, 30, 15]
    assert [r.tokens and r.tokens.output for r in found.reports] == [10, 0, 0, 0]


async def test_what_import_wrote_of_that_agent_is_by_turn(journal: SqliteJournal) -> None:
    ours = {"_meta": {"acphold/model": "m"}}
    found = await told(
        journal, [answer(**used(100), **ours), answer(**used(150), **ours)], agent="Copilot"
    )
    assert [r.tokens and r.tokens.total for r in found.reports] == [100, 150]


async def test_cost_is_of_the_session_and_each_report_has_what_came_to_it(
    journal: SqliteJournal,
) -> None:
    found = await told(journal, [cost(0.5)], [cost(0.75), cost(0.5, "EUR")], [cost(0.25)])
    assert [(r.at // DAY, r.cost, r.currency) for r in found.reports] == [
        (1, 0.5, "USD"),
        (2, 0.25, "USD"),
        (2, 0.5, "EUR"),
        (3, 0.25, "USD"),  # it was started again
    ]


async def test_what_a_turn_reported_that_is_not_settled_counts(journal: SqliteJournal) -> None:
    lease = await journal.create(NewSession("s", "Copilot", "/w"))
    for total in (100, 150):
        kind, raw = answer(**used(total))
        await journal.append(lease, [(kind, [raw])], RowChange(prompted=True))
        if total == 100:
            await journal.settle(lease, lease.next_seq - 1)
    (found,) = await usage_reports(journal)
    assert [report.tokens and report.tokens.total for report in found.reports] == [100, 50]


async def test_each_report_before_a_sum_is_taken_away_from_it(journal: SqliteJournal) -> None:
    sums = {"usage": {"inputTokens": 200, "outputTokens": 20, "totalTokens": 220}}
    whole = answer(_meta={"acphold/soFar": sums | {"cost": {"amount": 2.0, "currency": "USD"}}})
    found = await told(journal, [answer(**used(100))], [whole], [whole], [answer(**used(50))])
    assert [r.tokens and r.tokens.total for r in found.reports] == [100, 120, 0, 50]
    assert [r.cost for r in found.reports] == [None, 2.0, 0.0, None]
    assert [r.by_turn for r in found.reports] == [False, True, True, False]


async def test_tokens_of_a_turn_count_beside_the_cost_of_the_session(
    journal: SqliteJournal,
) -> None:
    ends = [
        answer(**used(100), _meta={"acphold/soFar": {"cost": {"amount": it, "currency": "USD"}}})
        for it in (0.5, 0.75)
    ]
    found = await told(journal, ends)
    assert [(r.tokens and r.tokens.total, r.cost) for r in found.reports] == [
        (100, 0.5),
        (100, 0.25),
    ]
