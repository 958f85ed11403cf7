"""Words into a running turn of real agents, behind `acphold wrap`: by their own method."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acphold.live.agents.extensions import STEERING, has_steering
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CLAUDE, CODEX, CODEX_OF_OPENAI, GEMINI, OPENCODE, RealAgent
from tests.interop.vendor_at_limit import anthropic, at_limit
from tests.interop.wire import Json

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

WORDS = "in French, please"


def steered(session_id: str) -> Json:
    return {**prompt(session_id, WORDS), "_meta": {"steering": {"idleBehavior": "promptRequired"}}}


async def begun(client: Client, place: Place) -> tuple[str, asyncio.Future[Any]]:
    """A session, and its turn."""
    hello = await client.call("initialize", introduction())
    assert has_steering(hello["_meta"])
    session_id = str((await client.call("session/new", opening(place.work)))["sessionId"])
    return session_id, client.begin("session/prompt", prompt(session_id, "SLOW"))


async def assert_stands(client: Client, place: Place, session_id: str) -> None:
    """The words are in the history, and without a turn they are left to the client."""
    assert (await client.call(STEERING, steered(session_id)))["outcome"] == "promptRequired"
    await client.call("session/close", {"sessionId": session_id})
    seen = len(client.updates(session_id))
    await client.call("session/load", opening(place.work, session_id))
    replay = client.updates(session_id)[seen:]
    assert text(replay, "user_message_chunk") == f"SLOW{WORDS}"


async def test_codex_takes_words_at_the_next_step_of_its_turn(
    place: Place, model: ModelEndpoint
) -> None:
    env = CODEX_OF_OPENAI.prepare(place.home, model.url)
    async with place.client(place.wrapped(CODEX_OF_OPENAI.command()), **env) as client:
        session_id, turn = await begun(client, place)
        await client.until(lambda: text(client.updates(session_id)))
        assert (await client.call(STEERING, steered(session_id)))["outcome"] == "injected"
        assert (await client.answer(turn))["stopReason"] == "end_turn"
        assert text(client.updates(session_id)).endswith(f"ECHO: {WORDS}")
        await assert_stands(client, place, session_id)
        await client.leave()


async def test_claude_stops_its_answer_for_words_and_goes_on_with_them(place: Place) -> None:
    with at_limit(anthropic, 9000) as vendor:
        vendor.is_open = True
        vendor.goes_on.clear()
        env = CLAUDE.prepare(place.home, vendor.url)
        async with place.client(place.wrapped(CLAUDE.command()), **env) as client:
            session_id, turn = await begun(client, place)
            await client.until(lambda: vendor.turns)
            assert (await client.call(STEERING, steered(session_id)))["outcome"] == "injected"
            vendor.goes_on.set()
            assert (await client.answer(turn))["stopReason"] == "end_turn"
            assert WORDS.encode() not in vendor.turns[0]
            assert WORDS.encode() in vendor.turns[-1]
            await assert_stands(client, place, session_id)
            await client.leave()


@pytest.mark.parametrize("agent", [CODEX, OPENCODE, GEMINI], ids=lambda it: it.name)
async def test_others_do_not_say_that_they_have_it(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    async with place.client(place.wrapped(agent.command()), **env) as client:
        hello = await client.call("initialize", introduction())
        assert not has_steering(hello.get("_meta"))
        await client.leave()
