"""Real agents remember turns made without acphold, and conversations that they had lost."""

from __future__ import annotations

import shutil

import pytest

from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text, timeline
from tests.interop.model_endpoint import HANDED_OVER, SLOW_WORDS, ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX, DEEPAGENTS, GOOSE, OPENCODE, RealAgent
from tests.interop.wire import Json

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

WORD = "The word is ALBATROSS."
MADE = "ECHO: Generate a short title for the above messages."
"""The title that goose has its model make beside a turn; it may be there later than the answer."""


async def load(client: Client, place: Place, session_id: str) -> list[Json]:
    """Load a session and return its replay."""
    await client.call("session/load", opening(place.work, session_id))
    return client.updates(session_id)


async def listed(client: Client, place: Place, session_id: str) -> Json:
    """The only row of the session in the list."""
    sessions = (await client.call("session/list", {"cwd": str(place.work)}))["sessions"]
    [found] = [info for info in sessions if info["sessionId"] == session_id]
    return dict(found)


@pytest.mark.parametrize("agent", [CODEX, OPENCODE], ids=lambda agent: agent.name)
async def test_a_turn_that_was_made_without_acphold_is_taken_in_once(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    acphold = place.wrapped(agent.command())
    async with place.client(acphold, **env) as first:
        await first.call("initialize", introduction())
        session_id = (await first.call("session/new", opening(place.work)))["sessionId"]
        await first.call("session/prompt", prompt(session_id, WORD))
        before = await listed(first, place, session_id)
        await first.leave()
    await place.family.gone()

    async with place.client(agent.command(), **env) as alone:
        await alone.call("initialize", introduction())
        await load(alone, place, session_id)
        # Long enough to differ from the notes that an agent writes after a turn.
        await alone.call("session/prompt", prompt(session_id, "SLOW outside"))
        await place.family.kill()

    async with place.client(acphold, **env) as second:
        await second.call("initialize", introduction())
        assert (await listed(second, place, session_id))["updatedAt"] > before["updatedAt"]
        replay = list(await load(second, place, session_id))
        said = text(replay, "user_message_chunk")
        assert (said.count(WORD), said.count("SLOW outside")) == (1, 1)
        assert text(replay).count(f"tick{SLOW_WORDS - 1} ") == 1
        so_far = len(model.requests)
        await second.call("session/prompt", prompt(session_id, "Which word was it?"))
        given = model.input_since(so_far)
        assert WORD in given
        assert "SLOW outside" in given
        seen = timeline(second.updates(session_id))
        await second.leave()
    await place.family.gone()

    async with place.client(acphold, **env) as third:
        await third.call("initialize", introduction())
        assert timeline(await load(third, place, session_id)) == seen
        await third.leave()
    assert place.wrong_lines() == []


@pytest.mark.parametrize("agent", [CODEX, GOOSE, DEEPAGENTS], ids=lambda agent: agent.name)
async def test_a_conversation_that_was_handed_over_reaches_the_model_also_two_restarts_later(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    acphold = place.wrapped(agent.command())
    env = agent.prepare(place.home, model.url)
    async with place.client(acphold, **env) as client:
        await client.call("initialize", introduction())
        session_id = (await client.call("session/new", opening(place.work)))["sessionId"]
        await client.call("session/prompt", prompt(session_id, WORD))
        titles = {(await listed(client, place, session_id))["title"]}
        if agent is GOOSE:
            titles.add(MADE)
        await client.leave()
    await place.family.gone()

    shutil.rmtree(place.home)  # the agent has forgotten all
    place.home.mkdir()
    env = agent.prepare(place.home, model.url)
    for said in ("Which word was it?", "And which is it now?", "Once more, please."):
        async with place.client(acphold, **env) as client:
            await client.call("initialize", introduction())
            await load(client, place, session_id)
            so_far = len(model.requests)
            await client.call("session/prompt", prompt(session_id, said))
            given = model.input_since(so_far)
            assert WORD in given
            assert HANDED_OVER in given
            assert text(client.updates(session_id)).endswith(f"ECHO: {said}")
            assert (await listed(client, place, session_id))["title"] in titles
            await client.leave()
        await place.family.gone()
        assert HANDED_OVER not in text(client.updates(session_id), "user_message_chunk")
    assert place.wrong_lines() == []
