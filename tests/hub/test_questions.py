"""Questions of the agent while several clients are attached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import ConnectionLostError
from tests.editor import Refused, open_params
from tests.hub.shared import PERMISSION, Person, Shared, methods, shared, small_pages


async def test_the_first_answer_wins_and_the_others_are_told_it_is_over(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    first, second = Person(one), Person(two)
    session = await one.new()
    await two.load(session)
    await house.begun(one, session, "do it")
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    await first.asked.wait()
    await second.asked.wait()
    second.answer.set_result({"outcome": "two"})
    assert await question == {"outcome": "two"}
    await one.until(lambda: "$/cancel_request" in methods(one))
    asked = next(m for m in one.messages if m.get("method") == PERMISSION)
    over = next(m for m in one.messages if m.get("method") == "$/cancel_request")
    assert over["params"] == {"requestId": asked["id"]}
    assert "$/cancel_request" not in methods(two)
    first.answer.set_result({"outcome": "too late"})
    await house.agent.end(session)


async def test_one_client_that_cannot_answer_leaves_it_to_the_other(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    del one.answers[PERMISSION]  # answers with an error
    second = Person(two)
    session = await one.new()
    await two.load(session)
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    await second.asked.wait()
    await one.until(lambda: PERMISSION in methods(one))
    second.answer.set_result({"outcome": "yes"})
    assert await question == {"outcome": "yes"}


async def test_a_question_that_comes_during_a_load_is_put_once_and_behind_its_answer(
    journal: Path,
) -> None:
    with small_pages():
        async with shared(journal) as house, asyncio.timeout(10):
            await ask_during_a_load(house)


async def ask_during_a_load(house: Shared) -> None:
    one = await house.client()
    Person(one)
    session = await one.new()
    for _ in range(100):
        await house.agent.say(session, "x" * 100)
    two = await house.client()
    second = Person(two)
    loading = two.begin("session/load", open_params(session, "/"))
    for _ in range(4):
        await asyncio.sleep(0)
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    await loading
    await second.asked.wait()
    second.answer.set_result({"outcome": "two"})
    await question
    assert methods(two).count(PERMISSION) == 1
    place = next(n for n, m in enumerate(two.messages) if m.get("method") == PERMISSION)
    assert place > two.place_of_answer(two.last_id)


async def test_a_question_the_agent_takes_back_is_taken_back_from_all(house: Shared) -> None:
    one, two = await house.client(), await house.client()
    people = Person(one), Person(two)
    session = await one.new()
    await two.load(session)
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    for person in people:
        await person.asked.wait()
    question.cancel()
    await one.until(lambda: "$/cancel_request" in methods(one))
    await two.until(lambda: "$/cancel_request" in methods(two))
    [answer] = await house.entries(session, "answer")
    assert answer["outcome"] == "withdrawn"


async def test_a_prompt_that_is_withdrawn_ends_the_question_of_its_turn(house: Shared) -> None:
    house.agent.heeds_cancel = False  # it waits for the answer
    client = await house.client()
    person = Person(client)
    session = await client.new()
    turn = await house.begun(client, session, "hi")
    number = client.last_id
    tool = {"toolCallId": "t", "title": "Run it"}
    asking = asyncio.create_task(
        house.agent.ask_client(PERMISSION, sessionId=session, toolCall=tool, options=[])
    )
    await person.asked.wait()
    client.tell("$/cancel_request", {"requestId": number})
    assert await asking == {"outcome": {"outcome": "cancelled"}}
    with pytest.raises(Refused, match="cancelled"):
        await turn


async def test_what_the_agent_waits_for_ends_when_the_session_is_closed(house: Shared) -> None:
    client = await house.client()
    for method in (PERMISSION, "_agent/asks"):
        client.answers[method] = never
    session = await client.new()
    decision, other = (
        asyncio.create_task(house.agent.ask_client(method, sessionId=session))
        for method in (PERMISSION, "_agent/asks")
    )
    await client.until(lambda: {PERMISSION, "_agent/asks"} <= set(methods(client)))
    await client.call("session/close", {"sessionId": session})
    assert await decision == {"outcome": {"outcome": "cancelled"}}
    with pytest.raises(ConnectionLostError, match="the session was closed"):
        await other


async def never(asked: dict[str, Any]) -> dict[str, Any]:
    """A person who has left the room."""
    await asyncio.Event().wait()
    return {}
