"""Extension methods and unknown ones pass in both directions. Source: spec v1, extensibility."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.editor import received
from tests.served import Guest, wrapped


async def other_id(journal: Path) -> None:
    """Take the id "0", so that the next session has another id here than at the agent."""
    async with wrapped(journal, ids="counter") as client:
        await client.prompt(await client.new(), "taken")


async def test_extension_methods_and_unknown_ones_are_relayed_with_any_result(
    journal: Path, log: Path
) -> None:
    methods = ("_vendor/thing", "session/from_the_future", "vendor.thing")
    results: list[Any] = [
        {"deep": [1.50, {"\u00e9": None}], "_meta": {}},
        None,
        [],
        5,
        "text",
        True,
    ]
    params = {"a": [None, {"b": 1}], "_meta": {"c": 2}}
    replies = dict.fromkeys(methods, results)
    async with wrapped(journal, log=str(log), replies=replies) as client:
        for method in methods:
            assert [await client.call(method, params) for _ in results] == results
            assert received(log, method)[0]["params"] == params


async def test_params_may_be_absent_or_an_array(journal: Path, log: Path) -> None:
    async with wrapped(journal, log=str(log), replies={"_x": [1]}) as client:
        client.send({"id": 70, "method": "_x"})
        client.send({"id": 71, "method": "_x", "params": [1, 2]})
        await client.until(lambda: {70, 71} <= {m.get("id") for m in client.messages})
        first, second = received(log, "_x")
        assert "params" not in first
        assert second["params"] == [1, 2]


async def test_their_session_ids_are_mapped(journal: Path, log: Path) -> None:
    await other_id(journal)
    agent: dict[str, Any] = {"ids": "counter", "log": str(log), "replies": {"_x": [1]}}
    async with wrapped(journal, **agent) as client:
        session = await client.new()
        assert session != "0"
        await client.call("_x", {"sessionId": session, "n": 1})
        client.tell("_note", {"n": 2, "sessionId": session})
        await client.call("_x", {"sessionId": "foreign"})
        first, third = received(log, "_x")
        assert first["params"] == {"sessionId": "0", "n": 1}
        assert received(log, "_note")[0]["params"] == {"n": 2, "sessionId": "0"}
        assert third["params"] == {"sessionId": "foreign"}


@pytest.mark.parametrize("method", ["_x", "session/newer"])
async def test_the_agent_is_asked_nothing_of_a_saved_session_that_it_does_not_know(
    journal: Path, log: Path, method: str
) -> None:
    await other_id(journal)  # its id is that of another session of the agent's from now on
    agent: dict[str, Any] = {"ids": "counter", "log": str(log), "replies": {method: [1]}}
    async with wrapped(journal, **agent) as client:
        session = await client.new()
        error = await client.refused(method, {"sessionId": "0"})
        assert (error.code, error.data) == (-32002, {"sessionId": "0"})
        client.tell("_note", {"sessionId": "0"})
        assert await client.call(method, {"sessionId": session}) == 1
        assert [message["params"]["sessionId"] for message in received(log, method)] == ["0"]
        assert received(log, "_note") == []


async def test_the_agent_has_the_session_open_before_an_extension_method_of_it_comes(
    journal: Path, tmp_path: Path, log: Path
) -> None:
    agent: dict[str, Any] = {
        "capabilities": {"loadSession": True},
        "store": str(tmp_path / "store"),
        "replies": {"_x": [1]},
        "log": str(log),
    }
    async with wrapped(journal, **agent) as client:
        session = await client.talk({"say": "a"})
        with pytest.raises(Exception, match="exit status 3"):
            await client.prompt(session, {"exit": 3})
        await client.call("_x", {"sessionId": session})
        methods = [message["method"] for message in received(log)]
        assert methods[-3:] == ["initialize", "session/load", "_x"]


async def test_method_not_found_when_the_agent_has_none(client: Guest) -> None:
    for method in ("_vendor/thing", "session/from_the_future"):
        error = await client.refused(method, {})
        assert error.code == -32601


async def test_an_error_of_an_extension_method_is_relayed_as_it_came(journal: Path) -> None:
    error = {"code": 77, "message": "own code", "data": [1, {"x": None}]}
    async with wrapped(journal, replies={"_x": [{"error": error}]}) as client:
        refused = await client.refused("_x", {})
        assert (refused.code, refused.message, refused.data) == tuple(error.values())


async def test_unknown_notifications_pass_from_the_client(journal: Path, log: Path) -> None:
    async with wrapped(journal, log=str(log), replies={"_x": [1]}) as client:
        client.tell("_vendor/note", {"a": 1})
        client.tell("future/note", {"b": [None]})
        await client.call("_x", {})
        assert received(log, "_vendor/note")[0]["params"] == {"a": 1}
        assert received(log, "future/note")[0]["params"] == {"b": [None]}
        assert len(client.messages) == 2  # and nothing answers a notification


async def test_unknown_notifications_pass_from_the_agent_in_their_place_among_updates(
    journal: Path,
) -> None:
    await other_id(journal)
    async with wrapped(journal, ids="counter") as client:
        session = await client.new()
        await client.prompt(
            session,
            {"say": "1"},
            {"tell": ["_vendor/note", {"n": [None], "_meta": {"x": 1}}]},
            {"tell": ["future/note", {"sessionId": "of a stranger"}]},
            {"line": '{"jsonrpc":"2.0","method":"_bare"}'},
            {"line": '{"jsonrpc":"2.0","method":"_list","params":[1,{"sessionId":"0"}]}'},
            {"say": "2"},
        )
        place = next(n for n, m in enumerate(client.messages) if m.get("method") == "_vendor/note")
        first, *between, last = client.messages[place - 1 : place + 5]
        assert first["params"]["update"]["content"]["text"] == "1"
        assert last["params"]["update"]["content"]["text"] == "2"
        note, stranger, bare, array = between
        assert note["params"] == {"sessionId": session, "n": [None], "_meta": {"x": 1}}
        assert stranger["params"] == {"sessionId": "of a stranger"}
        assert "params" not in bare
        assert array["params"] == [1, {"sessionId": "0"}]


async def test_a_notification_that_cannot_be_delivered_does_not_take_others_with_it(
    journal: Path,
) -> None:
    lines = [
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":5}}',
        '{"jsonrpc":"2.0","method":"session/update","params":[]}',
        '{"jsonrpc":"2.0","method":"session/update"}',
        '{"jsonrpc":"2.0","method":"_x","params":{"sessionId":{}}}',
        '{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}',
    ]
    async with wrapped(journal) as client:
        session = await client.new()
        script = "\n".join(lines)
        await client.prompt(session, {"line": script}, {"say": "still here"})
        assert client.text() == "still here"


async def test_an_extension_request_that_the_client_cancels_is_cancelled_at_the_agent(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, log=str(log), silent=["_slow"]) as client:
        slow = client.begin("_slow", {})
        number = client.last_id
        await client.sessions()
        client.tell("$/cancel_request", {"requestId": number})
        with pytest.raises(Exception, match="-32800"):
            await asyncio.wait_for(slow, 5)
        await client.refused("_fast", {})
        [cancelled] = received(log, "$/cancel_request")
        assert cancelled["params"]["requestId"] == received(log, "_slow")[0]["id"]


async def test_a_meta_that_holds_our_parameter_names_reaches_no_handler_as_a_parameter(
    journal: Path,
) -> None:
    meta = {"sessionId": "other", "cwd": "/other", "prompt": "x", "cursor": "x", "self": 1}
    async with wrapped(journal) as client:
        session = await client.new("/", _meta=meta)
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}], "_meta": meta}
        await client.call("session/prompt", params)
        [listed] = await client.sessions(_meta=meta)
        assert (listed["sessionId"], listed["cwd"]) == (session, "/")
        assert json.dumps(meta) not in client.text()
