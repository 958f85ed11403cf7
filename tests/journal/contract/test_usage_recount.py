"""Sums of usage are a recount of the history, whatever two processes do to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import msgspec
import pytest
from msgspec import Struct

from acphold.conversation.history.entries import REPLY, Origin, PastEntry, Segment
from acphold.journal import bounds
from acphold.journal.journal import Journal, Lease
from acphold.journal.rows import NewSession, RowChange, SessionRow
from acphold.journal.seams import Grouping
from acphold.journal.sql.store import SqlJournal
from acphold.journal.sql.tables import Tables
from acphold.journal.stores import open_journal
from acphold.journal.token_reports import (
    COUNTS,
    CountedReplies,
    UsageReport,
    holders,
    increases,
    models_since,
    reports,
)
from tests.journal.conversations import cost
from tests.journal.sqlite.test_usage_sums import fill, keeps_sums

STEPS: Final = 60
GROUPINGS: Final[tuple[Grouping, ...]] = ("agent", "day", "folder", "model", "session")
AGENTS: Final = ("a", "b", "Copilot")
FOLDERS: Final = ("/w/one", "/w/two")
DEEDS: Final = (
    "new new take take turn turn late settle withdraw delete prune agent folder release tidy tidy"
)

Sums: TypeAlias = dict[str, tuple[int, int, dict[str, float], list[int | None]]]
"""In each group the sessions, those without tokens, the costs and the counts."""


class Told(Struct):
    """A session as it was written, but for what was withdrawn."""

    entries: list[Segment] = []
    turns: list[tuple[int, int]] = []
    replies: list[str] = []
    """Those that others may have, too."""


def turn(random: Random, replies: list[str]) -> Iterator[tuple[str, bytes]]:
    yield "prompt", b"[]"
    for _ in range(random.randrange(3)):
        yield cost(random.randrange(16) / 4, random.choice(["USD", "EUR"]))
    usage = {"inputTokens": random.randrange(99), "totalTokens": random.randrange(99)}
    meta: dict[str, Any] = {"acphold/model": random.choice(["large", "small"])}
    end: dict[str, Any] = {"stopReason": "end_turn", "_meta": meta}
    if random.randrange(4) == 0:
        meta["acphold/soFar"] = {"usage": usage}
    elif random.randrange(4):
        end["usage"] = usage
        if replies and random.randrange(3) == 0:
            meta[REPLY] = replies.pop(random.randrange(len(replies)))
    yield "turn_end", json.dumps(end).encode()


def group(by: Grouping, row: SessionRow, one: UsageReport | None) -> str:
    match by:
        case "agent":
            return row.agent if one is None else one.agent
        case "day":
            at = row.updated_at if one is None else one.at
            return datetime.fromtimestamp(at / 1000).date().isoformat()
        case "folder":
            return row.cwd
        case "model":
            return "" if one is None else one.model
    return row.session_id


def recount(rows: list[SessionRow], told: dict[str, Told], by: Grouping) -> Sums:
    """The sums, by all entries of the sessions that were prompted."""
    counted, sums = CountedReplies(), Sums()
    for row in sorted(rows, key=lambda it: (it.updated_at, it.session_id), reverse=True):
        entries = told[row.session_id].entries
        found = reports(entries)
        ends = models_since(found, [it for it in entries[::-1] if it.kind == "turn_end"], 0)
        origins = msgspec.json.encode(row.origins).decode()
        held_by = holders(row.session_id, row.agent, origins)
        every = [*counted.rest(increases(found, held_by, ends))]
        for name in {group(by, row, one) for one in every} or {group(by, row, None)}:
            part = [one for one in every if group(by, row, one) == name]
            sessions, without, costs, counts = sums.get(name, (0, 0, {}, [None] * len(COUNTS)))
            for one in part:
                if one.cost is not None:
                    costs[one.currency] = costs.get(one.currency, 0.0) + one.cost
                for place, count in enumerate(COUNTS):
                    if (more := getattr(one.tokens, count, None)) is not None:
                        counts[place] = (counts[place] or 0) + more
            without += all(one.tokens is None for one in part)
            sums[name] = sessions + 1, without, costs, counts
    return sums


async def check(journals: list[Journal], told: dict[str, Told]) -> None:
    rows = [await journals[0].session(session_id) for session_id in told]
    rows = [row for row in rows if row.prompted]
    for journal in journals:
        for by in GROUPINGS:
            found = {
                it.name: (
                    it.sessions,
                    it.not_reported,
                    it.costs,
                    [getattr(it.tokens, count) for count in COUNTS],
                )
                for it in (await journal.index.usage(by)).groups
            }
            assert found == recount(rows, told, by), by


@pytest.mark.parametrize("seed", range(2))
async def test_the_sums_are_a_recount_of_the_history_after_each_step(
    location: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 2)
    random, told = Random(seed), dict[str, Told]()
    leases: dict[str, tuple[Journal, Lease]] = {}
    at, names = 3_600_000_000, iter(map(str, range(STEPS)))
    async with aclosing(open_journal(location)) as one, aclosing(open_journal(location)) as two:
        journals = [one, two]
        for step in range(STEPS):
            deed, journal = random.choice(DEEDS.split()), random.choice(journals)
            name = random.choice([*told]) if told and deed != "new" else next(names)
            if name not in told:
                told[name] = Told(replies=[f"{n:014x}" for n in range(1, 6)])
                new = NewSession(name, random.choice(AGENTS), random.choice(FOLDERS))
                leases[name] = journal, await journal.create(new)
                continue
            if deed in ("delete", "prune", "release"):
                if held := leases.pop(name, None):
                    await held[0].release(held[1])
                if deed == "prune":
                    idle = [it for it in told if it not in leases]
                    gone = await journal.delete(*idle, idle_since=at - 3_600_000)
                else:
                    gone = await journal.delete(name) if deed == "delete" else []
                told = {it: its for it, its in told.items() if it not in gone}
            elif deed == "tidy":
                await journal.index.catch_up(1)
                await journal.index.tidy(random.choice([0, 0.1]))
                if journal.file is not None:
                    await journal.file.give_back()
            else:
                if name not in leases:
                    leases[name] = journal, await journal.acquire(name)
                journal, lease = leases[name]
                its, first = told[name], lease.next_seq
                match deed:
                    case "take":
                        past = []
                        for kind, raw in (it for _ in "ab" for it in turn(random, its.replies)):
                            at += random.choice([0, 60_000, 1_200_000])
                            past.append(PastEntry(kind, at, raw))
                        for _ in range(random.choice([1, 1, 2])):  # again, if no answer came
                            lease.next_seq = first
                            await journal.take_in(
                                lease, past, RowChange(prompted=True, updated_at=at)
                            )
                        its.entries += [
                            Segment(seq, seq, it.kind, it.at, it.raw)
                            for seq, it in enumerate(past, first)
                        ]
                    case "turn":
                        runs = [(kind, [raw]) for kind, raw in turn(random, [])]
                        now = RowChange(prompted=True, updated_at=journal.now_ms() + step)
                        its.entries += await journal.append(lease, runs[:1], now)
                        if random.randrange(5):  # else it was cut off
                            its.entries += await journal.append(lease, runs[1:])
                    case "late":
                        kind, raw = cost(random.randrange(16) / 4)
                        its.entries += await journal.append(lease, [(kind, [raw])])
                        await journal.settle(lease, lease.next_seq - 1)
                    case "settle":
                        await journal.settle(lease, lease.next_seq - 1)
                    case "withdraw" if its.turns:
                        first, last = its.turns.pop(random.randrange(len(its.turns)))
                        await journal.withdraw(lease, [(first, last)])
                        its.entries = [it for it in its.entries if not first <= it.last_seq <= last]
                    case "agent" if first > 1:
                        row = await journal.session(name)
                        origins = (*row.origins, Origin(name, row.agent, first - 1))
                        agent = random.choice(AGENTS)
                        await journal.change(lease, RowChange(agent=agent, origins=origins))
                    case "folder":
                        await journal.change(lease, RowChange(cwd=random.choice(FOLDERS)))
                if deed in ("take", "turn"):
                    its.turns.append((first, lease.next_seq - 1))
            await check(journals, told)
        if one.file is not None:
            await one.file.copy_to(str(tmp_path / "copy.db"))
            async with aclosing(open_journal(tmp_path / "copy.db")) as copy:
                await check([copy], told)


@pytest.mark.parametrize("seed", range(3))
async def test_all_that_was_reported_is_in_the_sums_and_nothing_else(
    journal: SqlJournal[Any], seed: int
) -> None:
    random = Random(seed)
    times = await fill(journal, random)
    await keeps_sums(journal, times, random)

    def without_session(tables: Tables) -> list[object]:
        kept = "SELECT {KEY} FROM acphold.{} EXCEPT SELECT {OWN_KEY} FROM acphold.sessions"
        names = {"KEY": tables.KEY, "OWN_KEY": tables.OWN_KEY}
        asked = [kept.format(it, **names) for it in ("usage", "usage_sums", "usage_folds")]
        return [row for it in asked for row in tables.execute(it).fetchall()]

    assert await journal._ask(without_session) == []
