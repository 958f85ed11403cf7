"""`session/close`: cancelled, freed, and loadable again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.editor import prompt_params, received
from tests.served import Guest, wrapped

CANCELLED = {"stopReason": "cancelled"}


async def test_close_of_a_busy_session_ends_its_prompts_as_cancelled(client: Guest) -> None:
    session = await client.new()
    running = client.begin_prompt(session, {"say": "a"}, {"until": "cancel"})
    waiting = client.begin_prompt(session, {"say": "b"})
    await client.until_text("a")
    assert await client.call("session/close", {"sessionId": session}) == {}
    assert await running == CANCELLED
    assert await waiting == CANCELLED
    closed = client.place_of_answer(client.last_id)
    answers = [m for m in client.messages[:closed] if m.get("result") == CANCELLED]
    assert len(answers) == 2


async def test_close_does_not_wait_for_an_agent_that_does_not_stop(client: Guest) -> None:
    session = await client.new()
    running = client.begin_prompt(session, {"say": "a"}, {"until": "cancel ignored"})
    await client.until_text("a")
    client.tell("session/cancel", {"sessionId": session})  # the grace begins, of 10 s
    async with asyncio.timeout(4):
        await client.call("session/close", {"sessionId": session})
    assert await running == CANCELLED


async def test_a_closed_session_is_not_open_until_it_is_loaded(client: Guest) -> None:
    session = await client.talk({"say": "a"})
    await client.call("session/close", {"sessionId": session})
    error = await client.refused("session/prompt", prompt_params(session, "x"))
    assert error.code == -32002
    await client.load(session)
    assert client.text() == "aa"
    await client.prompt(session, {"say": "b"})
    assert client.text().endswith("b")


async def test_an_agent_without_close_is_not_asked(log: Path, client: Guest) -> None:
    session = await client.new()
    await client.call("session/close", {"sessionId": session})
    assert received(log, "session/close") == []


async def test_a_failing_close_of_the_agent_does_not_fail_ours(journal: Path) -> None:
    agent: dict[str, Any] = {
        "capabilities": {"sessionCapabilities": {"close": {}}},
        "replies": {"session/close": [{"error": {"code": -32603, "message": "no"}}]},
    }
    async with wrapped(journal, **agent) as client:
        session = await client.new()
        assert await client.call("session/close", {"sessionId": session}) == {}


async def test_close_needs_an_id_and_succeeds_for_a_closed_session_but_not_for_an_unknown_one(
    client: Guest,
) -> None:
    for params in ({}, {"sessionId": None}, {"sessionId": 5}):
        error = await client.refused("session/close", params)
        assert error.code == -32602
        assert "sessionId" in error.message
    error = await client.refused("session/close", {"sessionId": "no-such"})
    assert error.code == -32002
    session = await client.new()
    for _ in range(2):
        assert await client.call("session/close", {"sessionId": session}) == {}


async def test_what_the_agent_still_sends_of_a_closed_session_reaches_nobody(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with wrapped(journal, cancel_grace=0.1) as client:
        session, other = await client.new(), await client.new()
        client.begin_prompt(
            session,
            {"say": "a"},
            {"until": str(go)},
            {"say": "late"},
            {"tell": ["_vendor/x", {}]},
            {"ask": ["_vendor/ask", {}]},
        )
        await client.until_text("a")
        await client.call("session/close", {"sessionId": session})
        seen = len(client.messages)
        go.touch()
        await client.prompt(other, {"say": "b"})
        assert client.text(session_id=session) == "a"
        assert [m for m in client.messages[seen:] if m.get("method", "")[:1] == "_"] == []
        await client.load(session)
        assert client.text(session_id=session) == "aa"
