"""Turns that were made without us are taken in once, or told of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.live.hub import bounds
from tests.hub.shared import Shared, said, shared

LATER = "2100-01-01T00:00:00Z"


def user(text: str) -> bytes:
    return said(text, "user_message_chunk")


@pytest.fixture
async def kept(journal: Path) -> None:
    """The session "s0" with a turn in it, of an agent that has ended since."""
    async with shared(journal) as house:
        client = await house.client()
        assert await client.new() == "s0"
        await house.turn(client, "s0", "mine", "answered")


def lists(house: Shared, *can: str, **info: Any) -> None:
    house.agent.can("list", *can)
    listed = {"sessionId": "s0", "cwd": "/", "updatedAt": LATER, **info}
    house.agent.results["session/list"] = json.dumps({"sessions": [listed]}).encode()


@pytest.mark.usefixtures("kept")
async def test_a_turn_that_was_made_outside_is_in_the_next_load_once(journal: Path) -> None:
    replay = [user("mine"), said("answered"), user("outside"), said("answered there")]
    for _ in range(2):
        async with shared(journal) as house:
            lists(house, "load", "resume")
            house.agent.replays["session/load"] = replay
            client = await house.loaded("s0")
            assert client.text("user_message_chunk") == "mineoutside"
            assert client.text() == "answeredanswered there"


@pytest.mark.usefixtures("kept")
async def test_turns_are_taken_in_however_often_the_session_went_on_outside(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    replay = [user("mine"), said("answered")]
    lists(house, "load", "resume")
    for number in range(4):
        replay += [user(f"outside {number} "), said("answered there")]
        monkeypatch.setattr(bounds, "CAPTURED_BYTES", sum(map(len, replay)))
        house.agent.replays["session/load"] = [*replay]
        house.agent.generation += 1  # it is started anew
        client = await house.loaded("s0")
        assert f"outside {number} " in client.text("user_message_chunk")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("can", ["load", "resume"], ids=["too long", "none"])
async def test_the_person_is_told_that_there_is_more_than_the_agents_replay_tells(
    can: str, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    replay = [user("mine"), said("answered"), user("outside"), said("answered there")]
    monkeypatch.setattr(bounds, "CAPTURED_BYTES", sum(map(len, replay[2:])) - 1)
    lists(house, can)
    house.agent.replays["session/load"] = replay
    client = await house.loaded("s0")
    assert "continued outside" in client.text()
    assert client.text("user_message_chunk") == "mine"


@pytest.mark.usefixtures("kept")
async def test_a_session_that_did_not_go_on_is_resumed_without_a_word(house: Shared) -> None:
    lists(house, "load", "resume", updatedAt="2020-01-01T00:00:00Z")
    client = await house.loaded("s0")
    assert client.text() == "answered"
    assert [method for method, _ in house.agent.asked][-1] == "session/resume"


@pytest.mark.usefixtures("kept")
async def test_the_list_shows_the_later_time_and_what_the_agent_says_in_meta(house: Shared) -> None:
    lists(house, _meta={"vendor": 7})
    client = await house.client()
    [info] = await client.sessions()
    assert info["updatedAt"] == "2100-01-01T00:00:00.000Z"
    assert info["_meta"] == {"vendor": 7, "acphold/messageCount": 2}


async def test_what_the_agent_says_in_meta_is_listed_also_under_an_id_of_ours(
    journal: Path,
) -> None:
    async with shared(journal) as house:  # the id is taken
        await (await house.client()).new()
    async with shared(journal) as house:
        client, session = await house.opened()
        assert session != "s0"
        await house.turn(client, session, "hi", own="s0")
        house.agent.can("list")
        info = {"sessionId": "s0", "cwd": "/", "_meta": {"vendor": 7}}
        house.agent.results["session/list"] = json.dumps({"sessions": [info]}).encode()
        [listed] = await client.sessions()
        assert listed["sessionId"] == session
        assert listed["_meta"]["vendor"] == 7
