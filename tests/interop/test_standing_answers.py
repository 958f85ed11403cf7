"""Standing answers for real agents, behind `acphold wrap`: questions as they send them."""

from __future__ import annotations

import json

import pytest

from tests.interop.client import introduction, opening, prompt
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import (
    CLAUDE,
    CODEX,
    CODEX_OF_OPENAI,
    GEMINI,
    OPENCODE,
    RealAgent,
)

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ORDER = "USE_TOOL:shell CMD=make"
RULE = "allowed by your rule 1"


@pytest.mark.parametrize(
    "agent", [CLAUDE, CODEX, CODEX_OF_OPENAI, OPENCODE], ids=lambda it: it.name
)
async def test_a_rule_answers_a_real_agent_everybody_sees_it_and_revoking_asks_again(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    command = place.wrapped(agent.command(), "--name", agent.name.partition(" ")[0])
    async with place.client(command, **env) as client:
        session = await client.new_session(place.work)

        async def asked() -> int:
            """The number of questions to the person in a turn."""
            before = client.asked.count("session/request_permission")
            await client.call("session/prompt", prompt(session, ORDER))
            return client.asked.count("session/request_permission") - before

        assert await asked() == 1
        told = await place.acphold(env, "rules", "add", "run make")
        assert told.startswith("1 Always allow every agent to run `make` in work (until ")
        assert await asked() == 0
        assert RULE in json.dumps(client.updates(session))
        async with place.client(command, **env) as other:
            await other.call("initialize", introduction())
            await other.call("session/load", opening(place.work, session))
            await other.until(lambda: RULE in json.dumps(other.updates(session)))
            assert "used 1 time" in await place.acphold(env, "rules")
            await place.acphold(env, "rules", "rm", "1")
            await other.leave()
        assert await asked() == 1
        assert "   then: answered by your rule 1" in await place.acphold(
            env, "rules", "why", session
        )
        await client.leave()
    assert place.wrong_lines() == []


async def test_an_agent_whose_command_is_only_in_a_title_is_never_answered_by_a_rule(
    place: Place, model: ModelEndpoint
) -> None:
    env = GEMINI.prepare(place.home, model.url)
    async with place.client(
        place.wrapped(GEMINI.command(), "--name", GEMINI.name), **env
    ) as client:
        session = await client.new_session(place.work)
        await place.acphold(env, "rules", "add", "run make")
        for times in (1, 2):
            await client.call("session/prompt", prompt(session, ORDER))
            assert client.asked.count("session/request_permission") == times
        assert RULE not in json.dumps(client.updates(session))
        said = await place.acphold(env, "rules", "why", session)
        assert "it is not known how this agent describes its commands" in said
        await client.leave()
    assert place.wrong_lines() == []
