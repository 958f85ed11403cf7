"""The agent's side of a session after a restart: resumed, loaded, or handed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Refused, Talker, received, say, update_line
from tests.owners import program
from tests.served import wrapped

RESUME: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
LOAD = {"loadSession": True}


async def talked(journal: Path, *said: str, **agent: Any) -> str:
    """A session in which the agent has said this, and whose processes are gone."""
    async with wrapped(journal, **agent) as client:
        session = await client.new()
        for text in said:
            await client.prompt(session, {"say": text})
        return session


def methods(log: Path) -> list[str]:
    return [message.get("method", "") for message in received(log)]


async def test_the_session_is_restored_by_the_agents_own_resume_where_it_has_one(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent: dict[str, Any] = {"capabilities": RESUME | LOAD, "store": str(tmp_path / "store")}
    session = await talked(journal, "a", **agent)
    server = {"name": "s", "command": "/bin/cat", "args": [], "env": [{"name": "K", "value": "v"}]}
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session, "/", mcpServers=[server], _meta={"x": 1})
        assert client.text() == "a"
        await client.prompt(session, {"say": "b"})
        assert methods(log) == ["initialize", "session/resume", "session/prompt"]
        params = received(log, "session/resume")[0]["params"]
        expected = {"sessionId": session, "cwd": "/", "mcpServers": [server], "_meta": {"x": 1}}
        assert params == expected
        assert len(received(log, "session/prompt")[0]["params"]["prompt"]) == 1


async def test_else_by_its_own_load_with_that_replay_kept_from_client_and_journal(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent: dict[str, Any] = {"capabilities": LOAD, "store": str(tmp_path / "store")}
    session = await talked(journal, "a", "b", **agent)
    for _ in range(2):
        async with wrapped(journal, log=str(log), **agent) as client:
            await client.load(session)
            assert client.text() == "ab"
            assert methods(log)[-1] == "session/load"
    async with wrapped(journal, **agent) as client:
        await client.load(session)
        await client.prompt(session, {"say": "c"})
        assert client.text() == "abc"


async def test_a_replay_that_goes_on_behind_the_agents_answer_is_kept_away_too(
    journal: Path, tmp_path: Path
) -> None:
    all_told = '{"jsonrpc":"2.0","method":"_all_told","params":{}}'
    agent: dict[str, Any] = {
        "capabilities": LOAD,
        "store": str(tmp_path / "store"),
        "after": {
            "session/load": [
                update_line(say("late")),
                update_line({"sessionUpdate": "x-late"}),
                all_told,
            ]
        },
    }
    session = await talked(journal, "a", **agent)
    async with wrapped(journal, **agent) as client:
        await client.load(session)
        await client.until(lambda: "_all_told" in [m.get("method") for m in client.messages])
        await client.prompt(session, {"say": "b"})
        assert client.text() == "ab"
    async with wrapped(journal, **agent) as client:
        await client.load(session)
        assert client.text() == "ab"
        assert "x-late" not in str(client.updates())


async def test_what_differs_in_the_agents_replay_reaches_client_and_journal(
    journal: Path, tmp_path: Path
) -> None:
    old = {"name": "old", "description": ""}
    new = {"name": "new", "description": ""}
    commands = [
        {"sessionUpdate": "available_commands_update", "availableCommands": [command]}
        for command in (old, new)
    ]
    agent: dict[str, Any] = {
        "capabilities": LOAD,
        "store": str(tmp_path / "store"),
        "before": {"session/load": [update_line(update) for update in commands]},
    }
    session = await talked(journal, "a", **agent)
    for _ in range(2):
        async with wrapped(journal, **agent) as client:
            await client.load(session)
            told = [u for u in client.updates() if u["sessionUpdate"].startswith("available")]
            assert told == [commands[1]]


async def test_a_mode_in_the_agents_replay_does_not_undo_what_the_person_chose(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    modes = {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
    }
    agent: dict[str, Any] = {
        "capabilities": LOAD,
        "store": str(tmp_path / "store"),
        "opened": {"modes": modes},
        "before": {
            "session/load": [
                update_line({"sessionUpdate": "current_mode_update", "currentModeId": "ask"})
            ]
        },
    }
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_mode", {"sessionId": session, "modeId": "code"})
    async with wrapped(journal, log=str(log), **agent) as client:
        result = await client.load(session)
        assert result["modes"]["currentModeId"] == "code"
        [asked] = received(log, "session/set_mode")
        assert asked["params"] == {"sessionId": session, "modeId": "code"}


def context_in(prompt: list[dict[str, Any]]) -> str:
    """The earlier conversation that came with a prompt, before it; "" when none did."""
    return str(prompt[0]["text"]) if len(prompt) > 1 else ""


async def test_else_by_a_new_session_that_gets_the_conversation_with_the_next_prompt(
    journal: Path, log: Path
) -> None:
    can: dict[str, Any] = {"promptCapabilities": {"embeddedContext": True}}
    async with wrapped(journal, capabilities=can) as client:
        session = await client.talk("my first question")
        tool = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Look", "kind": "read"}
        await client.prompt(session, {"update": tool}, {"think": "secretly"}, {"say": "I looked"})
    async with wrapped(journal, capabilities=can, log=str(log)) as client:
        await client.load(session)
        assert methods(log) == ["initialize", "session/new"]
        assert await client.prompt(session, "and now?") == {"stopReason": "end_turn"}
        await client.prompt(session, "again")
        first, second = received(log, "session/prompt")
        assert first["params"]["sessionId"] != session
        context, own = first["params"]["prompt"]
        assert context["type"] == "text"  # nobody keeps a resource from the model, or forgets it
        text = context_in([context, own])
        assert "my first question" in text
        assert "I looked" in text
        assert "Look" in text
        assert text.count("secretly") == 1  # only in the user's words; thoughts are not handed over
        assert own == {"type": "text", "text": "and now?"}
        # Only with the next prompt, not with every one.
        assert second["params"]["prompt"] == [{"type": "text", "text": "again"}]


def notices(client: Talker) -> list[dict[str, Any]]:
    return [u for u in client.updates() if "acphold/notice" in (u.get("_meta") or {})]


async def test_restored_context_is_told_as_a_notice_to_clients_that_show_notices(
    journal: Path,
) -> None:
    session = await talked(journal, "a")
    shows: dict[str, Any] = {"session": {"notices": {}}}
    async with wrapped(journal, client=shows) as client:
        await client.load(session)
        [notice] = notices(client)  # before it costs
        assert notice["sessionUpdate"] == "notice"
        assert notice["severity"] == "info"
        assert "about" in notice["description"]
        await client.prompt(session, {"say": "b"})
        assert notices(client) == [notice]
        assert client.text() == "ab"
    async with wrapped(journal, client=shows) as client:
        await client.load(session)
        assert len(notices(client)) == 1  # its own: for the moment, never replayed


async def test_an_agent_that_refuses_to_resume_and_load_gets_the_context(
    journal: Path, log: Path
) -> None:
    refusal = {"error": {"code": -32603, "message": "file is gone"}}
    agent: dict[str, Any] = {
        "capabilities": RESUME | LOAD,
        "replies": {"session/resume": [refusal], "session/load": [refusal]},
    }
    session = await talked(journal, "a", **agent)
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session)
        assert client.text().startswith("a")
        await client.prompt(session, "next")
        assert methods(log) == [
            "initialize",
            "session/resume",
            "session/load",
            "session/new",
            "session/prompt",
        ]
        assert "Assistant: a" in context_in(received(log, "session/prompt")[0]["params"]["prompt"])


async def test_context_is_owed_until_the_agent_has_answered_a_prompt(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    """Also by the next process: the agent's new session does not know the conversation yet."""
    store = tmp_path / "store"
    agent: dict[str, Any] = {"capabilities": LOAD, "store": str(store)}
    session = await talked(journal, "a", **agent)
    store.unlink()
    async with wrapped(journal, **agent) as client:
        await client.load(session)  # and nothing is said
        assert [info["sessionId"] for info in await client.sessions()] == [session]
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session)
        await client.prompt(session, "next")
        assert "Assistant: a" in context_in(received(log, "session/prompt")[0]["params"]["prompt"])
    os.unlink(log)
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session)
        await client.prompt(session, "last")
        assert len(received(log, "session/prompt")[0]["params"]["prompt"]) == 1


async def test_a_prompt_that_the_agent_refused_does_not_use_the_context_up(
    journal: Path, log: Path
) -> None:
    session = await talked(journal, "a")
    async with wrapped(journal, log=str(log)) as client:
        await client.load(session)
        with pytest.raises(Refused):
            await client.prompt(session, {"error": {"code": -32603, "message": "rate limit"}})
        await client.prompt(session, "once more")
        for message in received(log, "session/prompt"):
            assert "Assistant: a" in context_in(message["params"]["prompt"])


async def test_a_greeting_of_the_new_session_at_the_agent_is_not_part_of_the_conversation(
    journal: Path,
) -> None:
    session = await talked(journal, "a")
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    after = {"session/new": [update_line(say("Welcome!")), update_line(commands)]}
    async with wrapped(journal, after=after) as client:
        await client.load(session)
        await client.until(lambda: commands in client.updates())
        await client.prompt(session, {"say": "b"})
        assert "Welcome" not in client.text()


async def test_an_agent_that_restored_itself_is_told_of_the_turn_that_was_cut_off(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent: dict[str, Any] = {"capabilities": RESUME, "store": str(tmp_path / "store")}
    async with program(journal, **agent) as client:
        session = await client.talk({"say": "a whole turn"})
        client.begin_prompt(session, {"say": "half a turn"}, {"until": "cancel ignored"})
        await client.until_text("half a turn")
        await client.kill()
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session)
        await client.prompt(session, {"say": "c"})
        await client.prompt(session, {"say": "d"})
    first, second = (message["params"]["prompt"] for message in received(log, "session/prompt"))
    assert "half a turn" in context_in(first)
    assert "a whole turn" not in context_in(first)
    assert len(first) == 2
    assert len(second) == 1
