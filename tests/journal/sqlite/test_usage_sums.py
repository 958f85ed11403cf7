"""SQLite sums up the same tokens and cost as the reports of all sessions."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import Origin, PastEntry
from acphold.journal.journal import Journal
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.seams import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.sql import usage_sums
from acphold.journal.sql.store import SqlJournal
from acphold.journal.sqlite.connection import Connection, connect
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal
from acphold.journal.token_reports import COUNTS, SessionUsage, UsageReport
from tests.journal.conversations import usage_reports

HOUR = 3_600_000
MINUTE = 60_000
AGENTS = ("a", "b", "Copilot")
FOLDERS = ("/w/one", "/w/two")


def entries(random: Random) -> Iterator[tuple[str, bytes]]:
    """Some turns, with whatever an agent may report of them."""
    for _ in range(random.randrange(5)):
        yield "prompt", b"[]"
        for _ in range(random.randrange(3)):
            cost = {"amount": random.randrange(8) / 4, "currency": random.choice(["USD", "EUR"])}
            yield "update", json.dumps({"sessionUpdate": "usage_update", "cost": cost}).encode()
        end: dict[str, object] = {"stopReason": "end_turn"}
        usage = {"inputTokens": random.randrange(99), "totalTokens": random.randrange(99)}
        match random.randrange(5):
            case 0:
                end["_meta"] = {"acphold/soFar": {"usage": usage}}
            case 1:
                end["_meta"] = {"acphold/turn": {}}
                end["usage"] = usage
            case 2 | 3:
                end["usage"] = usage
        yield "turn_end", json.dumps(end).encode()


def moment(random: Random, hours: int) -> int:
    """A time within so many hours, some of which are the same slot, and few the same moment."""
    return random.randrange(hours * HOUR // MINUTE) * MINUTE


async def fill(journal: Journal, random: Random) -> list[int]:
    """Make sessions with reports, and delete some of them; the times at which was reported."""
    times = []
    for number in range(40):
        agent = random.choice(AGENTS)
        name = f"s{number}"
        origins = (Origin(name, "b", 3),) if random.randrange(5) == 0 else ()
        new = NewSession(name, agent, random.choice(FOLDERS), title=name, origins=origins)
        lease = await journal.create(new)
        at = HOUR + moment(random, 200)
        newest = at
        is_archived = random.randrange(4) == 0
        for _ in range(random.randrange(4)):
            past = []
            for kind, raw in entries(random):
                # The clock may go back.
                at = max(0, at + random.choice([0, moment(random, 1), moment(random, 40) - HOUR]))
                past.append(PastEntry(kind, at, raw))
                times.append(at)
            newest = max(newest, at)
            change = RowChange(updated_at=newest, prompted=True, archived=is_archived)
            await journal.take_in(lease, past, change)
        await journal.change(lease, RowChange(prompted=True, updated_at=newest))
        if random.randrange(5) == 0:
            usage = b'{"stopReason":"end_turn","usage":{"totalTokens":7}}'
            change = RowChange(updated_at=newest + 1)  # as when a turn begins
            await journal.append(lease, [("turn_end", [usage])], change)
        if random.randrange(8) == 0:
            await journal.delete(lease)
    await journal.index.catch_up(30)
    return times


def group(session: SessionUsage, by: Grouping, report: UsageReport | None) -> str:
    at = session.updated_at if report is None else report.at
    return {
        "agent": session.agent if report is None else report.agent,
        "day": datetime.fromtimestamp(at / 1000).date().isoformat(),
        "folder": session.cwd,
        "session": session.session_id,
    }[by]


def expected(found: list[SessionUsage], by: Grouping, agent: str | None) -> dict[str, UsageSum]:
    """The sums, as one would say it: report by report."""
    sums: dict[str, UsageSum] = {}
    for session in found:
        reports = [report for report in session.reports if agent in (None, report.agent)]
        if not reports and agent not in (None, session.agent):
            continue
        names = {group(session, by, report) for report in reports}
        names = names or {group(session, by, None)}
        for name in names:
            part = [report for report in reports if group(session, by, report) == name]
            sum_ = sums.setdefault(name, UsageSum(name, name if by == "session" else None))
            sum_.sessions += 1
            told = [report.tokens for report in part if report.tokens is not None]
            sum_.not_reported += not told
            for field in COUNTS:
                counts = [getattr(tokens, field) for tokens in (sum_.tokens, *told)]
                known = [count for count in counts if count is not None]
                values = {name: getattr(sum_.tokens, name) for name in COUNTS}
                sum_.tokens = Tokens(**values | {field: sum(known) if known else None})
            for report in part:
                if report.cost is not None:
                    before = sum_.costs.get(report.currency, 0.0)
                    sum_.costs = {**sum_.costs, report.currency: before + report.cost}
    return sums


async def keeps_sums(journal: SqlJournal[Any], times: list[int], random: Random) -> None:
    """Compare the sums of a store with the reports of its sessions, the newest first."""
    groupings: tuple[Grouping, ...] = ("agent", "day", "folder", "session")
    sinces = (0, 100 * HOUR, random.choice(times) + 1)
    wanted = product(groupings, (None, "a", "b", "Copilot"), (None, "/w/one"), sinces)
    for by, agent, cwd, since in wanted:
        reported = await usage_reports(journal, cwd=cwd, since=since)
        agents = (agent,) if agent else ()
        sums = await journal.index.usage(by, agents=agents, cwd=cwd, since=since)
        assert {sum_.name: sum_ for sum_ in sums.groups} == expected(reported, by, agent)
        of_all = [s for s in reported if agent in (None, s.agent, *(r.agent for r in s.reports))]
        its = [[r for r in s.reports if agent in (None, r.agent)] for s in of_all]
        assert sums.total.sessions == len(of_all)
        assert sums.total.not_reported == sum(all(r.tokens is None for r in it) for it in its)
        told = [sum_.tokens.total or 0 for sum_ in sums.groups]
        assert (sums.total.tokens.total or 0) == sum(told)
        if by == "session":
            assert [sum_.name for sum_ in sums.groups] == [s.session_id for s in of_all]
        elif by == "day":
            names = [sum_.name for sum_ in sums.groups]
            assert names == sorted(names, reverse=True)
        assert sums.by_request == {r.agent for it in its for r in it if not r.by_turn}


async def test_reports_that_are_settled_are_added_up_by_the_database_and_not_gone_through(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = []
    for number in range(4):
        leases.append(lease := await journal.create(NewSession(f"s{number}", "a", "/w")))
        for turn in range(3):
            end = {
                "stopReason": "end_turn",
                "usage": {"totalTokens": 10},
                "_meta": {"acphold/model": f"m{turn}"},
            }
            change = RowChange(prompted=True, updated_at=HOUR * (1 + number))
            await journal.append(
                lease, [("prompt", [b"[]"]), ("turn_end", [json.dumps(end).encode()])], change
            )
            await journal.settle(lease, lease.next_seq - 1)
    gone_through = []
    read = usage_sums.sessions

    def noted(*given: Any, **named: Any) -> Iterator[SessionUsage]:
        for session in read(*given, **named):
            gone_through.append(session.session_id)
            yield session

    monkeypatch.setattr(usage_sums, "sessions", noted)

    async def by_model(**given: Any) -> dict[str, int | None]:
        found = await journal.index.usage("model", **given)
        return {it.name: it.tokens.total for it in found.groups}

    assert await by_model() == {"m0": 40, "m1": 40, "m2": 40}
    assert gone_through == []
    # A turn that runs is gone through, alone.
    await journal.append(leases[1], [("prompt", [b"[]"])], RowChange(updated_at=9 * HOUR))
    assert await by_model() == {"m0": 40, "m1": 40, "m2": 40}
    assert gone_through == ["s1"]
    await journal.delete("s2", "s3")
    assert await by_model() == {"m0": 20, "m1": 20, "m2": 20}


async def test_all_sessions_that_an_earlier_release_left_are_added_up_in_one_go(
    journal: SqliteJournal,
) -> None:
    for number in range(3):
        lease = await journal.create(NewSession(f"s{number}", "a", "/w"))
        await journal.append(lease, [("prompt", [b"[]"]), ("turn_end", [b"{}"])])
        await journal.settle(lease, lease.next_seq - 1)
    with closing(sqlite3.connect(journal.path)) as database, database:
        database.execute("UPDATE sessions SET summed_at = -1")
        database.execute("DELETE FROM meta WHERE name = 'added_up'")
    await journal.index.tidy(5)
    with closing(sqlite3.connect(journal.path)) as database:
        left = "SELECT session_id FROM sessions WHERE summed_at = -1"
        assert database.execute(left).fetchall() == []


async def test_a_session_that_goes_to_another_agent_is_added_up_from_its_beginning(
    journal: SqliteJournal,
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/w"))
    usage = b'{"stopReason":"end_turn","usage":{"totalTokens":7}}'
    for at in (1, 2):
        change = RowChange(prompted=True, updated_at=at)
        await journal.append(lease, [("prompt", [b"[]"]), ("turn_end", [usage])], change)
        await journal.settle(lease, lease.next_seq - 1)
    await journal.change(lease, RowChange(agent="b", origins=(Origin("s1", "a", 2),)))
    found = await journal.index.usage("agent")
    assert {it.name: it.tokens.total for it in found.groups} == {"a": 7, "b": 7}
    await journal.append(lease, [("turn_end", [b"{}"])])
    await journal.settle(lease, lease.next_seq - 1)
    found = await journal.index.usage("agent")
    assert {it.name: it.tokens.total for it in found.groups} == {"a": 7, "b": 7}
    with closing(sqlite3.connect(journal.path)) as database:
        kept = database.execute("SELECT agent, total FROM usage_sums ORDER BY agent").fetchall()
    assert kept == [("a", 7), ("b", 7)]


OLD_REPORTS = 4000


async def test_what_is_older_is_not_read_to_add_up_what_was_reported_since(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await journal.create(NewSession("old", "a", "/w/one"))
    costs = ({"amount": paid, "currency": "USD"} for paid in range(OLD_REPORTS))
    updates = ({"sessionUpdate": "usage_update", "cost": cost} for cost in costs)
    past = [PastEntry("update", HOUR, json.dumps(update).encode()) for update in updates]
    await journal.take_in(lease, past, RowChange(updated_at=HOUR, prompted=True))
    await journal.index.catch_up(30)
    with closing(connect(str(path), 60.0)) as connection:
        (reports,) = connection.execute("SELECT count(*) FROM usage").fetchone()
        assert reports == OLD_REPORTS
        found, steps = counted_sums(connection, "agent", 2 * HOUR)
    assert found.groups == []
    assert steps < OLD_REPORTS


def counted_sums(
    connection: Connection,
    by: Grouping,
    since: int,
    agents: tuple[str, ...] = (),
    cwd: str | None = None,
    **kept: usage_sums.KeptSums,
) -> tuple[UsageSums, int]:
    """The sums, and the steps of SQLite that it took to add them up."""
    steps: list[None] = []
    connection.set_progress_handler(lambda: steps.append(None), 1)
    found = usage_sums.sums(SqliteTables(connection), by, agents, cwd, since, **kept)
    connection.set_progress_handler(None, 1)
    return found, len(steps)


MOST_STEPS: dict[Grouping, int] = {
    **{"agent": 148, "model": 147, "day": 193, "folder": 110, "session": 150},
}
"""For each session, by grouping."""


async def put_paid(journal: SqliteJournal, number: int) -> None:
    """Put a session into the journal that has reported tokens and cost, one a day."""
    lease = await journal.create(NewSession(f"s{number}", f"a{number % 3}", f"/w{number % 4}"))
    cost = {"amount": 1, "currency": "USD"}
    paid = {"sessionUpdate": "usage_update", "cost": cost}
    end = {"stopReason": "end_turn", "usage": {"totalTokens": 7}}
    at, told = HOUR * 24 * number, [("turn_end", end), ("update", paid), ("turn_end", end)]
    past = [PastEntry(kind, at, json.dumps(raw).encode()) for kind, raw in told]
    await journal.take_in(lease, past, RowChange(updated_at=at, prompted=True))


@pytest.mark.parametrize("beyond", [0, MINUTE])
async def test_older_sessions_are_not_read_for_the_sums_since(
    journal: SqliteJournal, beyond: int
) -> None:
    taken: list[list[int]] = []
    for number in range(60):
        await put_paid(journal, number)
        if number not in (9, 59):
            continue
        await journal.index.catch_up(30)
        since = HOUR * 24 * (number - 4) - beyond
        with closing(connect(journal.path, 60.0)) as connection:
            counted = [counted_sums(connection, by, since) for by in MOST_STEPS]
        assert {found.total.tokens.total for found, _ in counted} == {5 * 14}
        taken.append([steps for _, steps in counted])
    few, many = taken
    assert all(more <= less + 20 for less, more in zip(few, many, strict=True)), taken


@pytest.mark.parametrize("since", [0, HOUR, HOUR + MINUTE])
@pytest.mark.parametrize("cwd", [None, "/w"])
async def test_sessions_of_others_are_not_read_for_the_sums_of_an_agent(
    journal: SqliteJournal, since: int, cwd: str | None
) -> None:
    end = json.dumps({"stopReason": "end_turn", "usage": {"totalTokens": 7}}).encode()
    taken: list[list[int]] = []
    for number in range(60):
        lease = await journal.create(NewSession(f"s{number}", "mine" if number < 5 else "a", "/w"))
        change = RowChange(updated_at=HOUR * 24, prompted=True)
        if number == 0:  # it had half of the tokens, and another agent has it now
            change = replace(change, agent="a", origins=(Origin("s0", "mine", 1),))
        past = [PastEntry("turn_end", HOUR * 24, end)] * 2
        await journal.take_in(lease, past, change)
        if number not in (9, 59):
            continue
        await journal.index.catch_up(30)
        with closing(connect(journal.path, 60.0)) as connection:
            counted = [
                counted_sums(connection, by, since, ("mine",), cwd)
                for by in MOST_STEPS
                if by == "session" or since or cwd
            ]
        assert {found.total.tokens.total for found, _ in counted} == {4 * 14 + 7}
        assert {found.total.sessions for found, _ in counted} == {5}
        taken.append([steps for _, steps in counted])
    few, many = taken
    assert all(more <= less + 20 for less, more in zip(few, many, strict=True)), taken


async def test_a_session_more_adds_few_steps_to_the_sums(journal: SqliteJournal) -> None:
    taken = dict.fromkeys(MOST_STEPS, 0)
    for number in range(40):
        await put_paid(journal, number)
        if number not in (9, 39):
            continue
        await journal.index.catch_up(30)
        with closing(connect(journal.path, 60.0)) as connection:
            for by in MOST_STEPS:
                found, steps = counted_sums(connection, by, 0)
                assert found.total == UsageSum(
                    *("", None, number + 1, 0, Tokens(total=14 * (number + 1))),
                    {"USD": float(number + 1)},
                )
                taken[by] = steps - taken[by]
            (rows,) = connection.execute("SELECT count(*) FROM usage_sums").fetchone()
            assert rows == number + 1  # tokens told before the first cost stand beside it
    each = {by: steps / 30 for by, steps in taken.items()}
    assert [by for by in each if each[by] > MOST_STEPS[by]] == [], each


MANY = 500
MOST_BYTES = 450
"""For each session: its id and title, eight figures, a place in a list, and its part of what a page
takes while it is read."""


async def test_the_sums_of_many_sessions_are_held_in_a_few_bytes_each(
    journal: SqliteJournal,
) -> None:
    for number in range(MANY):
        name = f"01234567-89ab-4def-8123-{number:012}"
        lease = await journal.create(NewSession(name, "a", "/w/one", title="What was asked first"))
        cost = {"amount": 1.5 + number, "currency": "USD"}
        usage = {"inputTokens": 4000 + number, "outputTokens": 900, "totalTokens": 4900 + number}
        past = [
            PastEntry("prompt", HOUR, b"[]"),
            PastEntry(
                "update", HOUR, json.dumps({"sessionUpdate": "usage_update", "cost": cost}).encode()
            ),
            PastEntry(
                "turn_end", HOUR, json.dumps({"stopReason": "end_turn", "usage": usage}).encode()
            ),
        ]
        await journal.take_in(lease, past, RowChange(updated_at=HOUR, prompted=True))
    await journal.index.catch_up(30)
    await journal.index.usage("session")  # what every later one finds there
    tracemalloc.start()
    try:
        sums = await journal.index.usage("session")
        page = sums.groups[1:]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sums.groups) == MANY
    assert sums.groups[0].costs == {"USD": 1.5 + MANY - 1}
    assert [*page] == [*sums.groups][1:]
    assert most < MANY * MOST_BYTES, "also while they are made"


def test_groups_without_tokens_are_in_the_order_of_their_sessions() -> None:
    few, many = UsageSum("a", sessions=1), UsageSum("b", sessions=2)
    told = UsageSum("c", sessions=1, tokens=Tokens(total=1))
    assert usage_sums.in_order("agent", [few, many, told]) == [told, many, few]
