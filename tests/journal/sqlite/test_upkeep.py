"""Settling: after a turn its history is shorter, counted and searchable, and says the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from acphold.conversation.history.entries import Segment
from acphold.conversation.history.fold import fold
from acphold.conversation.history.timeline import Message
from acphold.journal import bounds
from acphold.journal.copies import copy_all
from acphold.journal.journal import session_of, state_of
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.sqlite.store import SqliteJournal
from tests.conversations import CONVERSATIONS, chunk, encode, entries_of
from tests.journal.conversations import Pieces, append, begun, open_file, past, turn


async def history(journal: SqliteJournal, session_id: str = "s1") -> list[Segment]:
    """All segments of a session."""
    found: list[Segment] = []
    while more := await journal.read(session_id, found[-1].last_seq if found else 0):
        found += more
    return found


@given(CONVERSATIONS, CONVERSATIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_settling_never_changes_the_state_of_a_session(
    path: Path, one: Pieces, two: Pieces
) -> None:
    async def scenario() -> None:
        journal = open_file(path)
        lease = await begun(journal)
        middle = await append(journal, lease, one)
        await append(journal, lease, two)
        before = fold(entries_of(await history(journal)))
        await journal.settle(lease, middle)
        assert fold(entries_of(await history(journal))) == before
        await journal.settle(lease, lease.next_seq - 1)
        assert await state_of(journal, "s1") == before
        assert fold(entries_of(await history(journal))) == before
        await journal.delete("s1")
        await journal.aclose()

    asyncio.run(scenario())


async def test_a_long_turn_is_settled_in_pieces(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PIECE_BYTES", 1000)
    lease = await begun(journal)
    said = [chunk("agent_message", f"word{n} ") for n in range(200)]
    last = await append(journal, lease, turn("Hi", *said))
    before = await state_of(journal, "s1")
    await journal.settle(lease, last)
    assert await state_of(journal, "s1") == before
    assert 3 < len(await history(journal)) < 60
    assert (await journal.session("s1", counted=True)).message_count == 2


async def test_the_last_of_those_that_are_settled_at_once_sees_to_the_whole_journal(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: list[float] = []

    async def noted(seconds: float) -> int:
        tidied.append(seconds)
        return 0

    monkeypatch.setattr(journal.index, "tidy", noted)
    leases = [await journal.create(NewSession(f"s{number}", "a", "/")) for number in range(3)]
    lasts = [await append(journal, lease, turn(f"word{lease.number}")) for lease in leases]
    await asyncio.gather(*map(journal.settle, leases, lasts))
    assert len(tidied) == 1
    for lease in leases:
        assert [hit.session_id for hit in await journal.index.search(f"word{lease.number}")] == [
            lease.session_id
        ]


async def test_settling_again_changes_nothing(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    last = await append(journal, lease, turn("One", chunk("agent_message", "a")))
    await journal.settle(lease, last)
    row, segments = await journal.session("s1"), await history(journal)
    await asyncio.gather(*[journal.settle(lease, last) for _ in range(3)])
    assert (await journal.session("s1"), await history(journal)) == (row, segments)
    assert len(await journal.index.search("One")) == 1


async def _summary_equals_the_whole_fold(pieces: Pieces, settle_after: int) -> None:
    with TemporaryDirectory() as folder:
        journal = open_file(Path(folder) / "journal.db")
        lease = await journal.create(NewSession("s1", "a", "/w"))
        for number, (kind, raws) in enumerate(pieces):
            await journal.append(lease, [(kind, raws)])
            if number == settle_after:
                await journal.settle(lease, lease.next_seq - 1)
        state = await state_of(journal, "s1")
        assert await journal.summary("s1") == state.summary()
        await journal.aclose()


@settings(max_examples=40)
@given(CONVERSATIONS, st.integers(0, 12))
def test_a_summary_is_the_fold_of_everything_wherever_it_was_settled(
    pieces: Pieces, settle_after: int
) -> None:
    asyncio.run(_summary_equals_the_whole_fold(pieces, settle_after))


async def test_settling_keeps_only_the_last_snapshot_of_a_kind_also_turns_later(
    journal: SqliteJournal,
) -> None:
    def commands(name: str) -> dict[str, object]:
        return {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": name}]}

    lease = await begun(journal)
    for name in ("one", "two", "three"):
        pieces = turn(name, commands(name), chunk("agent_message", name), commands(f"{name} more"))
        before = await append(journal, lease, pieces)
        await journal.settle(lease, before)
    raws = [raw for segment in await history(journal) for raw in segment.raw.split(b"\n")]
    assert [raw for raw in raws if b"available_commands" in raw] == [encode(commands("three more"))]
    state = await state_of(journal, "s1")
    assert state.attributes.commands == b'[{"name":"three more"}]'
    said = [item.text for item in state.timeline if isinstance(item, Message)]
    assert said == ["one", "one", "two", "two", "three", "three"]
    assert await journal.file.damage() == []


async def test_what_happened_earlier_is_taken_in_with_its_times_settled_and_all_at_once(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    said = [chunk("agent_message", "early "), chunk("agent_message", "words")]
    early = past(turn("Hi", *said))
    change = RowChange(title="T", updated_at=4000, prompted=True)
    await journal.take_in(lease, early[:2])
    await journal.take_in(lease, early[2:], change, ("a", "d1"))
    row = await journal.session("s1")
    assert (row.title, row.updated_at, row.prompted, row.message_count) == ("T", 4000, True, 2)
    assert await session_of(journal, "a", "d1") == "s1"
    assert await journal.index.catch_up(0) == 1
    assert await journal.index.catch_up(9) == 0
    assert [hit.at for hit in await journal.index.search("words")] == [3000]
    assert [segment.at for segment in await history(journal)] == [1000, 2000, 3000, 4000]
    assert (await journal.summary("s1")).turn == "idle"
    assert (await journal.append(lease, [("update", [b"{}"])]))[0].first_seq == 5
    assert await journal.file.damage() == []


async def test_a_copy_of_many_sessions_writes_little_more_than_it_copies(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    for number in range(200):
        lease = await journal.create(NewSession(f"s{number * 7919:x}", f"agent {number % 5}", "/w"))
        said = f"what was said {number} times is not short at all " * 100
        await append(journal, lease, turn("Hi", chunk("agent_message", said)))
        await journal.change(lease, RowChange(prompted=True))
        await journal.release(lease)
    target = open_file(tmp_path / "target.db")
    became = await copy_all(journal, target, lambda *_: None)
    log = (tmp_path / "target.db-wal").stat().st_size
    await target.aclose()
    assert became == {"new": 200}
    assert log < 1.5 * (tmp_path / "target.db").stat().st_size
