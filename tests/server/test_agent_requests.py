"""Requests of the agent reach the client, and the answers go back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.editor import DEADLINE, Talker, received
from tests.owners import program
from tests.served import Guest, wrapped
from tests.server.test_extensions import other_id

ALL: dict[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}

FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"mode": "url", "message": "?", "elicitationId": "e", "url": "https://example.test"}

PERMISSION = {
    "toolCall": {"toolCallId": "t", "title": "Do it", "_meta": {"x": 1}, "vendor": [None]},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once", "vendor": 1},
        {"optionId": "later", "name": "Later", "kind": "x-new-kind"},
    ],
    "_meta": {"deep": {"a": 1.50}},
    "vendor": True,
}

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("session/request_permission", PERMISSION),
    ("fs/read_text_file", {"path": "/a", "line": 3, "limit": 4, "vendor": 1}),
    ("fs/write_text_file", {"path": "/a", "content": "\u00e9", "_meta": {"x": None}}),
    ("terminal/create", {"command": "ls", "args": [], "env": [], "cwd": "/", "vendor": {}}),
    ("terminal/output", {"terminalId": "t"}),
    ("terminal/wait_for_exit", {"terminalId": "t"}),
    ("terminal/kill", {"terminalId": "t"}),
    ("terminal/release", {"terminalId": "t"}),
    ("elicitation/create", FORM),
    ("elicitation/create", URL),
    ("_vendor/ask", {"any": ["thing"]}),
    ("future/ask", {"any": ["thing"]}),
]


def answer_to(client: Talker) -> Any:
    """The answer that the scripted agent received last, by its own words."""
    return json.loads(client.text().split("answer: ")[-1])


async def test_a_request_reaches_the_client_under_its_own_session_id_with_unknown_fields_intact(
    journal: Path,
) -> None:
    await other_id(journal)
    result = {"some": ["result", None], "_meta": {"x": 1}}
    async with wrapped(journal, client=ALL, ids="counter") as client:
        session = await client.new()
        assert session != "0"
        for method, params in REQUESTS:
            client.answers[method] = lambda _: result
            await client.prompt(session, {"ask": [method, params]})
            *_, asked = [message for message in client.messages if message.get("method") == method]
            assert asked["params"] == {"sessionId": session, **params}
            assert answer_to(client) == result


async def test_an_error_of_the_client_goes_back_as_it_came(journal: Path) -> None:
    error = {"code": 5, "message": "no such file", "data": {"path": "/a"}}
    async with wrapped(journal, client=ALL) as client:
        client.answers["fs/read_text_file"] = lambda _: {"error": error}
        session = await client.new()
        turn = client.begin_prompt(session, {"ask": ["fs/read_text_file", {"path": "/a"}]})
        client.answers.clear()
        await turn
        assert answer_to(client) == {"error": {"code": -32601, "message": "not here"}}


async def test_what_the_client_did_not_advertise_is_answered_without_bothering_it(
    client: Guest,
) -> None:
    session = await client.new()
    for method, params in REQUESTS:
        if method.split("/")[0] in ("fs", "terminal", "elicitation"):
            await client.prompt(session, {"ask": [method, params]})
            assert answer_to(client)["error"]["code"] == -32601
            assert method not in [message.get("method") for message in client.messages]


async def test_half_a_capability_is_not_the_other_half(journal: Path) -> None:
    async with wrapped(journal, client={"fs": {"writeTextFile": True}}) as client:
        client.answers["fs/read_text_file"] = lambda _: {}
        await client.talk({"ask": ["fs/read_text_file", {"path": "/a"}]})
        assert answer_to(client)["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("can", "params"),
    [({"form": {}}, URL), ({"url": {}}, FORM), ({"form": {}, "url": {}}, {**FORM, "mode": "_x"})],
)
async def test_a_mode_of_asking_that_no_client_has_advertised_is_invalid(
    journal: Path, can: dict[str, Any], params: dict[str, Any]
) -> None:
    async with wrapped(journal, client={"elicitation": can}) as client:
        client.answers["elicitation/create"] = lambda _: {}
        await client.talk({"ask": ["elicitation/create", params]})
        assert answer_to(client)["error"]["code"] == -32602


async def test_requests_of_the_agents_own_making_pass_outside_of_any_session(
    journal: Path, log: Path
) -> None:
    lines = [
        '{"jsonrpc":"2.0","id":"text id","method":"_vendor/ask","params":{"x":[null]}}',
        '{"jsonrpc":"2.0","id":7,"method":"vendor.ask"}',
        '{"jsonrpc":"2.0","id":8,"method":"_vendor/ask","params":{"sessionId":"a stranger"}}',
        '{"jsonrpc":"2.0","id":9,"method":"_vendor/none","params":[5]}',
    ]
    async with wrapped(journal, log=str(log)) as client:
        client.answers["_vendor/ask"] = lambda params: {"got": params}
        client.answers["vendor.ask"] = lambda params: 5
        session = await client.talk(*[{"line": text} for text in lines])

        def replies() -> dict[Any, Any]:
            return {m["id"]: m for m in received(log) if "method" not in m}

        await client.prompt(session, {"ask": ["session/request_permission", PERMISSION]})
        found = replies()
        assert found["text id"]["result"] == {"got": {"x": [None]}}
        assert found[7]["result"] == 5
        assert found[8]["result"] == {"got": {"sessionId": "a stranger"}}
        assert found[9]["error"]["code"] == -32601


async def test_a_request_before_the_answer_to_new_reaches_the_client_too(
    journal: Path, log: Path
) -> None:
    asked = '{"jsonrpc":"2.0","id":5,"method":"_vendor/ask","params":{"sessionId":"0"}}'
    agent: dict[str, Any] = {"ids": "counter", "before": {"session/new": [asked]}}
    async with wrapped(journal, log=str(log), **agent) as client:
        client.answers["_vendor/ask"] = lambda _: "yes"
        session = await client.new()
        await client.until(lambda: len(client.messages) == 3)
        await client.prompt(session, {"say": "a"})
        assert [m["result"] for m in received(log) if m.get("id") == 5] == ["yes"]


async def test_an_agent_that_takes_its_question_back_takes_it_back_from_the_client(
    journal: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    asked = '{"jsonrpc":"2.0","id":5,"method":"_vendor/ask","params":{"sessionId":"$ID"}}'
    back = '{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}'

    async def never(_: dict[str, Any]) -> None:
        seen.touch()
        await asyncio.get_running_loop().create_future()

    async with wrapped(journal) as client:
        client.answers["_vendor/ask"] = never
        session = await client.new()
        steps = [{"line": asked}, {"until": str(seen)}, {"line": back}, {"say": "a"}]
        await client.prompt(session, *steps)
        [request] = [m for m in client.messages if m.get("method") == "_vendor/ask"]
        [told] = await client.until(
            lambda: [m for m in client.messages if m.get("method") == "$/cancel_request"]
        )
        assert told["params"] == {"requestId": request["id"]}


async def test_an_elicitation_is_completed_under_the_clients_session(journal: Path) -> None:
    async with wrapped(journal, client=ALL) as client:
        client.answers["elicitation/create"] = lambda _: {"action": "accept"}
        completed = ["elicitation/complete", {"elicitationId": "e"}]
        await client.talk({"ask": ["elicitation/create", URL]}, {"tell": completed})
        [told] = [m for m in client.messages if m.get("method") == "elicitation/complete"]
        assert told["params"]["elicitationId"] == "e"


async def test_an_elicitation_is_completed_only_at_clients_that_were_asked(journal: Path) -> None:
    async with wrapped(journal, client=ALL) as client:
        await client.talk({"tell": ["elicitation/complete", {"elicitationId": "e"}]})
        assert "elicitation/complete" not in [m.get("method") for m in client.messages]


async def test_a_permission_before_its_tool_call_passes_as_it_comes(journal: Path) -> None:
    tool = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}
    async with wrapped(journal) as client:
        session = await client.new()
        ask = {"ask": ["session/request_permission", PERMISSION]}
        await client.prompt(session, {"update": tool}, ask)
        assert answer_to(client) == {"outcome": {"outcome": "selected", "optionId": "yes"}}


async def test_a_question_that_a_kill_cut_off_is_closed_and_the_next_client_is_told(
    journal: Path,
) -> None:
    asked = asyncio.Event()

    async def never(_: dict[str, Any]) -> None:
        asked.set()
        await asyncio.get_running_loop().create_future()

    tool = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Do it"}
    async with program(journal) as client:
        client.answers["session/request_permission"] = never
        session = await client.new()
        ask = {"ask": ["session/request_permission", PERMISSION]}
        client.begin_prompt(session, {"update": tool}, ask)
        await asyncio.wait_for(asked.wait(), DEADLINE)
        await client.kill()
    async with program(journal, client={"session": {"notices": {}}}) as client:
        await client.load(session)
        notices = [u for u in client.updates() if u["sessionUpdate"] == "notice"]
        assert ["Do it" in notice["description"] for notice in notices] == [True, False]
        [closed] = [u for u in client.updates() if u.get("status") == "failed"]
        assert "interrupted" in closed["_meta"]["acphold/failed"]
        assert "session/request_permission" not in [m.get("method") for m in client.messages]
        assert await client.prompt(session, {"say": "a"}) == {"stopReason": "end_turn"}
