"""Sums of usage that a file keeps of many sessions are those of the sessions, whatever changes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from acphold.conversation.history.entries import REPLY, Origin, PastEntry
from acphold.journal import bounds
from acphold.journal.rows import ListFilter, NewSession, RowChange
from acphold.journal.seams import Grouping, UsageSums
from acphold.journal.sql import usage_blocks as blocks, usage_rows, usage_sums
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import Span
from acphold.journal.sqlite import row_texts, usage_blocks
from acphold.journal.sqlite.connection import Connection, connect, reading
from acphold.journal.sqlite.session_rows import SqliteTables
from acphold.journal.sqlite.store import SqliteJournal
from tests.journal.conftest import opened
from tests.journal.sqlite.test_usage_sums import HOUR, counted_sums, fill

GROUPINGS: Final[tuple[Grouping, ...]] = ("agent", "day", "folder", "model", "session")
AGENTS: Final = ((), ("a",), ("b",), ("z",), ("a", "z"), ("nobody",))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 8)
    yield
    monkeypatch.undo()
    time.tzset()


async def holding(
    journal: SqliteJournal, by: Grouping = "agent", agents: tuple[str, ...] = ()
) -> int:
    """The number of blocks that hold, after a comparison of all sums with those of the sessions."""

    def compare(db: Connection) -> int:
        tables = SqliteTables(db)
        with reading(db):
            for each, of in product(GROUPINGS, AGENTS):
                kept = usage_sums.sums(tables, each, of, None, 0, usage_blocks.kept_sums)
                asked = seen(usage_sums.sums(tables, each, of, None, 0))
                assert seen(kept) == asked, (each, of)
            return len(usage_blocks.kept_sums(tables, by, agents)[0])

    return await journal._background.run(compare)


def seen(sums: UsageSums) -> UsageSums:
    return UsageSums([*sums.groups], sums.total, sums.by_request)


async def tell(journal: SqliteJournal, session_id: str, reply: str = "", at: int = HOUR) -> None:
    """A turn that reports tokens, and is settled; its reply may have copies in other sessions."""
    lease = await journal.acquire(session_id)
    end = {"stopReason": "end_turn", "usage": {"totalTokens": 7}, "_meta": {REPLY: reply}}
    past = [PastEntry("prompt", at, b"[]"), PastEntry("turn_end", at, json.dumps(end).encode())]
    await journal.take_in(lease, past, RowChange(prompted=True), release=True)


@pytest.mark.parametrize("seed", range(2))
async def test_sums_of_blocks_are_those_of_their_sessions_whatever_changes(
    journal: SqliteJournal, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    random = Random(seed)
    await fill(journal, random)
    await journal.create(NewSession("s40", "a", "/w"))
    await journal.index.tidy(1)
    rows = await journal.page(ListFilter(include_unprompted=True, archived="include"), limit=99)
    names = sorted((row.session_id for row in rows), key=lambda it: int(it[1:]))
    every = (len(names) - 1) // 8
    assert await holding(journal) == every
    in_blocks = names[: every * 8]
    told, *others = random.sample(in_blocks, 4)

    await tell(journal, told, "a1" * 7)
    assert await holding(journal) == every - 1
    await journal.index.tidy(1)
    assert await holding(journal) == every
    # A copy of a reply in one session is a change of both.
    await tell(journal, others[0], "a1" * 7)
    assert await holding(journal) < every
    await journal.index.tidy(1)
    assert await holding(journal) == every
    await journal.delete(others[1])
    assert await holding(journal) == every - 1
    lease = await journal.acquire(others[2])
    change = RowChange(agent="z", cwd="/w/other", origins=(Origin(others[2], "a", 2),))
    await journal.change(lease, change)
    assert await holding(journal) >= every - 2
    await journal.index.tidy(1)
    assert await holding(journal) == every
    # A turn that runs.
    await journal.append(lease, [("prompt", [b"[]"])], RowChange(updated_at=99 * HOUR))
    usage = b'{"stopReason":"end_turn","usage":{"totalTokens":7}}'
    assert await holding(journal) == every - 1
    await journal.index.tidy(1)
    await journal.append(lease, [("turn_end", [usage])])
    assert await holding(journal) == every
    await journal.settle(lease, lease.next_seq - 1)
    assert await holding(journal) == every - 1
    for zone, there in (("Asia/Tokyo", 0), ("Etc/UTC", every - 1)):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert await holding(journal, "day") == there


async def test_a_session_that_is_deleted_while_its_block_is_made_is_not_in_it(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(17):
        await journal.create(NewSession(f"s{number}", "a", "/w"))
        await tell(journal, f"s{number}")
    made = blocks._sums_of

    def meanwhile(*given: object) -> bytes:
        with closing(sqlite3.connect(journal.path)) as other, other:
            other.execute("DELETE FROM sessions WHERE session_id = 's3'")
        return made(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(blocks, "_sums_of", meanwhile)
    await journal.index.tidy(1)
    assert await holding(journal) < 2
    monkeypatch.undo()


MORE: Final = 320
MOST_STEPS: Final = 1
"""Of SQLite, for each session more, in blocks of 32, of which each is read."""


async def test_a_session_more_adds_next_to_nothing_to_the_sums(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 32)
    taken: dict[Grouping, list[int]] = {}
    for count in (64, 64 + MORE):
        for number in range(count - (64 if count == 64 else MORE), count):
            await journal.create(NewSession(f"s{number}", f"a{number % 3}", f"/w{number % 4}"))
            await tell(journal, f"s{number}", at=number % 50 * 24 * HOUR)
        await journal.index.tidy(1)
        with closing(connect(journal.path, 60.0)) as connection:
            for by in GROUPINGS[:-1]:
                kept = usage_blocks.kept_sums
                found, steps = counted_sums(connection, by, 0, kept_sums=kept)
                assert found.total.tokens.total == 7 * count
                taken.setdefault(by, []).append(steps)
    each = {by: (after - before) / MORE for by, (before, after) in taken.items()}
    assert max(each.values()) <= MOST_STEPS, each


async def test_sessions_of_others_add_next_to_nothing_to_the_sums_of_an_agent_or_a_folder(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SUMMED_TOGETHER", 32)
    ways: tuple[tuple[tuple[str, ...], str | None], ...] = ((("mine",), None), ((), "/mine"))
    taken: dict[object, list[int]] = {}
    for first, last in ((0, 64), (64, 64 + MORE)):
        for number in range(first, last):
            agent, folder = ("mine", "/mine") if number % 8 == 0 < 64 - number else ("a", "/w")
            await journal.create(NewSession(f"s{number}", agent, folder))
            await tell(journal, f"s{number}", at=number % 50 * 24 * HOUR)
        await journal.index.tidy(1)
        with closing(connect(journal.path, 60.0)) as connection:
            for by, (agents, cwd) in product(GROUPINGS[:-1], ways):
                kept = usage_blocks.kept_sums
                found, steps = counted_sums(connection, by, 0, agents, cwd, kept_sums=kept)
                assert found.total.tokens.total == 7 * 8
                taken.setdefault((by, agents), []).append(steps)
    assert all(many <= few + 6 * MORE for few, many in taken.values()), taken


async def test_a_block_with_too_many_agents_has_sums_of_all_together_alone(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "AGENTS_OF_A_BLOCK", 2)
    for number in range(17):
        await journal.create(NewSession(f"s{number}", "abz"[number % (2 + number // 8)], "/w"))
        await tell(journal, f"s{number}")
    await journal.index.tidy(1)
    assert await holding(journal) == 2
    assert await holding(journal, agents=("a",)) == 1


async def test_a_block_that_cannot_be_read_is_made_again(journal: SqliteJournal) -> None:
    for number in range(17):
        await journal.create(NewSession(f"s{number}", "a", "/w"))
        await tell(journal, f"s{number}")
    await journal.index.tidy(1)
    with closing(sqlite3.connect(journal.path)) as other, other:
        other.execute("UPDATE usage_blocks SET by_agent = x'92' WHERE lowest > 1")
    assert await holding(journal) == 1
    await journal.index.tidy(1)
    assert await holding(journal) == 2


async def test_a_process_that_goes_on_makes_them_as_it_settles_turns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "BLOCKS_SECONDS", 0.0)
    async with opened(str(path), create=True) as journal:
        assert isinstance(journal, SqliteJournal)
        for number in range(17):
            lease = await journal.create(NewSession(f"s{number}", "a", "/w"))
            await journal.append(lease, [("prompt", [b"[]"]), ("turn_end", [b"{}"])])
            await journal.settle(lease, lease.next_seq - 1)
        assert await holding(journal) == 2


@pytest.mark.parametrize("noted_at", ["before", "after"])
async def test_a_block_that_takes_long_to_make_does_not_replace_a_newer_one(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, noted_at: str
) -> None:
    for number in range(17):
        await journal.create(NewSession(f"s{number}", "a", "/w"))
        await tell(journal, f"s{number}")
    note = usage_blocks._note_holding
    with (
        closing(connect(journal.path, 60.0)) as quicker,
        closing(connect(journal.path, 60.0)) as it,
    ):
        slow, quick = SqliteTables(it), SqliteTables(quicker)
        while usage_rows.add_up_next(slow):
            pass
        text = row_texts.of_span

        def meanwhile(tables: Tables, span: Span) -> bytes:
            with monkeypatch.context() as patch:
                patch.setattr(row_texts, "of_span", text)
                found = text(tables, span)
                quicker.execute("UPDATE sessions SET cwd = '/new', title = 'new' WHERE number = 3")
                if noted_at == "after":
                    patch.setattr(usage_blocks, "_note_holding", lambda *given: held.append(given))
                while usage_blocks.make_next(quick):
                    pass
            return found

        held: list[tuple[Any, ...]] = []
        with monkeypatch.context() as patch:
            patch.setattr(row_texts, "of_span", meanwhile)
            usage_blocks.make_next(slow)
        for given in held:
            note(*given)
    assert await holding(journal, "folder") == 2
    found = await journal.page(ListFilter(words=(("new", (), ()),), include_unprompted=True))
    assert [row.session_id for row in found] == ["s2"]
