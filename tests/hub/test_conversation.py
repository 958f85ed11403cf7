"""The agent's updates become a conversation: journalled, listed and sent to clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from acphold.live.agents.interface import Notified, Updates
from acphold.live.hub import bounds
from tests.editor import Refused
from tests.hub.shared import Shared, full, said, shared

COMMANDS = b'{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"x"}]}'


async def entries(house: Shared, session: str) -> list[tuple[str, bytes]]:
    segments = await house.journal.read(session, 0)
    return [(entry.kind, entry.raw) for segment in segments for entry in segment.entries()]


async def hear(house: Shared, session: str, *raws: bytes, kind: str = "update") -> None:
    await house.agent.listener.hear(Updates(session, kind, raws))


async def test_what_equals_the_present_state_is_not_journalled_again(house: Shared) -> None:
    _, session = await house.opened()
    for _ in range(3):
        await hear(house, session, COMMANDS)
    updates = [raw for kind, raw in await entries(house, session) if kind == "update"]
    assert updates == [COMMANDS]


async def test_a_mode_that_a_client_sets_is_told_once_though_the_agent_tells_it_too(
    house: Shared,
) -> None:
    house.agent.results["session/set_mode"] = b"{}"
    one, two, session = await house.pair()
    await one.call("session/set_mode", {"sessionId": session, "modeId": "code"})
    told = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
    await hear(house, session, json.dumps(told).encode())
    await hear(house, session, said("x"))
    await two.until_text("x")
    assert [u["sessionUpdate"] for u in two.updates()].count("current_mode_update") == 1


async def test_an_agents_notice_with_more_in_its_params_is_told(house: Shared) -> None:
    client, session = await house.opened(session={"notices": {}})
    update = {"sessionUpdate": "notice", "severity": "info", "title": "Look"}
    params = {"sessionId": session, "update": update, "_meta": {"vendor": 1}}
    await hear(house, session, json.dumps(params).encode(), kind="params")
    await client.until(lambda: [u for u in client.updates() if u["sessionUpdate"] == "notice"])
    assert client.messages[-1]["params"]["_meta"] == {"vendor": 1}


async def test_a_notice_right_behind_the_answer_that_makes_a_session_is_told(house: Shared) -> None:
    house.agent.notice_behind_new = json.dumps(
        {"sessionUpdate": "notice", "severity": "info", "title": "Welcome"}
    ).encode()
    client = await house.client(session={"notices": {}})
    await client.new()
    await client.until(lambda: [u for u in client.updates() if u["sessionUpdate"] == "notice"])


async def test_a_turn_fails_whose_words_before_a_notification_the_journal_could_not_take(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    _client, session, turn = await house.in_turn("go")
    with monkeypatch.context() as patch:
        patch.setattr(house.hub.conversation(session).session, "flush", full)
        params = json.dumps({"sessionId": session}).encode()
        await house.agent.listener.hear(Notified("_vendor/note", params))
    with pytest.raises(Refused, match="the disk is full"):
        await turn


@pytest.mark.parametrize("at", ["2031-05-06T07:08:09.000Z", "2020-05-06T07:08:09.000Z"])
async def test_list_and_load_say_one_time_that_the_agent_told_until_something_else_begins(
    at: str, house: Shared
) -> None:
    client, session = await house.opened()
    rests = house.hub.conversation(session).session

    async def said() -> set[str]:
        """The time in the list right after a turn, and later, and at the end of a load."""
        times = {(await client.sessions())[0]["updatedAt"]}
        await rests.settle()
        times.add((await client.sessions())[0]["updatedAt"])
        other = await house.client()
        await other.load(session)
        told = [it["updatedAt"] for it in other.updates() if "updatedAt" in it]
        await other.call("session/close", {"sessionId": session})
        return times | {*told[-1:]}

    await house.turn(client, session, "one", "ONE")
    [first] = await said()
    turn = await house.begun(client, session, "two")
    info = {"sessionUpdate": "session_info_update", "updatedAt": at}
    await hear(house, session, json.dumps(info).encode())
    await house.ended(session, turn)
    assert await said() == {at}
    await house.turn(client, session, "three", "THREE")
    [last] = await said()
    assert first < last != at


async def test_an_agents_time_that_no_calendar_has_is_passed_over(house: Shared) -> None:
    _client, session = await house.opened()
    before = await house.journal.session(session)
    info = {"sessionUpdate": "session_info_update", "updatedAt": "9999-12-31T23:59:59-12:00"}
    await hear(house, session, json.dumps(info).encode())
    row = await house.journal.session(session)
    assert row.updated_at == before.updated_at


async def test_a_prompt_stands_in_the_list_with_the_entry_that_holds_it(house: Shared) -> None:
    _client, session, turn = await house.in_turn("hi there")
    while (await entries(house, session))[-1][0] != "prompt":
        assert not (await house.journal.session(session)).prompted
        await asyncio.sleep(0)
    row = await house.journal.session(session)
    assert (row.prompted, row.title) == (True, "hi there")
    await house.ended(session, turn)


async def test_a_title_that_the_agent_makes_of_what_it_was_handed_is_not_taken(
    journal: Path,
) -> None:
    async with shared(journal) as house:
        client, session = await house.talked("my own words")
    async with shared(journal) as house:
        client = await house.loaded(session)
        turn = await house.begun(client, session, "go on", own="s0")
        info = {"sessionUpdate": "session_info_update", "title": "Earlier in this conversation"}
        await hear(house, "s0", json.dumps(info).encode())
        await house.agent.end("s0")
        await turn
        await hear(house, "s0", json.dumps(info).encode())
        assert (await house.journal.session(session)).title == "my own words"
        turn = await house.begun(client, session, "and on", own="s0")
        await hear(house, "s0", json.dumps(info).encode())
        await house.agent.end("s0")
        await turn
        assert (await house.journal.session(session)).title == "my own words"


async def test_of_a_prompt_that_comes_back_as_one_text_only_the_persons_words_are_kept(
    journal: Path,
) -> None:
    async with shared(journal) as house:
        client, session = await house.talked("my own words")
    async with shared(journal) as house:
        client = await house.loaded(session)
        client.messages.clear()
        turn = await house.begun(client, session, "go on", own="s0")
        [(_, asked)] = [each for each in house.agent.asked if each[0] == "session/prompt"]
        blocks = asked["prompt"]
        assert len(blocks) == 2
        for text in (blocks[0]["text"], "".join(block["text"] for block in blocks)):
            sent = said(text, "user_message_chunk")
            await hear(house, "s0", sent)
        await house.agent.end("s0")
        await turn
        assert client.text("user_message_chunk") == "go on"


async def test_a_prompt_that_the_agent_sends_back_is_told_to_nobody_twice(house: Shared) -> None:
    one, two, session = await house.pair()
    turn = await house.begun(one, session, "my words")
    await hear(house, session, said("my words", "user_message_chunk"))
    await house.agent.say(session, "heard")
    await house.ended(session, turn)
    await two.until_text("heard")
    for client in (one, two, await house.loaded(session)):
        assert client.text("user_message_chunk") == "my words"


async def test_what_the_agent_notifies_while_nobody_is_there_is_kept_in_bounds(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr("acphold.live.hub.bounds.DUE_BYTES", 8000)
    client, session = await house.opened()
    await house.leave(client)
    params = json.dumps({"sessionId": session, "filler": "x" * 1000}).encode()
    for _ in range(100):
        await house.agent.listener.hear(Notified("_vendor/note", params))
    await house.agent.listener.hear(Notified("_vendor/last", params))
    other = await house.client()
    await other.load(session)
    await house.told(other, session, "behind")
    told = [m["method"] for m in other.messages if "_vendor" in m.get("method", "")]
    assert told == ["_vendor/note"] * 7


async def test_modes_with_ids_that_are_no_strings_do_no_harm(house: Shared) -> None:
    house.agent.opened = {
        "modes": {"currentModeId": "a", "availableModes": [{"id": 1, "name": "One"}]}
    }
    client, session = await house.opened()
    option = {"id": "m", "category": "mode", "currentValue": 1, "options": []}
    update = {"sessionUpdate": "config_option_update", "configOptions": [option]}
    await hear(house, session, json.dumps(update).encode())
    await house.told(client, session, "goes on")


async def test_a_notice_of_the_agents_own_that_begins_like_ours_is_no_word_of_ours(
    house: Shared,
) -> None:
    odd = {"sessionUpdate": "notice", "_meta": {"acphold/notice": 5}, "title": "Odd"}
    client, session = await house.opened(session={"notices": {}})
    plain = await house.loaded(session)
    await hear(house, session, json.dumps(odd, separators=(",", ":")).encode())
    await house.told(client, session, "goes on")
    await plain.until_text("goes on")
    assert odd in client.updates()
    assert [update["sessionUpdate"] for update in plain.updates()] == ["agent_message_chunk"]
    assert plain.text() == "goes on"


async def test_updates_before_a_session_is_known_are_kept_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "EARLY_BYTES", 10_000)
    client = await house.client()
    for _ in range(3):
        await house.agent.say("s0", "x" * 4_000)  # the third is too much, for all
    await house.agent.say("s0", "early ")
    session = await client.new()
    await house.agent.say(session, "and late")
    await client.until_text("late")
    assert client.text() == "early and late"
