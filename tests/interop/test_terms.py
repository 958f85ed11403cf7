"""Once a client has chosen another endpoint for a real agent, the default one sees no prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.editor import Refused
from tests.interop.client import introduction, opening, prompt
from tests.interop.model_endpoint import ModelEndpoint, running
from tests.interop.place import Place
from tests.interop.real_agents import CLAUDE, CODEX_OF_OPENAI, RealAgent

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture
def gateway() -> Iterator[ModelEndpoint]:
    """The endpoint that the client chooses."""
    with running() as endpoint:
        yield endpoint


def provider(agent: RealAgent, gateway: ModelEndpoint) -> tuple[str, dict[str, object]]:
    """The request that has an agent use the gateway."""
    name, kind, url = ("openai", "openai", gateway.url)
    if agent is CLAUDE:
        name, kind, url = ("main", "anthropic", gateway.url.removesuffix("/v1"))
    headers = {"authorization": "Bearer canary-of-the-gateway"}
    return "providers/set", {
        "providerId": name,
        "apiType": kind,
        "baseUrl": url,
        "headers": headers,
    }


@pytest.mark.parametrize("agent", [CLAUDE, CODEX_OF_OPENAI], ids=lambda agent: agent.name)
async def test_an_agent_that_was_killed_goes_on_at_the_chosen_endpoint(
    place: Place, model: ModelEndpoint, gateway: ModelEndpoint, agent: RealAgent
) -> None:
    env = agent.prepare(place.home, model.url)
    command = agent.command()
    async with place.client(place.wrapped(command), **env) as client:
        await client.call("initialize", introduction())
        method, params = provider(agent, gateway)
        await client.call(method, params)
        session = (await client.call("session/new", opening(place.work)))["sessionId"]
        await client.call("session/prompt", prompt(session, "say PURPLE"))
        for words in ("say GREEN", "say ORANGE"):
            place.family.kill_only(command)
            with suppress(Refused):  # it may be sent before its end is seen
                await client.call("session/prompt", prompt(session, words))
            await client.call("session/prompt", prompt(session, words))
        seen = gateway.input_since(0)
        assert all(word in seen for word in ("PURPLE", "GREEN", "ORANGE"))
        assert not any(word in model.input_since(0) for word in ("PURPLE", "GREEN", "ORANGE"))
    for path in place.work.parent.rglob("*"):
        if path.is_file() and (path.name.startswith("journal.db") or path.name == "stderr"):
            assert b"canary-of-the-gateway" not in path.read_bytes()
