"""Leases: only who owns a session writes to it, and what belongs together is written together."""

from __future__ import annotations

from pathlib import Path

import pytest

from acphold.errors import LeaseLostError
from acphold.journal import Here, Lease, NewSession, RowChange, SqliteJournal


async def begun(journal: SqliteJournal, session_id: str = "s1") -> Lease:
    """A new session."""
    return await journal.create(NewSession(session_id, "a", "/w"))


async def test_after_a_takeover_the_old_owner_writes_nothing(journal: SqliteJournal) -> None:
    old = await begun(journal)
    kept = await journal.append(old, "update", [b"1"])
    new = await journal.acquire("s1")
    assert (new.epoch, new.next_seq) == (2, 2)
    with pytest.raises(LeaseLostError):
        await journal.append(old, "update", [b"2"])
    with pytest.raises(LeaseLostError):
        await journal.change(old, RowChange(title="mine"))
    [lost] = await journal.renew([old, new])
    assert (lost.session_id, lost.deleted) == ("s1", False)
    await journal.release(old)
    await journal.settle(old, 1)
    assert old.next_seq == 2
    assert await journal.read("s1", 0) == [kept]
    assert (await journal.session("s1")).title is None
    assert await journal.owner("s1") == Here(new.epoch)
    assert (await journal.append(new, "update", [b"2"])).first_seq == 2


async def test_taking_over_repairs_the_time_that_a_crash_kept_from_being_written(
    journal: SqliteJournal,
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/", created_at=5))
    segment = await journal.append(lease, "update", [b"1"])
    assert (await journal.session("s1")).updated_at == 5
    await journal.acquire("s1")
    assert (await journal.session("s1")).updated_at == segment.at


async def test_an_entry_and_what_it_changes_in_the_row_are_written_together_or_not_at_all(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    change = RowChange(title="T", updated_at=99, prompted=True, cwd="/v")
    await journal.append(lease, "prompt", [b"[]"], change)
    row = await journal.session("s1")
    assert (row.title, row.updated_at, row.prompted, row.cwd) == ("T", 99, True, "/v")
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.append(lease, "prompt", [b"[]"], RowChange(title="lost"))
    assert (await journal.session("s1")).title == "T"
    assert (await journal.session("s1")).last_seq == 1
    assert lease.next_seq == 2


async def test_what_cannot_be_written_to_the_row_takes_the_entry_back(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    too_large = RowChange(updated_at=1 << 70)
    with pytest.raises(OverflowError):
        await journal.append(lease, "prompt", [b"[]"], too_large)
    assert await journal.read("s1", 0) == []
    assert (await journal.append(lease, "prompt", [b"[]"])).first_seq == 1


async def test_folders_of_a_session_can_be_corrected(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    await journal.change(lease, RowChange(additional_directories=("/a", "/b")))
    assert (await journal.session("s1")).additional_directories == ("/a", "/b")
    await journal.change(lease, RowChange(additional_directories=()))
    assert (await journal.session("s1")).additional_directories == ()


async def test_who_lost_the_session_cannot_link_it(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError) as caught:
        await journal.link(lease, "a", "d1")
    assert not caught.value.deleted
    assert await journal.linked("a", ["d1"]) == {}


async def test_an_id_that_is_given_out_again_is_another_session_to_who_held_the_first(
    journal: SqliteJournal, path: Path
) -> None:
    lease = await begun(journal)
    other = SqliteJournal.open(path)
    await other.delete("s1")
    again = await begun(other)
    assert again.epoch > lease.epoch
    for attempt in (
        journal.append(lease, "update", [b"1"]),
        journal.append(lease, "update", [b"1"], RowChange(title="T")),
        journal.change(lease, RowChange(title="T")),
        journal.link(lease, "a", "d1"),
        journal.abandon(lease),
    ):
        with pytest.raises(LeaseLostError) as caught:
            await attempt
        assert caught.value.deleted
    await journal.settle(lease, 9)
    await journal.release(lease)
    [lost] = await journal.renew([lease])
    assert lost.deleted
    assert await other.owner("s1") == Here(again.epoch)
    assert await other.read("s1", 0) == []
    await other.aclose()


async def test_a_session_that_nobody_asked_to_remove_leaves_no_tombstone(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    await journal.append(lease, "update", [b"1"])
    assert await journal.abandon(lease)
    assert await journal.linked("a", ["s1"]) == {}
    again = await begun(journal)
    assert await journal.read("s1", 0) == []
    assert again.next_seq == 1


async def test_a_session_that_an_agent_knows_is_not_abandoned(journal: SqliteJournal) -> None:
    lease = await begun(journal)
    kept = await journal.append(lease, "update", [b"1"])
    await journal.link(lease, "a", "d1")
    assert not await journal.abandon(lease)
    assert await journal.read("s1", 0) == [kept]
    await journal.append(lease, "update", [b"2"])


async def test_a_session_that_another_process_has_taken_over_is_not_abandoned(
    journal: SqliteJournal,
) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.abandon(lease)
    assert (await journal.session("s1")).session_id == "s1"
