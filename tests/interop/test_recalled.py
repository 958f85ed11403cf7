"""Real agents of others recall earlier sessions: `acphold wrap --recall`."""

from __future__ import annotations

import pytest

from tests.interop.client import introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX, OPENCODE, RealAgent

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("agent", [CODEX, OPENCODE], ids=lambda agent: agent.name)
async def test_a_model_finds_what_was_said_in_an_earlier_session(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    wrapped = place.wrapped(agent.command(), "--recall")
    async with place.client(wrapped, **agent.prepare(place.home, model.url)) as client:
        await client.call("initialize", introduction())
        earlier = (await client.call("session/new", opening(place.work)))["sessionId"]
        await client.call("session/prompt", prompt(earlier, "The word is ALBATROSS."))
        later = (await client.call("session/new", opening(place.work)))["sessionId"]
        # Words are searchable a moment after their turn; the model asks until they are.
        for _ in range(20):
            before = len(client.updates(later))
            order = "What was it? USE_TOOL:recall QUERY=albatross"
            await client.call("session/prompt", prompt(later, order))
            if f"{earlier}@" in model.input_since(0):
                break
        assert f"{earlier}@" in model.input_since(0)
        assert "DONE: the tool said:" in text(client.updates(later)[before:])
        await client.leave()
    await place.family.gone()
