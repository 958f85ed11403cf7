"""`session/resume`: as load, and not one replayed update."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.editor import open_params, received, say, update_line
from tests.served import Guest, wrapped

OWN_WAYS: list[dict[str, Any]] = [
    {},
    {"loadSession": True},
    {"sessionCapabilities": {"resume": {}}},
]


@pytest.mark.parametrize("can", OWN_WAYS)
async def test_resume_sends_not_one_replayed_update(
    journal: Path, tmp_path: Path, can: dict[str, Any]
) -> None:
    agent: dict[str, Any] = {"capabilities": can, "store": str(tmp_path / "store")}
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"think": "x"}, {"say": "a"})
    async with wrapped(journal, **agent) as client:
        assert await client.resume(session) == {}
        assert client.text() == ""
        await client.prompt(session, {"say": "b"})
        assert client.text() == "b"
        assert client.text("agent_thought_chunk") == ""


async def test_a_position_without_its_lineage_is_refused_with_what_is_missing(
    client: Guest,
) -> None:
    session = await client.talk({"say": "a"})
    for lineage, why in (
        (None, "it has to come with the acphold/lineage of the answer"),
        ("another", "the journal no longer has the history that it belongs to"),
    ):
        meta = {"acphold/after": 1, "acphold/lineage": lineage}
        error = await client.refused("session/resume", open_params(session, "/", _meta=meta))
        assert (error.code, why in error.message) == (-32602, True), error.message


async def test_resume_may_leave_out_mcp_servers(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with wrapped(journal) as client:
        session = await client.talk({"say": "a"})
    async with wrapped(journal, log=str(log)) as client:
        params = {"sessionId": session, "cwd": "/"}
        assert await client.call("session/resume", params) == {}
        assert await client.prompt(session, {"say": "b"}) == {"stopReason": "end_turn"}
    # The agent cannot resume: it gets a new session, which must name the servers.
    (made,) = received(log, "session/new")
    assert made["params"]["mcpServers"] == []


async def test_resume_answers_with_current_modes_and_options(journal: Path) -> None:
    modes = {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
    }
    async with wrapped(journal, opened={"modes": modes}) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_mode", {"sessionId": session, "modeId": "code"})
    async with wrapped(journal, opened={"modes": modes}) as client:
        result = await client.resume(session)
        assert result["modes"] == {**modes, "currentModeId": "code"}


async def test_an_agents_replay_on_resume_is_kept_away(journal: Path, tmp_path: Path) -> None:
    update = say("again")
    agent: dict[str, Any] = {
        "capabilities": {"sessionCapabilities": {"resume": {}}},
        "store": str(tmp_path / "store"),
        "before": {"session/resume": [update_line(update)]},
    }
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
    async with wrapped(journal, **agent) as client:
        await client.resume(session)
        await client.prompt(session, {"say": "b"})
        assert client.text() == "b"


async def test_what_is_new_while_a_session_is_resumed_follows_the_answer(
    journal: Path, tmp_path: Path
) -> None:
    update = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    agent: dict[str, Any] = {
        "capabilities": {"sessionCapabilities": {"resume": {}}},
        "store": str(tmp_path / "store"),
        "before": {"session/resume": [update_line(update)]},
    }
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
    async with wrapped(journal, **agent) as client:
        await client.resume(session)
        await client.until(lambda: client.updates() == [update])
        assert client.place_of_answer(client.last_id) == len(client.messages) - 2


async def test_resuming_a_session_that_only_the_agent_knows_adopts_it_without_a_replay(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    store = tmp_path / "store"
    told = [{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}}]
    store.write_text(json.dumps({"theirs": {"cwd": "/", "updates": told}}))
    can = {"loadSession": True, "sessionCapabilities": {"resume": {}, "list": {}}}
    agent: dict[str, Any] = {"capabilities": can, "store": str(store), "log": str(log)}
    async with wrapped(journal, **agent) as client:
        await client.resume("theirs")
        assert client.updates() == []
        # By its load, so that the journal has the conversation.
        assert len(received(log, "session/load")) == 1
        await client.load("theirs")
        assert client.text() == "old"
