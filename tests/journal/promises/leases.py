"""Leases: only a session's owner writes to it, and related entries are written together."""

from __future__ import annotations

import os

import pytest

from acphold.errors import HeldElsewhereError, LeaseLostError, UnknownSessionError
from acphold.journal.journal import Journal
from acphold.journal.owners import At, Free, Here
from acphold.journal.rows import Listed, NewSession, RowChange
from tests.journal.promises.promise import begun, promised


@promised
async def the_old_owner_writes_nothing_after_a_takeover(journal: Journal) -> None:
    old = await begun(journal)
    [kept] = await journal.append(old, [("update", [b"1"])])
    new = await journal.acquire("s1")
    assert (new.epoch > old.epoch, new.next_seq) == (True, 2)
    with pytest.raises(LeaseLostError):
        await journal.append(old, [("update", [b"2"])])
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
    assert (await journal.append(new, [("update", [b"2"])]))[0].first_seq == 2


@promised
async def taking_over_repairs_the_time_that_a_crash_kept_from_being_written(
    journal: Journal,
) -> None:
    lease = await journal.create(NewSession("s1", "a", "/", created_at=5))
    [segment] = await journal.append(lease, [("update", [b"1"])])
    assert (await journal.session("s1")).updated_at == 5
    await journal.acquire("s1")
    assert (await journal.session("s1")).updated_at == segment.at


@promised
async def positions_are_of_one_lineage_under_all_owners_and_of_another_in_each_session(
    journal: Journal, other: Journal
) -> None:
    lease = await begun(journal)
    await journal.append(lease, [("update", [b"1"])])
    taken = await other.acquire("s1")
    assert taken.lineage == lease.lineage == (await journal.session("s1")).lineage
    await journal.delete("s1")
    again = await begun(other)
    assert again.lineage != taken.lineage or not taken.lineage  # a store may have none


@promised
async def an_entry_and_what_it_changes_in_the_row_are_written_together_or_not_at_all(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    change = RowChange(title="T", updated_at=99, prompted=True, cwd="/v")
    await journal.append(lease, [("prompt", [b"[]"])], change)
    row = await journal.session("s1")
    assert (row.title, row.updated_at, row.prompted, row.cwd) == ("T", 99, True, "/v")
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.append(lease, [("prompt", [b"[]"])], RowChange(title="lost"))
    assert (await journal.session("s1")).title == "T"
    assert (await journal.session("s1")).last_seq == 1
    assert lease.next_seq == 2


@promised
async def what_cannot_be_written_to_the_row_takes_the_entry_back(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    too_large = RowChange(updated_at=1 << 70)
    with pytest.raises(OverflowError):
        await journal.append(lease, [("prompt", [b"[]"])], too_large)
    assert await journal.read("s1", 0) == []
    assert (await journal.append(lease, [("prompt", [b"[]"])]))[0].first_seq == 1


@promised
async def folders_of_a_session_can_be_corrected(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.change(lease, RowChange(additional_directories=("/a", "/b")))
    assert (await journal.session("s1")).additional_directories == ("/a", "/b")
    await journal.change(lease, RowChange(additional_directories=()))
    assert (await journal.session("s1")).additional_directories == ()


@promised
async def who_lost_the_session_cannot_link_it(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError) as caught:
        await journal.links.link(lease, "a", "d1")
    assert not caught.value.deleted
    assert await journal.links.sessions_of("a", ["d1"]) == {}


@promised
async def an_agent_finds_its_sessions_under_each_of_its_names(journal: Journal) -> None:
    today, earlier = "codex-acp", "@zed-industries/codex-acp"
    lease = await begun(journal)
    await journal.links.link(lease, earlier, "d1")
    await journal.links.link(None, today, "d2")
    await journal.links.link(None, earlier, "d2")
    for name in (today, earlier):
        known = await journal.links.sessions_of(name, ["d1", "d2", "d3"])
        assert known == {"d1": "s1", "d2": None}
        assert [*await journal.links.last_entries(name, ["d1", "d2"])] == ["d1"]
    assert await journal.links.sessions_of("gemini-cli", ["d1"]) == {}
    await journal.links.link(lease, earlier, "d2")
    assert (await journal.links.sessions_of(today, ["d2"])) == {"d2": "s1"}


@promised
async def an_id_that_is_given_out_again_is_another_session_to_who_held_the_first(
    journal: Journal, other: Journal
) -> None:
    lease = await begun(journal)
    await other.delete("s1")
    again = await begun(other)
    assert again.epoch > lease.epoch
    for attempt in (
        journal.append(lease, [("update", [b"1"])]),
        journal.append(lease, [("update", [b"1"])], RowChange(title="T")),
        journal.change(lease, RowChange(title="T")),
        journal.links.link(lease, "a", "d1"),
        journal.delete(lease),
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


@promised
async def a_session_that_its_owner_deletes_leaves_no_tombstone(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    await journal.append(lease, [("update", [b"1"])])
    await journal.links.link(lease, "a", "d1")
    assert await journal.delete(lease) == ["s1"]
    assert await journal.links.sessions_of("a", ["d1"]) == {}
    again = await begun(journal)
    assert await journal.read("s1", 0) == []
    assert again.next_seq == 1


@promised
async def a_session_is_not_deleted_under_a_lease_that_another_process_has_taken_over(
    journal: Journal,
) -> None:
    lease = await begun(journal)
    await journal.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.delete(lease)
    assert (await journal.session("s1")).session_id == "s1"


# -- ownership ----------------------------------------------------------------------------


async def free(journal: Journal) -> str:
    """Make a session that nobody owns."""
    await journal.release(await begun(journal))
    return "s1"


async def owner_of(journal: Journal, session: str) -> At:
    whose = await journal.owner(session)
    assert isinstance(whose, At)
    return whose


@promised
async def a_session_belongs_to_its_owner_and_is_free_again_when_that_lets_go(
    journal: Journal, other: Journal
) -> None:
    session = await free(journal)
    before = await journal.owner(session)
    assert isinstance(before, Free)
    lease = await journal.acquire(session, before)
    assert await journal.owner(session) == Here(lease.epoch)
    there = await owner_of(other, session)
    assert (there.epoch, there.owner.pid) == (lease.epoch, os.getpid())
    await journal.release(lease)
    assert await other.owner(session) == Free(lease.epoch)


@promised
async def two_owners_of_one_process_are_two(journal: Journal, other: Journal) -> None:
    session = await free(journal)
    await journal.acquire(session)
    await other.create(NewSession("s2", "a", "/w"))
    one, two = await owner_of(other, session), await owner_of(journal, "s2")
    assert one.owner.id != two.owner.id
    assert one.owner.pid == two.owner.pid


@promised
async def one_of_two_that_take_what_is_free_gets_it(journal: Journal, other: Journal) -> None:
    session = await free(journal)
    seen = await journal.owner(session)
    await other.acquire(session, seen)
    with pytest.raises(HeldElsewhereError):
        await journal.acquire(session, seen)


@promised
async def an_owner_tells_where_it_is_reached_also_when_that_changes(
    journal: Journal, other: Journal
) -> None:
    session = await free(journal)
    await other.renew(addresses=["unix:/one"])
    await other.acquire(session)
    assert (await owner_of(journal, session)).owner.addresses == ("unix:/one",)
    await other.renew(addresses=["unix:/two", "wss://far"])
    assert (await owner_of(journal, session)).owner.addresses == ("unix:/two", "wss://far")


@promised
async def owners_that_are_reached_somewhere_are_told_while_they_live(
    journal: Journal, other: Journal
) -> None:
    session = await free(journal)
    assert await journal.owners() == []
    assert not await journal.owned([session])
    await other.renew(addresses=["unix:/one", "https://one.example/owners/a"])
    await other.acquire(session)
    assert {*await journal.owned([session, "unknown"])} == {session}
    assert not await journal.owned([])
    [found] = await journal.owners()
    assert found == (await owner_of(journal, session)).owner
    assert found.addresses == ("unix:/one", "https://one.example/owners/a")
    await other.renew(addresses=[])
    assert await journal.owners() == []


@promised
async def what_an_import_works_on_and_what_a_retired_owner_has_may_be_taken(
    journal: Journal, other: Journal
) -> None:
    session = await free(journal)
    taken = await other.acquire(session, yields=True)
    for each in (journal, other):
        assert await each.owner(session) == Free(taken.epoch)
        assert not await each.owned([session])
    lease = await other.acquire(session)
    assert (await owner_of(journal, session)).epoch == lease.epoch
    assert await journal.owned([session])
    await other.renew(retiring=True)
    assert await journal.owner(session) == Free(lease.epoch)
    assert not await journal.owned([session])
    assert await other.append(lease, [("update", [b"1"])])  # until somebody takes it over


@promised
async def two_processes_can_use_one_journal(journal: Journal, other: Journal) -> None:
    ours, theirs = await begun(journal, "s1"), await begun(other, "s2")
    await journal.append(ours, [("update", [b"1"])])
    await other.append(theirs, [("update", [b"2"])])
    assert await other.read("s1", 0) == await journal.read("s1", 0)
    taken = await other.acquire("s1")
    with pytest.raises(LeaseLostError):
        await journal.append(ours, [("update", [b"3"])])
    assert await other.append(taken, [("update", [b"3"])]) == await journal.read("s1", 1)


@promised
async def what_another_has_taken_or_deleted_is_found_lost_by_the_next_look(
    journal: Journal, other: Journal
) -> None:
    taken, gone = await begun(journal), await begun(journal, "s2")
    for lease in (taken, gone, taken):
        assert await journal.owner(lease.session_id) == Here(lease.epoch)
    theirs = await other.acquire("s1")
    now = await journal.owner("s1")
    assert (type(now), now.epoch) == (At, theirs.epoch)
    assert await journal.owner("s2") == Here(gone.epoch)
    await other.delete("s2")
    with pytest.raises(UnknownSessionError):
        await journal.owner("s2")


@promised
async def what_was_let_go_or_taken_again_here_is_known_at_once(journal: Journal) -> None:
    lease = await begun(journal)
    assert await journal.owner("s1") == Here(lease.epoch)
    again = await journal.acquire("s1")
    assert await journal.owner("s1") == Here(again.epoch)
    await journal.release(again)
    assert await journal.owner("s1") == Free(again.epoch)
    await journal.acquire("s1")
    await journal.delete("s1")
    with pytest.raises(UnknownSessionError):
        await journal.owner("s1")


@promised
async def a_session_that_an_import_has_only_listed_is_free_to_whoever_saw_that(
    journal: Journal,
) -> None:
    await journal.links.enlist([Listed(NewSession("s1", "a", "/"), "d1", 1000, b"there")])
    assert await journal.owner("s1") == Free(0)
    lease = await journal.acquire("s1", Free(0))
    assert await journal.owner("s1") == Here(lease.epoch)
    with pytest.raises(HeldElsewhereError):
        await journal.acquire("s1", Free(0))
