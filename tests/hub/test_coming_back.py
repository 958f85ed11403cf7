"""A client that comes back behind its position after its owner, or the history, has changed."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds, rest
from tests.hub.shared import Onlooker, Shared, full, shared
from tests.hub.test_positions import (
    POSITIONS,
    after,
    is_merged,
    opened,
    positions,
    settle,
    told,
)
from tests.postgresql import Databases
from tests.watched_processes import until

DEADLINE = 30


async def place_of(client: Onlooker, text: str) -> int:
    """The position of the update in which the agent says this."""
    await client.until_text(text)
    for params in told(client):
        if params["update"].get("content", {}).get("text") == text:
            return int(params["_meta"]["acphold/seq"])
    raise AssertionError(text)


async def in_a_turn(house: Shared, client: Onlooker, *texts: str) -> str:
    """A session whose turn runs; the agent has said these."""
    session = await client.new()
    await house.begun(client, session, "go")
    for text in texts:
        await house.agent.say(session, text)
    return session


async def cut_off(house: Shared) -> tuple[Onlooker, str, int]:
    """Return the client that prompted, the session, and the position at which another left."""
    one, other = await house.client(**POSITIONS), await house.client()
    session = await in_a_turn(house, other, "a")
    await one.load(session)
    place = await place_of(one, "a")
    await house.leave(one)
    return other, session, place


async def says_and_ends(house: Shared, session: str, *texts: str) -> None:
    """The agent says these, and its turn is over."""
    for text in texts:
        await house.agent.say(session, text)
    await house.agent.end(session)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are settled in the step after a turn, unless something speaks against it."""
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "UNNOTICED_SECONDS", 0.0)


async def rested(house: Shared) -> None:
    """Long enough for all that is not put off."""
    for _ in range(50):
        await asyncio.sleep(0.001)


async def until_merged(house: Shared, session: str) -> None:
    """Wait until the session is settled."""
    await until(lambda: is_merged(house, session))


async def test_a_client_of_a_dead_owner_gets_the_rest_of_the_turn_and_how_it_ended(
    journal: Path,
) -> None:
    async with shared(journal) as dead, shared(journal) as house, asyncio.timeout(DEADLINE):
        await dead.give_way()
        one = await dead.client(**POSITIONS)
        session = await in_a_turn(dead, one, "a", "b", "c")
        place = await place_of(one, "b")
        back = await house.client(**POSITIONS)
        await back.resume(session, **after(place))  # takes it over
        await back.until(lambda: len(told(back)) >= 3)
        assert back.text() == "c"
        assert told(back)[2]["update"]["_meta"] == {"acphold/turn": {"outcome": "interrupted"}}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_client_that_has_just_come_keeps_its_position_after_the_owner_died(
    is_followed: bool, journal: Path
) -> None:
    async with shared(journal) as dead, shared(journal) as house, asyncio.timeout(DEADLINE):
        await dead.give_way()
        one = await dead.client()
        session = await in_a_turn(dead, one, "a", "b", "c")
        await one.until_text("c")
        if is_followed:
            follower = await dead.client(**POSITIONS)
            await follower.load(session)  # and nothing is told behind that
        other = await house.client()
        await other.load(session)
        await house.turn(other, "s0", "go on", "d", "e")
        if is_followed:
            await rested(house)
            assert not await is_merged(house, session)
        else:
            await until_merged(house, session)


@pytest.mark.postgresql
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_position_is_kept_by_a_machine_whose_clock_is_wrong_by_an_hour(
    ahead: int, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    with databases.new() as location:
        async with shared(location) as dead:
            await dead.give_way()
            one = await dead.client()
            session = await in_a_turn(dead, one, "a", "b", "c")
            follower = await dead.client(**POSITIONS)
            await follower.load(session)
            clock = time.time_ns
            monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead * 10**9)
            async with shared(location) as house, asyncio.timeout(DEADLINE):
                other = await house.client()
                await other.load(session)
                assert abs(house.journal.now_ms() - clock() // 10**6) < 10_000
                await house.turn(other, "s0", "go on", "d", "e")
                await rested(house)
                assert not await is_merged(house, session)
                row = await house.journal.session(session)
                assert abs(row.updated_at - clock() // 10**6) < 60_000


@pytest.mark.usefixtures("at_once")
async def test_each_client_that_was_there_keeps_its_position_after_the_owner_died(
    journal: Path,
) -> None:
    async with shared(journal) as dead, shared(journal) as house, asyncio.timeout(DEADLINE):
        await dead.give_way()
        one, two = [await dead.client(**POSITIONS) for _ in range(2)]
        session = await in_a_turn(dead, one, "a", "b", "c")
        place = await place_of(one, "b")
        await two.load(session)
        first = await house.client(**POSITIONS)
        await first.resume(session, **after(place))
        await house.turn(first, "s0", "go on", "d", "e")
        await rested(house)
        second = await house.client(**POSITIONS)
        await second.resume(session, **after(place))
        await second.until_text("e")


@pytest.mark.usefixtures("at_once")
async def test_once_it_was_settled_without_followers_nobody_followed_it(house: Shared) -> None:
    async def is_followed(wanted: bool) -> bool:
        return bool((await house.journal.session(session)).followers) is wanted

    one, follower = await house.client(), await house.client(**POSITIONS)
    session = await one.new()
    await follower.load(session)
    turn = await house.begun(one, session, "say it")
    await house.agent.say(session, "a")
    await until(lambda: is_followed(True))
    await house.ended(session, turn)
    await follower.call("session/close", {"sessionId": session})
    await one.load(session)
    await house.turn(one, session, "say it", "a", "b")
    await until(lambda: is_followed(False))
    await house.begun(one, session, "again")
    await house.agent.say(session, "c")
    assert await is_followed(False)


async def test_a_client_is_let_in_though_its_position_cannot_be_noted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    one, follower = await house.client(), await house.client(**POSITIONS)
    session = await one.new()
    await house.turn(one, session, "say it", "a")
    monkeypatch.setattr(house.hub.journal, "change", full)
    await follower.load(session)
    assert follower.text() == "a"
    assert "positions may be lost" in caplog.text


@pytest.mark.usefixtures("at_once")
async def test_an_owner_that_ends_leaves_the_session_as_it_is_to_those_it_cut_off(
    journal: Path,
) -> None:
    async with asyncio.timeout(DEADLINE):
        async with shared(journal) as ended:
            _, session, place = await cut_off(ended)
            await says_and_ends(ended, session, "b", "c")
        async with shared(journal) as house:
            back = await house.client(**POSITIONS)
            await back.resume(session, **after(place))
            await back.until_text("c")
            assert [u["content"]["text"] for u in back.updates() if "content" in u][:2] == [
                *("b", "c")
            ]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("later", [bounds.BOOKMARK_SECONDS + 1, 20 * 3600.0])
async def test_a_client_that_was_cut_off_in_a_turn_may_come_back_within_a_day(
    later: float, house: Shared
) -> None:
    _, session, place = await cut_off(house)
    pass_by(house, session, later)
    stranger = await house.client(**POSITIONS)  # takes nobody's position
    refusal = await stranger.refused("session/resume", {**opened(session), **after(999)})
    assert "the session ends at" in refusal.message
    await says_and_ends(house, session, "b", "c")
    await rested(house)
    back = await house.client(**POSITIONS)
    await back.resume(session, **after(place))
    await back.until_text("c")
    assert back.text() == "bc"


def pass_by(house: Shared, session: str, seconds: float) -> None:
    """So much later, for the places that are kept."""
    resting = house.hub.conversation(session).session.rest
    resting._bookmarks = [
        rest.Bookmark(place.soon - seconds, place.late - seconds) for place in resting._bookmarks
    ]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "later", [bounds.BOOKMARK_SECONDS + 1, bounds.BOOKMARK_IN_TURN_SECONDS + 1]
)
async def test_once_others_go_on_the_history_is_put_together_and_who_comes_then_is_told_to_load(
    later: float, house: Shared
) -> None:
    other, session, place = await cut_off(house)
    await says_and_ends(house, session, "b", "c")
    pass_by(house, session, later)
    await house.turn(other, session, "say it", "d", "e")
    await until_merged(house, session)
    back = await house.client(**POSITIONS)
    refusal = await back.refused("session/resume", {**opened(session), **after(place)})
    assert refusal.code == -32602
    assert "load the session" in refusal.message
    await back.load(session)
    assert back.text() == "abcde"


async def test_a_client_goes_on_between_two_turns_though_what_came_later_was_put_together(
    house: Shared,
) -> None:
    one, other = await house.client(**POSITIONS), await house.client()
    session = await one.new()
    await other.load(session)
    await house.turn(one, session, "say it", "a", "b")
    await one.until(lambda: "session_info_update" in str(told(one)[-1]))
    place = positions(one)[-1]  # of the title; the end of the turn tells it nothing
    await one.leave()
    running = await house.begun(other, session, "say it")
    for n, status in enumerate(("pending", "in_progress", "completed")):
        await house.agent.say(session, f"{n}")
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status}
        await house.agent.listener.hear(Updates(session, "update", [json.dumps(call).encode()]))
    await house.ended(session, running)
    await settle(house, session)
    back = await house.client(**POSITIONS)
    await back.resume(session, **after(place))
    await back.until(lambda: back.text() == "012")
    assert shown(back) == [
        ("user_message_chunk", "say it"),
        ("agent_message_chunk", "0"),
        ("tool_call_update", "completed"),
        ("agent_message_chunk", "12"),
    ]


def shown(client: Onlooker) -> list[tuple[str, Any]]:
    return [
        (u["sessionUpdate"], u.get("status") or u["content"]["text"])
        for u in client.updates()
        if "content" in u or "status" in u
    ]


async def test_a_time_in_the_future_keeps_no_position_for_longer_after_the_owner_died(
    journal: Path,
) -> None:
    async with shared(journal) as dead, shared(journal) as house, asyncio.timeout(DEADLINE):
        await dead.give_way()
        one = await dead.client(**POSITIONS)
        session = await in_a_turn(dead, one, "a")
        future = {"sessionUpdate": "session_info_update", "updatedAt": "2099-01-01T00:00:00Z"}
        await dead.agent.listener.hear(Updates(session, "update", [json.dumps(future).encode()]))
        await house.loaded(session)
        [place] = house.hub.conversation(session).session.rest._bookmarks
        assert place.late <= asyncio.get_running_loop().time() + bounds.BOOKMARK_IN_TURN_SECONDS
