"""A journal that has gone back: clients that saw lost entries do not get a false rest."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Refused
from tests.hub.shared import Onlooker, Shared, shared
from tests.hub.test_positions import POSITIONS, opened, positions
from tests.timelines import TIMELINES, Database, Timeline, database

DEADLINE = 90


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def timeline(request: pytest.FixtureRequest) -> Iterator[Timeline]:
    with TIMELINES[request.param]() as found:
        yield found


def lineage(client: Onlooker) -> str:
    """The one that this client has got with the answer to its last request."""
    answer = client.messages[client.place_of_answer(client.last_id)]
    found: str = answer["result"]["_meta"]["acphold/lineage"]
    return found


def behind(seq: int | None, of: str) -> dict[str, Any]:
    return {"_meta": {"acphold/after": seq, "acphold/lineage": of}}


async def test_the_answer_that_opens_a_session_has_its_lineage_for_who_asks_for_positions(
    house: Shared,
) -> None:
    one, session = await house.opened(**POSITIONS)
    made = lineage(one)
    await house.turn(one, session, "say it", "a")
    two = await house.loaded(session, **POSITIONS)
    assert lineage(two) == made
    three = await house.client()
    await three.resume(session, **behind(positions(one)[-1], made))
    assert lineage(three) == made  # it goes on behind positions, and gets some
    four = await house.client()
    assert "_meta" not in (await four.load(session) or {})


async def test_the_lineage_is_the_same_under_the_next_owner_and_another_one_for_a_new_session(
    journal: Path,
) -> None:
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        one, session = await house.opened(**POSITIONS)
        made = lineage(one)
        await house.turn(one, session, "say it", "a")
        place = positions(one)[-1]
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        two = await house.client(**POSITIONS)
        await two.resume(session, **behind(place, made))
        assert lineage(two) == made
        _, other = await house.opened(**POSITIONS)
        refusal = await two.refused("session/resume", {**opened(other), **behind(1, made)})
        assert refusal.code == -32602


async def test_a_client_that_resumes_behind_a_position_of_a_lost_timeline_is_refused(
    timeline: Timeline,
) -> None:
    async with shared(timeline.url) as house, asyncio.timeout(DEADLINE):
        one, session = await house.opened(**POSITIONS)
        known = lineage(one)
        await house.turn(one, session, "first", "kept")
        kept = positions(one)[-1]
        await timeline.remember()
        await house.turn(one, session, "second", "lost")
        lost = positions(one)[-1]
    timeline.go_back()
    timeline.let_owners_be_silent()
    async with shared(timeline.url) as house, asyncio.timeout(DEADLINE):
        # Others go on, until a new entry has the number of a lost one.
        other = await house.loaded(session, **POSITIONS)
        await grown(house, other, session, lost)
        back = await house.client(**POSITIONS)
        for place in (kept, lost):
            refusal = await back.refused(
                "session/resume", {**opened(session), **behind(place, known)}
            )
            assert (refusal.code, "load the session" in refusal.message) == (-32602, True)
        await back.load(session)
        assert back.text().startswith("kept")
        assert "lost" not in back.text()
        assert lineage(back) != known


@pytest.fixture
def standby() -> Iterator[Database]:
    with database() as found:
        yield found


async def failed_over(house: Shared, standby: Database) -> tuple[Onlooker, str]:
    """A client of a session that is live while a standby takes over which lacks a turn."""
    client, session = await house.talked("first", "kept", session={"notices": {}}, **POSITIONS)
    await standby.remember()
    await house.turn(client, session, "second", "lagged")
    await asyncio.to_thread(standby.go_back)
    return client, session


async def seqs(house: Shared, session: str) -> list[int]:
    found = [each for segment in await house.journal.read(session, 0) for each in segment.entries()]
    return [entry.seq for entry in found]


@pytest.mark.postgresql
async def test_an_owner_writes_again_what_a_standby_lacks_that_takes_over(
    standby: Database,
) -> None:
    async with shared(standby.url) as house, asyncio.timeout(DEADLINE):
        client, session = await failed_over(house, standby)
        before = lineage_of(house, session)
        assert (await house.turn(client, session, "third", "new"))["stopReason"] == "end_turn"
        found = await seqs(house, session)
        assert found == [*range(1, len(found) + 1)]
        other = await house.loaded(session, **POSITIONS)
        assert other.text() == "keptlaggednew"
        assert lineage(other) == before


@pytest.mark.postgresql
async def test_a_takeover_that_a_standby_lacks_is_written_again(standby: Database) -> None:
    async with shared(standby.url) as first, asyncio.timeout(DEADLINE):
        client, session = await first.talked("first", "kept", **POSITIONS)
        await client.call("session/close", {"sessionId": session})
        async with shared(standby.url) as second:
            await standby.remember()
            heir = await second.loaded(session, **POSITIONS)
            await second.turn(heir, session, "second", "taken", own="s0")
            await asyncio.to_thread(standby.go_back)
            await second.turn(heir, session, "third", "new", own="s0")
            other = await second.loaded(session, **POSITIONS)
            assert other.text() == "kepttakennew"
            found = await seqs(second, session)
            assert found == [*range(1, len(found) + 1)]


@pytest.mark.postgresql
async def test_what_a_standby_lacks_is_written_again_also_while_nothing_happens(
    standby: Database,
) -> None:
    async with shared(standby.url) as house, asyncio.timeout(DEADLINE):
        _, session = await failed_over(house, standby)
        leases = [house.hub.conversation(session).session.lease]
        while len(await seqs(house, session)) < leases[0].next_seq - 1:
            at_once = (house.journal.renew(leases) for _ in range(4))  # beside the hub's own
            assert await asyncio.gather(*at_once) == [[]] * 4


@pytest.mark.postgresql
async def test_what_a_standby_lacks_is_written_again_by_an_owner_that_was_late_for_one_session(
    standby: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.journal.bounds.RENEW_SECONDS", 600)  # below
    async with shared(standby.url) as house, asyncio.timeout(DEADLINE):
        _, other = await house.opened()
        _, session = await failed_over(house, standby)
        house.journal.late_at = 0.0
        late, idle = (house.hub.conversation(each).session for each in (other, session))
        await late.verify()
        assert house.journal.late_at
        assert await house.journal.renew([late.lease, idle.lease]) == []
        assert len(await seqs(house, session)) == idle.lease.next_seq - 1


@pytest.mark.postgresql
async def test_what_cannot_be_written_again_is_said_to_be_lost_and_no_turn_ends_in_a_hole(
    standby: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acphold.journal.bounds.REMEMBERED_BYTES", 0)
    monkeypatch.setattr("acphold.journal.bounds.RENEW_SECONDS", 600)  # the turn finds it out
    async with shared(standby.url) as house, asyncio.timeout(DEADLINE):
        client, session = await failed_over(house, standby)
        before = lineage_of(house, session)
        with pytest.raises(Refused, match="the journal has gone back"):
            await client.prompt(session, "third")
        notices = [it for it in client.updates() if it["sessionUpdate"] == "notice"]
        assert [it["title"] for it in notices][:1] == ["Part of this session is lost"]
        assert "deleted" not in json.dumps(notices)
        other = await house.loaded(session, **POSITIONS)
        assert (other.text(), lineage(other) != before) == ("kept", True)
        await house.turn(other, session, "fourth", "on", own="s1")  # the agent has it anew
        found = await seqs(house, session)
        assert found == [*range(1, len(found) + 1)]


@pytest.mark.postgresql
async def test_a_session_that_a_standby_never_had_is_not_said_to_be_deleted(
    standby: Database,
) -> None:
    async with shared(standby.url) as house, asyncio.timeout(DEADLINE):
        await house.opened()
        await standby.remember()
        client, session = await house.opened(session={"notices": {}})
        await asyncio.to_thread(standby.go_back)
        with pytest.raises(Refused):
            await client.prompt(session, "say it")
        assert "deleted" not in json.dumps(client.messages)


def lineage_of(house: Shared, session: str) -> str:
    return house.hub.conversation(session).session.lease.lineage


@pytest.mark.of_a_file
async def test_nothing_is_appended_to_a_file_that_lacks_the_entry_before(
    journal: Path, house: Shared
) -> None:
    client, session = await house.opened(**POSITIONS)
    before = lineage(client)
    await house.turn(client, session, "first", "kept", "lost")
    with closing(sqlite3.connect(journal)) as other:
        other.execute("DELETE FROM segments WHERE key & 4294967295 > 3")
        other.commit()
    with pytest.raises(Refused, match="nothing after entry 3"):
        await client.prompt(session, "second")
    again = await house.loaded(session, **POSITIONS)
    assert lineage(again) != before


async def grown(house: Shared, client: Onlooker, session: str, beyond: int | None) -> None:
    """Say things in the session until its positions are beyond this one."""
    assert beyond is not None
    while (positions(client) or [0])[-1] <= beyond:  # type: ignore[operator]
        await house.turn(client, session, "go on", *"abc")
