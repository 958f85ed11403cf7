"""A session of one agent that is opened in front of another one, and goes over to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import Origin
from acphold.journal.rows import ListFilter
from acphold.live.agents.interface import Updates
from acphold.live.hub.handover import GIVEN
from tests.hub.shared import Onlooker, Shared, shared

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
OPTIONS = [
    {"id": "model", "name": "Model", "type": "select", "currentValue": "a", "options": []},
]


async def held_with_first(journal: Path, agent: str = "puppet") -> str:
    """A session that was held with this agent, which has a mode, an option, a command."""
    async with shared(journal) as house:
        house.agent.key = agent
        house.agent.opened = {"modes": MODES, "configOptions": OPTIONS}
        client, session = await house.opened()
        commands = {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "plan", "description": "Plan"}],
        }
        raw = json.dumps(commands).encode()
        await house.agent.listener.hear(Updates(session, "update", [raw]))
        await house.turn(client, session, "one", "ONE")
        return session


def prompts(house: Shared) -> list[dict[str, Any]]:
    return [params for method, params in house.agent.asked if method == "session/prompt"]


async def ids(client: Onlooker) -> list[str]:
    return [found["sessionId"] for found in await client.sessions()]


async def test_the_other_agent_lists_it_only_with_the_sessions_of_all(journal: Path) -> None:
    session = await held_with_first(journal)
    async with shared(journal) as house:
        house.agent.key = "second"
        assert await ids(await house.client()) == []
    async with shared(journal, all_agents=True) as house:
        house.agent.key = "second"
        client = await house.client()
        [found] = await client.sessions()
        assert found["sessionId"] == session
        assert found["_meta"]["acphold/agent"] == "puppet"


@pytest.mark.parametrize(
    ("key", "words"),
    [("second", [f"{GIVEN}; it began with codex"]), ("codex-acp", [GIVEN])],
)
async def test_the_agent_before_is_called_by_its_short_name_and_a_release_is_no_other_agent(
    journal: Path, key: str, words: list[str]
) -> None:
    session = await held_with_first(journal, "@agentclientprotocol/codex-acp")
    async with shared(journal, all_agents=True) as house:
        house.agent.key = key
        client = await house.loaded(session, session={"notices": {}})
        await house.turn(client, session, "two", "TWO", own="s0")
        updates = client.updates()
        assert [u["title"] for u in updates if u["sessionUpdate"] == "notice"] == words


async def test_another_agent_is_handed_the_conversation_and_has_the_session_from_then_on(
    journal: Path,
) -> None:
    session = await held_with_first(journal)
    async with shared(journal, all_agents=True) as house:
        house.agent.key = "second"
        client = await house.loaded(session, session={"notices": {}})
        assert (await house.journal.session(session)).agent == "puppet"  # looked at, not gone on
        before = (await house.journal.session(session)).last_seq
        await house.turn(client, session, "two", "TWO", own="s0")
        [context, own] = prompts(house)[0]["prompt"]
        assert own["text"] == "two"
        assert "began with another agent, puppet." in context["text"]
        assert "User: one" in context["text"]
        assert "Assistant: ONE" in context["text"]
        notices = [u for u in client.updates() if u["sessionUpdate"] == "notice"]
        assert ["it began with puppet" in told["title"] for told in notices] == [True]
        row = await house.journal.session(session)
        assert (row.agent, row.title) == ("second", "one")
        [origin] = row.origins
        assert (origin.session_id, origin.agent) == (session, "puppet")
        assert origin.seq <= before
        assert await house.journal.page(ListFilter(agents=("puppet",))) == []
        await house.turn(client, session, "three", "THREE", own="s0")
        assert len(prompts(house)[1]["prompt"]) == 1
        [found] = await client.sessions()
        assert "acphold/agent" not in found["_meta"]
        assert found["_meta"]["acphold/origins"][0]["agent"] == "puppet"


async def test_another_agent_gets_none_of_the_modes_options_and_commands_of_the_first(
    journal: Path,
) -> None:
    session = await held_with_first(journal)
    async with shared(journal, all_agents=True) as house:
        house.agent.key = "second"
        other = {"currentModeId": "fast", "availableModes": [{"id": "fast", "name": "Fast"}]}
        house.agent.opened = {"modes": other}
        client = await house.client()
        answer = await client.load(session)
        assert answer == {"modes": other}
        asked = {method for method, _ in house.agent.asked}
        assert not asked & {"session/set_mode", "session/set_config_option"}
        attributes = (await house.journal.summary(session)).attributes
        assert attributes.commands == b"[]"
        assert attributes.config_options is None


async def test_back_at_the_first_agent_it_is_handed_what_the_second_has_said(
    journal: Path,
) -> None:
    session = await held_with_first(journal)
    async with shared(journal, all_agents=True) as house:
        house.agent.key = "second"
        client = await house.loaded(session)
        await house.turn(client, session, "two", "TWO", own="s0")
    async with shared(journal, all_agents=True) as house:
        client = await house.loaded(session)
        await house.turn(client, session, "three", "THREE", own="s0")
        assert "Assistant: TWO" in json.dumps(prompts(house)[0])
        row = await house.journal.session(session)
        assert row.agent == "puppet"
        assert [origin.agent for origin in row.origins] == ["puppet", "second"]


async def test_an_agent_that_reads_the_journal_is_handed_nothing(journal: Path) -> None:
    session = await held_with_first(journal)
    async with shared(journal, all_agents=True) as house:
        house.agent.key, house.agent.reads_journal = "second", True
        house.agent.can("resume")
        client = await house.loaded(session)
        await house.turn(client, session, "two", "TWO")
        assert len(prompts(house)[0]["prompt"]) == 1
        row = await house.journal.session(session)
        assert row.agent == "second"
        assert row.origins[-1] == Origin(session, "puppet", row.origins[-1].seq)


async def test_how_an_agent_was_started_is_noted_once_the_session_is_its_own(
    journal: Path,
) -> None:
    async with shared(journal) as house:
        house.agent.start = "first"
        client, session = await house.talked("one", "ONE")
        assert (await house.journal.session(session)).start == "first"
    async with shared(journal, all_agents=True) as house:
        house.agent.key, house.agent.start = "second", "second"
        client = await house.loaded(session)
        turn = await house.begun(client, session, "two", own="s0")
        # It has the prompt, and with it the conversation: its questions are its own.
        row = await house.journal.session(session)
        assert (row.agent, row.start) == ("second", "second")
        await house.agent.end("s0")
        await turn
