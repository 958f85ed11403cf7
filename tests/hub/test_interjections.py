"""Words of a person to the agent, apart from prompts, are part of the conversation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from acphold.conversation.history.timeline import Message
from acphold.errors import RemoteError
from acphold.journal.journal import state_of
from acphold.live.agents.interface import Updates
from acphold.live.hub.waiting_prompts import prompt_in
from tests.editor import Refused
from tests.hub.shared import Onlooker, Shared, said

STEER = "_session/steering"
WORDS = [{"type": "text", "text": "in French, please"}]
INJECTED = b'{"outcome":"injected"}'


async def begun(house: Shared, client: Onlooker, session: str) -> asyncio.Future[Any]:
    turn = await house.begun(client, session, "say hello")
    await house.agent.say(session, "Bon")
    return turn


def users_words(client: Onlooker) -> list[str]:
    return [
        update["content"]["text"]
        for update in client.updates()
        if update["sessionUpdate"] == "user_message_chunk"
    ]


async def said_by_user(house: Shared, session: str) -> list[str]:
    state = await state_of(house.journal, session)
    users = [item for item in state.timeline if isinstance(item, Message) and item.role == "user"]
    return [message.text for message in users]


async def test_words_taken_into_a_turn_are_told_to_the_others_and_replayed(house: Shared) -> None:
    house.agent.results[STEER] = INJECTED
    one, two, session = await house.pair()
    turn = await begun(house, one, session)
    assert await one.call(STEER, {"sessionId": session, "prompt": WORDS}) == json.loads(INJECTED)
    await house.agent.say(session, "jour")
    await house.ended(session, turn)
    await two.until_text("Bonjour")
    assert users_words(two) == ["say hello", "in French, please"]
    assert users_words(one) == []
    metas = [u.get("_meta") for u in two.updates() if "content" in u]
    assert metas == [None, None, {"acphold/method": STEER}, None]
    three = await house.loaded(session)
    assert users_words(three) == ["say hello", "in French, please"]
    assert await said_by_user(house, session) == ["say hello", "in French, please"]


@pytest.mark.parametrize(
    "answer",
    [
        RemoteError(-32601, "no such"),
        b'{"outcome":"promptRequired","reason":"noRunningTurn"}',
        b'{"outcome":"failed"}',
        b'{"success":false,"error":"no session"}',
    ],
)
async def test_words_that_the_agent_refuses_are_not_in_the_journal(
    answer: bytes | RemoteError, house: Shared
) -> None:
    house.agent.results[STEER] = answer
    client, session = await house.opened()
    turn = await begun(house, client, session)
    try:
        await client.call(STEER, {"sessionId": session, "prompt": WORDS})
    except Refused:
        assert isinstance(answer, RemoteError)
    await house.ended(session, turn)
    assert await said_by_user(house, session) == ["say hello"]


@pytest.mark.parametrize("when", ["before the answer", "behind it"])
async def test_words_that_the_agent_sends_back_are_replayed_once(when: str, house: Shared) -> None:
    house.agent.results[STEER] = INJECTED
    echo = said(WORDS[0]["text"], "user_message_chunk")
    one, two = await house.client(), await house.client()
    session = await one.new()
    turn = await begun(house, one, session)
    if when == "before the answer":
        house.agent.replays[STEER] = [echo]
    await one.call(STEER, {"sessionId": session, "prompt": WORDS})
    if when == "behind it":
        await house.agent.listener.hear(Updates(session, "update", [echo]))
    await house.ended(session, turn)
    await two.load(session)
    assert users_words(two) == ["say hello", "in French, please"]


async def test_a_notification_may_say_something_too(house: Shared) -> None:
    client, two, session = await house.pair()
    client.tell("_session/steer", {"sessionId": session, "message": "in French, please"})
    await two.until(lambda: users_words(two) == ["in French, please"])
    assert users_words(client) == []


async def test_a_turn_that_such_words_begin_behind_a_cancelled_one_counts(house: Shared) -> None:
    house.agent.results[STEER] = b'{"outcome":"startedNewTurn"}'
    client, two = await house.client(), await house.client()
    session = await client.new()
    turn = await begun(house, client, session)
    client.tell("session/cancel", {"sessionId": session})
    await turn
    await client.call(STEER, {"sessionId": session, "prompt": WORDS})
    await house.told(client, session, "Bonjour")
    await two.load(session)
    assert two.text().endswith("Bonjour")


@pytest.mark.parametrize(
    ("method", "params", "blocks"),
    [
        (STEER, {"prompt": WORDS}, WORDS),
        ("_goose/unstable/session/steer", {"prompt": WORDS, "expectedRunId": "r"}, WORDS),
        ("session/inject", {"prompt": WORDS, "mode": "steer"}, WORDS),
        ("_vendor/session/queue", {"prompt": WORDS}, WORDS),
        ("_session/steer", {"message": "in French, please"}, WORDS),
        ("_session/inject", {"text": "in French, please"}, WORDS),
        ("_kiro.dev/session/steer", {"content": WORDS}, WORDS),
        ("_session/steer/clear", {"message": "x"}, None),
        ("_vendor/rate", {"message": "x", "text": "y"}, None),
        ("_vendor/template", {"prompt": "a template"}, None),
        ("_vendor/template", {"prompt": [{"role": "user"}]}, None),
        ("_vendor/template", {"prompt": []}, None),
        (STEER, {"prompt": "no blocks"}, None),
        (STEER, [1], None),
    ],
)
def test_what_a_method_says_is_known_by_its_blocks_or_its_name(
    method: str, params: Any, blocks: Any
) -> None:
    found = prompt_in(method, json.dumps(params).encode())
    assert (None if found is None else json.loads(found)) == blocks
