"""Several people in one session: prompting, cancelling, setting and closing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from acphold.live.agents.interface import Updates
from tests.editor import prompt_params
from tests.hub.shared import (
    PERMISSION,
    Onlooker,
    Person,
    Shared,
    until,
)

CANCELLED = {"stopReason": "cancelled"}
ENDED = {"stopReason": "end_turn"}

DEADLINE = 30


async def two_clients(house: Shared, **capabilities: Any) -> tuple[Onlooker, Onlooker, str]:
    """Two clients, and a session that both have open."""
    one = await house.client(name="one", **capabilities)
    two = await house.client(name="two", **capabilities)
    session = await one.new()
    await two.load(session)
    return one, two, session


def heard(client: Onlooker) -> list[tuple[str, str | None]]:
    """The prompts this client was told of, each with the name of the client that sent it."""
    return [
        (
            update["content"]["text"],
            update.get("_meta", {}).get("acphold/client", {}).get("name"),
        )
        for update in client.updates()
        if update["sessionUpdate"] == "user_message_chunk"
    ]


async def test_prompts_of_several_clients_queue_in_order_and_each_sees_those_of_the_others(
    house: Shared,
) -> None:
    one, two, session = await two_clients(house)
    turns = [
        one.begin_prompt(session, "first"),
        one.begin_prompt(session, "second"),
    ]
    await house.agent.prompted(session)
    turns.append(two.begin_prompt(session, "third"))
    for number in range(3):
        await house.agent.prompted(session)
        await house.agent.say(session, f"answer {number} ")
        await house.agent.end(session)
    assert await asyncio.gather(*turns) == [ENDED] * 3
    await until([one, two], "answer 2 ")
    prompts = [params for method, params in house.agent.asked if method == "session/prompt"]
    assert [params["prompt"][0]["text"] for params in prompts] == ["first", "second", "third"]
    assert heard(one) == [("third", "two")]
    assert heard(two) == [("first", "one"), ("second", "one")]


async def test_a_replay_tells_who_prompted_also_when_the_session_is_settled(house: Shared) -> None:
    one, two, session = await two_clients(house)
    nameless = await house.loaded(session)
    for client, words in ((one, "a"), (two, "b"), (nameless, "c")):
        await house.turn(client, session, words)
    await one.call("session/close", {"sessionId": session})
    await two.call("session/close", {"sessionId": session})
    await nameless.call("session/close", {"sessionId": session})  # the last: it is settled
    three = await house.loaded(session)
    assert heard(three) == [("a", "one"), ("b", "two"), ("c", None)]


async def test_what_is_said_into_a_turn_carries_its_client_too(house: Shared) -> None:
    one, two, session = await two_clients(house)
    house.agent.results["_session/steering"] = b"{}"
    await house.begun(one, session, "go")
    words = [{"type": "text", "text": "faster"}]
    await two.call("_session/steering", {"sessionId": session, "prompt": words})
    await one.until(lambda: heard(one))
    assert heard(one) == [("faster", "two")]
    assert heard(two) == [("go", "one")]


async def test_a_cancel_ends_the_running_turn_for_all_and_of_the_queue_ones_own(
    house: Shared,
) -> None:
    one, two, session = await two_clients(house)
    running = await house.begun(one, session, "of one")
    own = two.begin_prompt(session, "of two")
    await two.call("session/list")
    others = one.begin_prompt(session, "of one, later")
    await one.call("session/list")
    house.agent.heeds_cancel = False  # at once
    two.tell("session/cancel", {"sessionId": session})
    await house.agent.cancelled.wait()
    await house.agent.end(session, b'{"stopReason":"cancelled"}')
    await house.agent.prompted(session)
    assert house.agent.asked[-1][1]["prompt"][0]["text"] == "of one, later"
    await house.agent.end(session)
    assert [await running, await own, await others] == [CANCELLED, CANCELLED, ENDED]


async def test_modes_options_and_titles_reach_all(house: Shared) -> None:
    house.agent.results["session/set_mode"] = b"{}"
    one, two, session = await two_clients(house)
    await one.call("session/set_mode", {"sessionId": session, "modeId": "code"})
    option = {
        "id": "model",
        "name": "Model",
        "type": "select",
        "currentValue": "a",
        "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}],
    }
    options = {"sessionUpdate": "config_option_update", "configOptions": [option]}
    title = {"sessionUpdate": "session_info_update", "title": "New"}
    raws = [json.dumps(update).encode() for update in (options, title)]
    await house.agent.listener.hear(Updates(session, "update", raws))
    chosen = [{**option, "currentValue": "b"}]
    result = json.dumps({"configOptions": chosen}).encode()
    house.agent.results["session/set_config_option"] = result
    choice = {"sessionId": session, "configId": "model", "value": "b"}
    await two.call("session/set_config_option", choice)
    for client in (one, two):
        kinds = [update["sessionUpdate"] for update in client.updates()]
        assert kinds.count("session_info_update") == 1
    await one.until(lambda: [u for u in one.updates() if u.get("configOptions") == chosen])
    await two.until(lambda: [u for u in two.updates() if u.get("currentModeId") == "code"])


# -- closed and deleted ---------------------------------------------------------------------------


async def test_a_client_that_closes_a_session_ends_its_own_turns_and_leaves_it_to_the_others(
    house: Shared,
) -> None:
    one, two, session = await two_clients(house)
    running = await house.begun(one, session, "mine")
    waiting = one.begin_prompt(session, "mine, later")
    await one.call("session/list")
    theirs = two.begin_prompt(session, "theirs")
    await two.call("session/list")
    assert await one.call("session/close", {"sessionId": session}) == {}
    assert [await running, await waiting] == [CANCELLED, CANCELLED]
    await house.agent.prompted(session)
    await house.agent.say(session, "still here")
    await house.agent.end(session)
    assert await theirs == ENDED
    assert two.text() == "still here"
    assert one.text() == ""
    refusal = await one.refused("session/prompt", prompt_params(session, "x"))
    assert refusal.code == -32002
    assert "session/close" not in [method for method, _ in house.agent.asked]


async def test_a_client_that_closes_a_session_leaves_the_running_turn_of_another_alone(
    house: Shared,
) -> None:
    one, two, session = await two_clients(house)
    person = Person(two)
    running = await house.begun(two, session, "theirs")
    waiting = one.begin_prompt(session, "mine")
    await one.call("session/list")
    question = asyncio.create_task(house.agent.ask_client(PERMISSION, sessionId=session))
    await person.asked.wait()
    assert await one.call("session/close", {"sessionId": session}) == {}
    assert await waiting == CANCELLED
    person.answer.set_result({"outcome": "yes"})
    assert await question == {"outcome": "yes"}
    await house.agent.end(session)
    assert await running == ENDED
    # Prompts that never began are in the history, at their places.
    await house.turn(two, session, "next")
    prompts = [prompt[0]["text"] for prompt in await house.entries(session, "prompt")]
    assert prompts == ["theirs", "mine", "next"]


async def test_the_last_client_that_closes_a_session_closes_it(house: Shared) -> None:
    house.agent.can("close")
    house.agent.results["session/close"] = b"{}"
    one, two, session = await two_clients(house)
    await one.call("session/close", {"sessionId": session})
    await one.call("session/close", {"sessionId": session})  # it has it open no more
    assert house.hub.holds(session)
    await two.call("session/close", {"sessionId": session})
    assert not house.hub.holds(session)
    assert "session/close" in [method for method, _ in house.agent.asked]


async def test_a_client_that_deletes_a_session_ends_it_for_all_and_they_are_told(
    house: Shared,
) -> None:
    one, two, session = await two_clients(house, session={"notices": {}})
    running = await house.begun(two, session, "mine")
    await one.call("session/delete", {"sessionId": session})
    assert await running == CANCELLED
    titles = [u["title"] for u in two.updates() if u["sessionUpdate"] == "notice"]
    assert titles == ["This session was deleted"]
    assert [u for u in one.updates() if u["sessionUpdate"] == "notice"] == []
    refusal = await two.refused("session/prompt", prompt_params(session, "x"))
    assert refusal.code == -32002
