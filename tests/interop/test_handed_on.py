"""Conversations between real agents of others: handed over, forked, and held on in."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX, GOOSE, OPENCODE, RealAgent

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SECONDS = 120.0
"""Longest run of a command that starts an agent."""

both_ways = pytest.mark.parametrize(
    ("first", "second"),
    [(CODEX, GOOSE), (GOOSE, CODEX)],
    ids=lambda agent: agent.name,
)
"""The two that start in a tenth of the time of others."""

SAID = ("The word is ALBATROSS.", "The number is 4711, remember it.")


async def hold(agent: RealAgent, place: Place, model: ModelEndpoint) -> tuple[str, list[str]]:
    """A conversation of three turns; its id, and the words that the next agent's model must get."""
    file = place.work / "in.txt"
    file.write_text("PELICAN is in the file\n", encoding="utf-8")
    order = f"Look into it. USE_TOOL:{agent.tools[0]} FILE={file} CMD=pwd"
    async with place.client(place.wrapped(agent.command()), **env(agent, place, model)) as client:
        await client.call("initialize", introduction())
        session_id = str((await client.call("session/new", opening(place.work)))["sessionId"])
        for words in (*SAID, order):
            await client.call("session/prompt", prompt(session_id, words))
        last = text(client.updates(session_id)).rpartition("DONE: the tool said:")[2]
        await client.leave()
    await place.family.gone()
    result = last.strip().splitlines()[0].strip()
    assert result
    return session_id, [*SAID, order, result]


def env(agent: RealAgent, place: Place, model: ModelEndpoint) -> dict[str, str]:
    (home := place.home / agent.name).mkdir(exist_ok=True)
    return agent.prepare(home, model.url)


async def acphold(place: Place, *arguments: str, **environment: str) -> str:
    """Run a command, which must succeed, and return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acphold", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=place.environment(**environment),
    )
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def listed(client: Client, place: Place) -> list[str]:
    answer = await client.call("session/list", {"cwd": str(place.work)})
    return [found["sessionId"] for found in answer["sessions"]]


async def go_on(client: Client, place: Place, model: ModelEndpoint, session_id: str) -> str:
    """Load the session and prompt it; all that the model was given then."""
    await client.call("session/load", opening(place.work, session_id))
    replayed = text(client.updates(session_id), "user_message_chunk")
    assert all(words in replayed for words in SAID)
    so_far = len(model.requests)
    await client.call("session/prompt", prompt(session_id, "Which word was it?"))
    assert text(client.updates(session_id)).endswith("Which word was it?")
    return model.input_since(so_far)


@both_ways
async def test_a_conversation_handed_over_reaches_the_model_of_the_other_agent(
    first: RealAgent, second: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    session_id, known = await hold(first, place, model)
    environment = env(second, place, model)
    told = await acphold(place, "continue", session_id, "--", *second.command(), **environment)
    made = told.splitlines()[0]
    async with place.client(place.wrapped(second.command()), **environment) as client:
        await client.call("initialize", introduction())
        assert made in await listed(client, place)
        assert session_id not in await listed(client, place)
        given = await go_on(client, place, model, made)
        assert [words for words in known if words not in given] == []
        await client.leave()
    await place.family.gone()
    async with place.client(place.wrapped(first.command()), **env(first, place, model)) as client:
        await client.call("initialize", introduction())
        assert session_id in await listed(client, place)  # as it was
        await client.leave()
    assert place.wrong_lines() == []


@both_ways
async def test_a_session_loaded_in_front_of_another_agent_goes_over_to_it(
    first: RealAgent, second: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    session_id, known = await hold(first, place, model)
    command = place.wrapped(second.command(), "--all-agents")
    async with place.client(command, **env(second, place, model)) as client:
        await client.call("initialize", introduction())
        assert session_id in await listed(client, place)
        given = await go_on(client, place, model, session_id)
        assert [words for words in known if words not in given] == []
        await client.leave()
    await place.family.gone()
    async with place.client(place.wrapped(second.command()), **env(second, place, model)) as client:
        await client.call("initialize", introduction())
        assert session_id in await listed(client, place)
        so_far = len(model.requests)
        await client.call("session/load", opening(place.work, session_id))
        await client.call("session/prompt", prompt(session_id, "And the number?"))
        assert "ALBATROSS" in model.input_since(so_far)  # by its own memory now
        await client.leave()
    assert place.wrong_lines() == []


@pytest.mark.parametrize("agent", [CODEX, OPENCODE], ids=lambda agent: agent.name)
async def test_a_fork_goes_on_with_the_conversation(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    session_id, known = await hold(agent, place, model)
    made = (await acphold(place, "continue", session_id, "--from", "last")).splitlines()[0]
    async with place.client(place.wrapped(agent.command()), **env(agent, place, model)) as client:
        await client.call("initialize", introduction())
        given = await go_on(client, place, model, made)
        assert [words for words in known if words not in given] == []
        # opencode has a fork of its own, and needs to be told nothing.
        assert ("You have no memory of this conversation" in given) == (agent is CODEX)
        so_far = len(model.requests)
        await client.call("session/load", opening(place.work, session_id))
        await client.call("session/prompt", prompt(session_id, "Still here?"))
        assert "Which word was it?" not in model.input_since(so_far)  # the fork's, not this one's
        await client.leave()
    # The fork is no part of the stable schema; it was asked for because it was advertised.
    assert [line for line in place.wrong_lines() if "session/fork" not in line] == []
