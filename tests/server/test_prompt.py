"""`session/prompt`: journalled, relayed, one at a time, answered behind its last update."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.editor import Refused, prompt_params, received, say
from tests.served import Guest, wrapped


async def test_a_prompt_is_relayed_with_unknown_fields_intact(log: Path, client: Guest) -> None:
    session = await client.new()
    params = {
        "sessionId": session,
        "prompt": [
            {"type": "text", "text": "hi", "annotations": {"audience": ["user"]}},
            {"type": "image", "data": "aGk=", "mimeType": "image/png", "vendor": None},
            {"type": "x-new", "value": 1.50},
        ],
        "_meta": {"traceparent": "00-1"},
        "vendor": {"a": []},
    }
    await client.call("session/prompt", params)
    assert received(log, "session/prompt")[0]["params"] == params


async def test_a_prompt_that_is_no_array_is_refused_by_name(client: Guest) -> None:
    session = await client.new()
    for prompt in ({}, {"prompt": "hello"}, {"prompt": {"type": "text"}}, {"prompt": 5}):
        error = await client.refused("session/prompt", {"sessionId": session, **prompt})
        assert error.code == -32602
        assert "prompt" in error.message


async def test_a_message_of_very_many_members_is_refused_as_it_would_hold_up_everybody(
    journal: Path,
) -> None:
    many = dict.fromkeys(map(str, range(100_000)), 1)
    hello = {"type": "text", "text": "hello"}
    async with wrapped(journal) as client:
        session = await client.new()
        for members in ({"prompt": [hello], "_meta": many}, {"prompt": [{**hello, **many}]}):
            error = await client.refused("session/prompt", {"sessionId": session, **members})
            assert (error.code, "more than 100000 parts" in error.message) == (-32600, True)
        ended = await client.prompt(session, say("long, " * 100_000))
        assert ended == {"stopReason": "end_turn"}


async def test_a_prompt_of_very_many_blocks_is_refused_as_it_would_hold_up_everybody(
    journal: Path,
) -> None:
    many = [{"type": "text", "text": ""}] * 10_001
    async with wrapped(journal) as client:
        session = await client.new()
        change = {"do": "add", "prompt": many}
        for method, params in (
            ("session/prompt", {"sessionId": session, "prompt": many}),
            ("_acphold/queue", {"sessionId": session, "change": change}),
            ("_session/steering", {"sessionId": session, "prompt": many}),
        ):
            error = await client.refused(method, params)
            assert (error.code, "10,000 content blocks" in error.message) == (-32602, True)


async def test_a_prompt_for_a_session_that_is_not_open_is_not_found(journal: Path) -> None:
    async with wrapped(journal) as client:
        session = await client.talk({"say": "a"})
        error = await client.refused("session/prompt", prompt_params("no-such", "x"))
        assert error.code == -32002
        assert error.data["sessionId"] == "no-such"
    async with wrapped(journal) as client:
        error = await client.refused("session/prompt", prompt_params(session, "x"))
        assert error.code == -32002
        assert "session/load" in error.message


async def test_the_answer_follows_every_update_of_the_turn(client: Guest) -> None:
    session = await client.new()
    for _ in range(3):
        client.messages.clear()
        await client.prompt(session, {"flood": [3000, 100]})
        updates = [u for u in client.updates() if u["sessionUpdate"] == "agent_message_chunk"]
        assert len(updates) == 3000
        assert client.messages[-1]["result"] == {"stopReason": "end_turn"}


async def test_the_answer_is_the_agents_with_its_unknown_fields(client: Guest) -> None:
    session = await client.new()
    for stop in ("end_turn", "max_tokens", "max_turn_requests", "refusal", "x-new-reason"):
        assert await client.prompt(session, {"stop": stop}) == {"stopReason": stop}
    result = {"stopReason": "end_turn", "usage": {"totalTokens": 7}, "_meta": {"x": [None]}}
    assert await client.prompt(session, {"answer": result}) == result


async def test_an_error_of_the_agent_is_relayed_as_it_came_and_the_session_goes_on(
    journal: Path,
) -> None:
    error = {"code": 400, "message": "model\nis angry", "data": {"retry": [1, None]}}
    async with wrapped(journal) as client:
        session = await client.new()
        with pytest.raises(Refused) as raised:
            await client.prompt(session, {"say": "a"}, {"error": error})
        assert raised.value.code == 400
        assert raised.value.data == {"retry": [1, None]}
        await client.prompt(session, {"say": "b"})
    async with wrapped(journal) as client:
        await client.load(session)
        assert client.text() == "ab"


async def test_prompts_of_two_sessions_run_side_by_side(journal: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with wrapped(journal) as client:
        one, two = await client.new(), await client.new()
        waiting = client.begin_prompt(one, {"until": str(go)}, {"say": "late"})
        await client.prompt(two, {"say": "soon"})
        assert client.text(session_id=two) == "soon"
        assert not waiting.done()
        go.touch()
        await waiting
        assert client.text(session_id=one) == "late"


async def test_a_prompt_that_fails_does_not_hold_up_the_next(journal: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with wrapped(journal) as client:
        session = await client.new()
        error = {"code": -32603, "message": "no"}
        first = client.begin_prompt(session, {"until": str(go)}, {"error": error})
        second = client.begin_prompt(session, {"say": "b"})
        go.touch()
        assert await second == {"stopReason": "end_turn"}
        with pytest.raises(Refused):
            await first


async def test_a_user_message_that_repeats_no_prompt_is_kept(journal: Path) -> None:
    update = {**say("steered"), "sessionUpdate": "user_message_chunk"}
    async with wrapped(journal) as client:
        session = await client.talk({"update": update})
    async with wrapped(journal) as client:
        await client.load(session)
        assert update in client.updates()


async def test_cancel_request_of_a_prompt_cancels_the_turn_at_the_agent(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, log=str(log)) as client:
        session = await client.new()
        turn = client.begin_prompt(
            session, {"say": "a"}, {"until": "cancel"}, {"stop": "cancelled"}
        )
        await client.until_text("a")
        client.tell("$/cancel_request", {"requestId": client.last_id})
        with pytest.raises(Refused) as raised:
            await turn
        assert raised.value.code == -32800
        await client.prompt(session, {"say": "b"})
        assert received(log, "session/cancel")
    async with wrapped(journal) as client:
        await client.load(session)
        assert client.text() == "ab"
