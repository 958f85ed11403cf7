"""Real agents of others behind `acphold wrap`, with a stand-in for their model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.editor import Refused
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import assert_all_there, text, timeline
from tests.interop.model_endpoint import ModelEndpoint, running as serving
from tests.interop.place import Place
from tests.interop.probe import Report, differences, probe
from tests.interop.real_agents import CODEX, CODEX_OF_OPENAI, OPENCODE, REAL_AGENTS, RealAgent
from tests.interop.wire import Json

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

each_agent = pytest.mark.parametrize("agent", REAL_AGENTS, ids=lambda agent: agent.name)


async def begin(client: Client, place: Place) -> str:
    """A new session."""
    await client.call("initialize", introduction())
    return str((await client.call("session/new", opening(place.work)))["sessionId"])


async def come_back(client: Client, place: Place, session_id: str) -> list[Json]:
    """Return the replay for a later client, which asks for a newer draft of the protocol."""
    hello = await client.call("initialize", introduction(version=2))
    assert hello["protocolVersion"] == 1
    listed = (await client.call("session/list", {"cwd": str(place.work)}))["sessions"]
    assert session_id in [found["sessionId"] for found in listed]
    return await load(client, place, session_id)


async def load(client: Client, place: Place, session_id: str) -> list[Json]:
    """Load the session and return its replay."""
    before = len(client.updates(session_id))
    await client.call("session/load", opening(place.work, session_id))
    return client.updates(session_id)[before:]


async def reach_the_middle(client: Client, session_id: str) -> asyncio.Future[Json]:
    """Begin a long turn; its pending answer, once some of the turn has been seen."""
    before = len(client.updates(session_id))
    turn = client.begin("session/prompt", prompt(session_id, "SLOW now"))
    await client.until(lambda: "tick3 " in text(client.updates(session_id)[before:]))
    return turn


def tool_order(agent: RealAgent, place: Place) -> str:
    """A prompt that makes the agent use a tool."""
    file = place.work / "in.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    return f"The word is ALBATROSS. USE_TOOL:{agent.tools[0]} FILE={file} CMD=pwd"


@each_agent
async def test_an_agent_goes_on_with_a_conversation_in_whose_middle_all_was_killed(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    acphold = place.wrapped(agent.command())
    env = agent.prepare(place.home, model.url)
    async with place.client(acphold, **env) as first:
        session_id = await begin(first, place)
        await first.call("session/prompt", prompt(session_id, tool_order(agent, place)))
        await reach_the_middle(first, session_id)
        await place.family.kill()
    tools = [item for item in timeline(first.updates(session_id)) if "toolCallId" in item]
    assert [tool["status"] for tool in tools] == ["completed"]

    async with place.client(acphold, **env) as second:
        replay = await come_back(second, place, session_id)
        assert_all_there(first.updates(session_id), replay)
        so_far = len(model.requests)
        await second.call("session/prompt", prompt(session_id, "Which word was it?"))
        given = model.input_since(so_far)
        assert "ALBATROSS" in given, "the model does not know the first turn"
        # By its own means no agent remembers a turn that was cut off.
        assert agent.remembers or "tick3 " in given
        assert text(second.updates(session_id)).endswith("Which word was it?")
        await second.leave()
    await place.family.gone()
    assert first.odd == second.odd == []
    assert place.wrong_lines() == []


class Running(NamedTuple):
    """An agent behind acphold, in which each test has a session of its own."""

    agent: RealAgent
    client: Client
    place: Place
    model: ModelEndpoint

    async def begin(self) -> str:
        return str((await self.client.call("session/new", opening(self.place.work)))["sessionId"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    """One start for several tests: it is most of what one takes."""
    agent: RealAgent = request.param
    place = Place(tmp_path_factory.mktemp("running"))
    acphold = place.wrapped(agent.command())
    with serving() as model:
        async with place.client(acphold, **agent.prepare(place.home, model.url)) as client:
            await client.call("initialize", introduction())
            yield Running(agent, client, place, model)
            await client.leave()
        await place.family.gone()
    assert client.odd == []
    assert place.wrong_lines() == []


each_running = pytest.mark.parametrize(
    "running", REAL_AGENTS, indirect=True, ids=lambda agent: agent.name
)
beside_others = pytest.mark.asyncio(loop_scope="module")


@each_running
@beside_others
async def test_a_session_that_is_open_is_loaded_again_and_takes_prompts_in_a_row(
    running: Running,
) -> None:
    agent, client, place, _ = running
    session_id = await running.begin()
    await client.call("session/load", opening(place.work, session_id))
    turns = [
        client.begin("session/prompt", prompt(session_id, said))
        for said in (tool_order(agent, place), "second", "third")
    ]
    for turn in turns:
        assert (await client.answer(turn))["stopReason"] == "end_turn"
    said = text(client.updates(session_id))
    assert said.index("DONE") < said.index("ECHO: second") < said.index("ECHO: third")
    replay = await load(client, place, session_id)
    # Sent at once, and yet each stands before its own answer.
    kinds = [item["sessionUpdate"] for item in timeline(replay)]
    assert kinds.count("user_message_chunk") == 3
    assert text(replay) == said


@each_running
@beside_others
async def test_a_load_in_the_middle_of_a_turn_misses_nothing_and_doubles_nothing(
    running: Running,
) -> None:
    client = running.client
    session_id = await running.begin()
    turn = await reach_the_middle(client, session_id)
    before = len(client.updates(session_id))
    await client.call("session/load", opening(running.place.work, session_id))
    await client.until(lambda: "tick9 " in text(client.updates(session_id)[before:]))
    client.tell("session/cancel", {"sessionId": session_id})
    assert (await client.answer(turn))["stopReason"] == "cancelled"
    said = text(client.updates(session_id)[before:])
    assert "".join(f"tick{number} " for number in range(10)) in said
    assert said.count("tick0 ") == said.count("tick9 ") == 1


@pytest.mark.parametrize("running", [OPENCODE], indirect=True, ids=lambda agent: agent.name)
@beside_others
async def test_a_turn_that_an_agent_would_retry_for_minutes_ends_when_it_is_cancelled(
    running: Running,
) -> None:
    client, model = running.client, running.model
    session_id = await running.begin()
    so_far = len(model.requests)
    turn = client.begin("session/prompt", prompt(session_id, "FAIL now"))
    await client.until(lambda: turn.done() or len(model.requests) > so_far)
    client.tell("session/cancel", {"sessionId": session_id})
    assert (await client.answer(turn))["stopReason"] == "cancelled"
    await client.call("session/prompt", prompt(session_id, "And now?"))
    assert text(client.updates(session_id)).endswith("And now?")


@each_running
@beside_others
async def test_an_agent_that_dies_in_a_turn_is_started_again(running: Running) -> None:
    agent, client, place, model = running
    session_id = await running.begin()
    await client.call("session/prompt", prompt(session_id, tool_order(agent, place)))
    turn = await reach_the_middle(client, session_id)
    place.family.kill_only(agent.command())
    with pytest.raises(Refused, match="ended"):
        await client.answer(turn)
    so_far = len(model.requests)
    await client.call("session/prompt", prompt(session_id, "Which word was it?"))
    assert text(client.updates(session_id)).endswith("Which word was it?")
    assert "ALBATROSS" in model.input_since(so_far)


@pytest.mark.parametrize("agent", [CODEX, CODEX_OF_OPENAI, OPENCODE], ids=lambda agent: agent.name)
async def test_a_session_made_without_acphold_is_adopted(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    async with place.client(agent.command(), **env) as alone:
        session_id = await begin(alone, place)
        await alone.call("session/prompt", prompt(session_id, tool_order(agent, place)))
        await place.family.kill()

    acphold = place.wrapped(agent.command())
    async with place.client(acphold, **env) as first:
        replay = await come_back(first, place, session_id)
        assert "ALBATROSS" in text(replay, "user_message_chunk")
        assert "DONE" in text(replay)
        await first.call("session/prompt", prompt(session_id, "Which word was it?"))
        await place.family.kill()
    async with place.client(acphold, **env) as second:
        again = await come_back(second, place, session_id)
        assert timeline(again) == timeline(first.updates(session_id))
        await second.leave()
    assert place.wrong_lines() == []


NO_SESSION = "error -32002"
BAD_PARAMS = "error -32602"

ALLOWED: dict[str, Report] = {
    "codex": {
        "agentCapabilities.mcpCapabilities.sse": (False, True),
        "agentCapabilities.sessionCapabilities.delete": (None, {}),
        "relative cwd": ("made a session", BAD_PARAMS),
    },
    "codex of OpenAI": {
        "agentCapabilities.mcpCapabilities.sse": (False, True),
        "load of no session": ("error -32603", NO_SESSION),
        "resume of no session": ("error -32603", NO_SESSION),
    },
    "opencode": {
        "agentCapabilities.sessionCapabilities.delete": (None, {}),
        "relative cwd": ("made a session", BAD_PARAMS),
        "prompt to no session": (BAD_PARAMS, NO_SESSION),
        "load of no session": ("error -32603", NO_SESSION),
        "resume of no session": ("error -32603", NO_SESSION),
    },
    "deepagents": {
        "agentCapabilities.loadSession": (False, True),
        "agentCapabilities.mcpCapabilities": (None, {"http": True, "sse": True}),
        "agentCapabilities.sessionCapabilities": (
            None,
            {"list": {}, "resume": {}, "close": {}, "delete": {}},
        ),
        # It asks about a call under another id, which an editor draws as a card of its own.
        "turn with write.timeline": (
            ["user_message_chunk", "tool_call", "agent_message_chunk"],
            ["user_message_chunk", "tool_call", "tool_call", "agent_message_chunk"],
        ),
        "turn with write.tools": (
            [("edit", "completed")],
            [("edit", "completed"), (None, None)],
        ),
        "relative cwd": ("made a session", BAD_PARAMS),
        "prompt to no session": ("error -32603", NO_SESSION),
        "load of no session": ("error -32601", NO_SESSION),
        "resume of no session": ("error -32601", NO_SESSION),
        "list": (None, 1),
    },
}
"""Differences that acphold may make, by agent: the value without it, and with it."""


@each_agent
async def test_an_agent_does_what_it_does_without_acphold_but_for_what_is_added(
    agent: RealAgent, place: Place, other_place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(other_place.home, model.url)
    async with other_place.client(agent.command(), **env) as alone:
        without = await probe(alone, other_place.work, agent.tools)
        await other_place.family.kill()
    env = agent.prepare(place.home, model.url)
    async with place.client(place.wrapped(agent.command()), **env) as client:
        behind = await probe(client, place.work, agent.tools)
        await client.leave()
    assert differences(without, behind) == ALLOWED[agent.name]
    assert client.odd == alone.odd
    assert place.wrong_lines() == []
