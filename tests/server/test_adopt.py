"""Sessions the agent has of its own: loading one adopts it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from tests.editor import open_params, prompt_params, received, say, update_line
from tests.served import wrapped

CAN = {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}}}

TOLD = [
    {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "their question"}},
    say("their answer"),
    {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "status": "completed"},
]


def stored(tmp_path: Path, **info: Any) -> dict[str, Any]:
    """The options of an agent that has one session of its own."""
    store = tmp_path / "store"
    if not store.exists():
        store.write_text(json.dumps({"theirs": {"cwd": "/", "updates": TOLD, "info": info}}))
    return {"store": str(store), "capabilities": CAN}


def plain(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in update.items() if k != "messageId"} for update in updates]


async def test_load_of_one_goes_to_the_agent_and_its_replay_is_delivered_and_journalled(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent = stored(tmp_path, title="Their title", updatedAt="2020-02-02T02:02:02Z")
    async with wrapped(journal, log=str(log), **agent) as client:
        [listed] = await client.sessions()
        assert listed["sessionId"] == "theirs"
        await client.load("theirs")
        assert client.updates("theirs") == TOLD
        answer = client.place_of_answer(client.last_id)
        assert answer == len(client.messages) - 1
        assert len(received(log, "session/load")) == 1
        await client.call("session/close", {"sessionId": "theirs"})
        os.unlink(log)
        await client.load("theirs")
        assert plain(client.updates("theirs")) == plain(TOLD) * 2


async def test_an_adopted_session_is_listed_once_with_the_title_and_time_it_had(
    journal: Path, tmp_path: Path
) -> None:
    agent = stored(tmp_path, title="Their title", updatedAt="2020-02-02T02:02:02Z")
    async with wrapped(journal, **agent) as client:
        await client.sessions()
        await client.load("theirs")
        [listed] = await client.sessions()
        assert listed["title"] == "Their title"
        assert listed["updatedAt"] == "2020-02-02T02:02:02.000Z"
        await client.leave()
    async with wrapped(journal, **agent) as client:
        assert [info["title"] for info in await client.sessions()] == ["Their title"]
        await client.load("theirs")
        assert plain(client.updates("theirs")) == plain(TOLD)


async def test_an_id_that_no_list_showed_is_adopted_too_and_named_by_its_first_line(
    journal: Path, tmp_path: Path
) -> None:
    agent = stored(tmp_path)
    async with wrapped(journal, **agent) as client:
        await client.load("theirs")
        assert client.updates("theirs") == TOLD
        [listed] = await client.sessions()
        assert listed["title"] == "their question"


async def test_an_adopted_session_goes_on(journal: Path, tmp_path: Path) -> None:
    agent = stored(tmp_path)
    async with wrapped(journal, **agent) as client:
        await client.load("theirs")
        await client.prompt("theirs", {"say": "more"})
    agent["capabilities"] = {}
    async with wrapped(journal, **agent) as client:
        await client.load("theirs")
        assert client.text() == "their answermore"


async def test_a_prompt_waits_for_its_session_also_if_another_load_of_it_is_refused_meanwhile(
    journal: Path, tmp_path: Path
) -> None:
    free = tmp_path / "free"
    async with wrapped(journal, **{**stored(tmp_path), "one thread": True}) as client:
        session = await client.new()
        await client.sessions()
        busy = client.begin("session/prompt", prompt_params(session, {"until": str(free)}))
        loading = client.begin("session/load", open_params("theirs", "/"))
        refused = client.begin("session/load", open_params("theirs", "no/absolute/path"))
        turn = client.begin("session/prompt", prompt_params("theirs", {"say": "more"}))
        await client.refused("session/load", {})  # all of them have been read
        free.touch()
        await busy
        await loading
        await asyncio.wait([refused])
        assert "not an absolute path" in str(refused.exception())
        assert await turn == {"stopReason": "end_turn"}
        assert client.updates("theirs")[-1] == say("more")


async def test_an_agent_that_can_only_list_and_resume_is_resumed(
    journal: Path, tmp_path: Path
) -> None:
    agent = stored(tmp_path)
    agent["capabilities"] = {"sessionCapabilities": {"list": {}, "resume": {}}}
    async with wrapped(journal, **agent) as client:
        assert await client.load("theirs") == {}
        assert client.updates() == []
        await client.prompt("theirs", {"say": "more"})


async def test_an_adoption_that_failed_leaves_nothing_and_can_be_tried_again(
    journal: Path, tmp_path: Path
) -> None:
    agent = stored(tmp_path)
    half = update_line(say("half"), "theirs")
    failing: dict[str, Any] = {
        **agent,
        "before": {"session/load": [half]},
        "replies": {"session/load": [{"error": {"code": -32603, "message": "broken"}}]},
    }
    async with wrapped(journal, **failing) as client:
        error = await client.refused("session/load", open_params("theirs", "/"))
        assert error.code == -32002
        assert error.data["sessionId"] == "theirs"
        assert len(await client.sessions()) == 1
    async with wrapped(journal, **agent) as client:
        await client.load("theirs")
        assert client.updates("theirs") == TOLD
