"""Links: the agents' ids for our sessions, and those to be forgotten."""

from __future__ import annotations

from acphold.journal import Journal, ListFilter, NewSession, is_forgotten, session_of
from acphold.testing.journal_promises.promise import promised


@promised
async def the_newest_link_is_the_one_to_use(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    assert (await journal.session("s1")).downstream_id is None
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(lease, "a", "d2")
    assert (await journal.session("s1")).downstream_id == "d2"
    await journal.links.link(lease, "a", "d1")
    assert (await journal.session("s1")).downstream_id == "d1"
    assert await session_of(journal, "a", "d2") == "s1"
    assert await session_of(journal, "b", "d2") is None
    assert await journal.page(ListFilter(include_unprompted=True)) == [await journal.session("s1")]


@promised
async def linked_tells_ours_from_the_agents_own(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(None, "a", "gone")
    asked = ["d1", "gone", *(f"other {n}" for n in range(2000))]
    assert await journal.links.linked("a", asked) == {"d1": "s1", "gone": None}
    assert await journal.links.linked("b", asked) == {}
    assert await journal.links.linked("a", []) == {}


@promised
async def the_ids_of_a_session_are_told_from_the_oldest_to_the_newest(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    other = await journal.create(NewSession("s2", "a", "/"))
    assert await journal.links.of("s1") == []
    await journal.links.link(lease, "b", "d2")
    await journal.links.link(lease, "a", "d1")
    await journal.links.link(other, "a", "d3")
    await journal.links.link(lease, "a", "d0")
    await journal.links.link(lease, "b", "d2")
    assert await journal.links.of("s1") == [("a", "d1"), ("a", "d0"), ("b", "d2")]
    assert await journal.links.of("no such session") == await journal.links.of(None) == []
    await journal.release(other)
    await journal.delete("s2")
    await journal.links.link(None, "c", "theirs")
    assert sorted(await journal.links.of(None)) == [("a", "d3"), ("c", "theirs")]


@promised
async def deleting_a_session_leaves_tombstones_for_its_links(journal: Journal) -> None:
    lease = await journal.create(NewSession("s1", "a", "/"))
    await journal.links.link(lease, "a", "d1")
    assert not await is_forgotten(journal, "a", "d1")
    assert await journal.delete("s1")
    assert await is_forgotten(journal, "a", "d1")
    assert await session_of(journal, "a", "d1") is None
    assert await journal.links.linked("a", ["d1"]) == {"d1": None}


@promised
async def an_id_that_was_never_ours_can_be_forgotten(journal: Journal) -> None:
    await journal.links.link(None, "a", "theirs")
    assert await is_forgotten(journal, "a", "theirs")
    assert not await is_forgotten(journal, "b", "theirs")
    lease = await journal.create(NewSession("theirs", "a", "/"))
    await journal.links.link(lease, "a", "theirs")
    assert not await is_forgotten(journal, "a", "theirs")
