"""Standing answers for real agents, behind `acphold wrap`: questions as they send them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from tests.editor import DEADLINE
from tests.interop.client import introduction, opening, prompt
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CLAUDE, CODEX, OPENCODE, RealAgent

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ORDER = "USE_TOOL:shell CMD=make"
RULE = "allowed by your rule 1"


async def rules(place: Place, home: dict[str, str], *words: str) -> str:
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "acphold", "rules", *words],
        env=place.environment(**home),
        cwd=place.work,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        check=True,
    )
    return str(ended.stdout)


@pytest.mark.parametrize("agent", [CLAUDE, CODEX, OPENCODE], ids=lambda it: it.name)
async def test_a_rule_answers_a_real_agent_everybody_sees_it_and_revoking_asks_again(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    command = place.wrapped(agent.command())
    async with place.client(command, **env) as client:
        await client.call("initialize", introduction())
        session = str((await client.call("session/new", opening(place.work)))["sessionId"])

        async def asked() -> int:
            """How often a person is asked in a turn."""
            before = client.asked.count("session/request_permission")
            await client.call("session/prompt", prompt(session, ORDER))
            return client.asked.count("session/request_permission") - before

        assert await asked() == 1
        told = await rules(place, env, "add", "run make")
        assert told.startswith("1 run make · in ")
        assert await asked() == 0
        assert RULE in json.dumps(client.updates(session))
        async with place.client(command, **env) as other:
            await other.call("initialize", introduction())
            await other.call("session/load", opening(place.work, session))
            await other.until(lambda: RULE in json.dumps(other.updates(session)))
            assert "used 1 time" in await rules(place, env)
            await rules(place, env, "rm", "1")
            await other.leave()
        assert await asked() == 1
        assert "   then: answered by your rule 1" in await rules(place, env, "why", session)
        await client.leave()
    assert place.wrong_lines() == []
