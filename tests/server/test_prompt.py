"""`session/prompt`: journalled, relayed, one at a time, answered behind its last update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("prompt", [None, "hello", {"type": "text", "text": "hello"}, 5])
async def test_a_prompt_that_is_no_array_is_refused_by_name(prompt: Any, client: Guest) -> None:
    session = await client.new()
    params: dict[str, Any] = {"sessionId": session}
    if prompt is not None:
        params["prompt"] = prompt
    error = await client.refused("session/prompt", params)
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


@pytest.mark.parametrize(
    "stop", ["end_turn", "max_tokens", "max_turn_requests", "refusal", "x-new-reason"]
)
async def test_the_stop_reason_is_the_agents(stop: str, client: Guest) -> None:
    session = await client.new()
    assert await client.prompt(session, {"stop": stop}) == {"stopReason": stop}


async def test_unknown_fields_of_the_answer_are_relayed(journal: Path) -> None:
    result = {"stopReason": "end_turn", "usage": {"totalTokens": 7}, "_meta": {"x": [None]}}
    async with wrapped(journal) as client:
        session = await client.new()
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


async def test_a_second_prompt_waits_while_one_runs(journal: Path, tmp_path: Path) -> None:
    log, go = tmp_path / "agent.jsonl", tmp_path / "go"
    async with wrapped(journal, log=str(log)) as client:
        session = await client.new()
        first = client.begin_prompt(session, {"say": "1"}, {"until": str(go)}, {"say": "2"})
        second = client.begin_prompt(session, {"say": "3"})
        third = client.begin_prompt(session, {"say": "4"})
        await client.until_text("1")
        assert len(received(log, "session/prompt")) == 1
        go.touch()
        for turn in (first, second, third):
            assert await turn == {"stopReason": "end_turn"}
        assert client.text() == "1234"
        ended = [m["id"] for m in client.messages if m.get("result") == {"stopReason": "end_turn"}]
        assert ended == sorted(ended)
    async with wrapped(journal) as client:
        await client.load(session)
        kinds = [u["sessionUpdate"][:5] for u in client.updates()]
        assert [kind for kind in kinds if kind in ("user_", "agent")] == ["user_", "agent"] * 3


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


async def test_updates_after_the_prompts_answer_are_delivered_and_journalled(
    journal: Path,
) -> None:
    update = {"sessionUpdate": "x-late", "n": 1}
    async with wrapped(journal) as client:
        session = await client.talk({"later": update}, {"say": "a"})
        await client.until(lambda: update in client.updates())
    async with wrapped(journal) as client:
        await client.load(session)
        assert update in client.updates()


async def test_a_prompt_that_the_agent_sends_back_is_shown_once_on_load(journal: Path) -> None:
    async with wrapped(journal, echo=True) as client:
        session = await client.new()
        params = {
            "sessionId": session,
            "prompt": [
                {"type": "text", "text": "what \u00e9"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
            ],
        }
        await client.call("session/prompt", params)
        said = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert [update["content"] for update in said] == params["prompt"]
    async with wrapped(journal) as client:
        await client.load(session)
        said = [u for u in client.updates() if u["sessionUpdate"] == "user_message_chunk"]
        assert [update["content"] for update in said] == params["prompt"]


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
