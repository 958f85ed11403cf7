"""Modes and config options: relayed, remembered, in step. Sources: spec v1, session modes and
session config options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.editor import received, update_line
from tests.served import Guest, wrapped

BOOLEANS: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}}}


def modes(current: str = "ask") -> dict[str, Any]:
    available = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code", "_meta": {"x": 1}}]
    return {"currentModeId": current, "availableModes": available, "_meta": {"y": 2}}


def select(id_: str, current: str, *values: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "name": id_.title(),
        "type": "select",
        "currentValue": current,
        "options": [{"value": value, "name": value} for value in values],
        **more,
    }


def options(mode: str = "ask", model: str = "small") -> list[dict[str, Any]]:
    return [
        select("mode", mode, "ask", "code", category="mode"),
        select("model", model, "small", "large", category="model", vendor=[1, None]),
    ]


BRAVE = {"id": "brave", "name": "Brave", "type": "boolean", "currentValue": False}


def set_mode(session: str, mode: str) -> dict[str, Any]:
    return {"sessionId": session, "modeId": mode}


def set_option(session: str, option: str, value: Any) -> dict[str, Any]:
    return {"sessionId": session, "configId": option, "value": value}


def current(result: dict[str, Any]) -> dict[str, Any]:
    """Option id to its current value."""
    return {option["id"]: option["currentValue"] for option in result["configOptions"]}


async def test_set_mode_is_relayed_and_remembered(journal: Path, log: Path) -> None:
    async with wrapped(journal, opened={"modes": modes()}, log=str(log)) as client:
        session = await client.new()
        params = {**set_mode(session, "code"), "_meta": {"t": 1}}
        assert await client.call("session/set_mode", params) == {}
        assert received(log, "session/set_mode")[0]["params"] == params
        assert (await client.load(session))["modes"] == modes("code")
    async with wrapped(journal, opened={"modes": modes()}) as client:
        assert (await client.load(session))["modes"] == modes("code")


async def test_a_mode_the_agent_refuses_is_refused_and_not_remembered(journal: Path) -> None:
    refusal = {"error": {"code": -32602, "message": "no such mode"}}
    async with wrapped(
        journal, opened={"modes": modes()}, replies={"session/set_mode": [refusal]}
    ) as client:
        session = await client.new()
        error = await client.refused("session/set_mode", set_mode(session, "fly"))
        assert (error.code, error.message) == (-32602, "no such mode")
        assert (await client.load(session))["modes"] == modes("ask")


async def test_a_missing_or_wrong_field_is_named(client: Guest) -> None:
    session = await client.new()
    for method, params in (
        ("session/set_mode", {"modeId": 5}),
        ("session/set_mode", {}),
        ("session/set_config_option", {"value": "x"}),
    ):
        error = await client.refused(method, {"sessionId": session, **params})
        assert error.code == -32602
        assert "Id" in error.message


@pytest.mark.parametrize("answers", [{}, {"modes": None}, None])
async def test_a_mode_is_set_again_in_a_restored_session_whatever_the_agent_says_of_it(
    journal: Path, log: Path, answers: Any
) -> None:
    agent: dict[str, Any] = {"capabilities": {"loadSession": True}}
    async with wrapped(journal, opened={"modes": modes()}, **agent) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_mode", set_mode(session, "code"))
    agent["replies"] = {"session/load": [answers]}
    async with wrapped(journal, log=str(log), **agent) as client:
        result = await client.load(session)
        assert result["modes"]["currentModeId"] == "code"
        assert [m["params"]["modeId"] for m in received(log, "session/set_mode")] == ["code"]


async def test_a_mode_the_agent_restored_itself_is_not_set_again(journal: Path, log: Path) -> None:
    agent: dict[str, Any] = {"capabilities": {"loadSession": True}}
    async with wrapped(journal, opened={"modes": modes()}, **agent) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_mode", set_mode(session, "code"))
    agent["replies"] = {"session/load": [{"modes": modes("code")}]}
    async with wrapped(journal, log=str(log), **agent) as client:
        await client.load(session)
        assert received(log, "session/set_mode") == []


async def test_a_mode_the_agent_changed_itself_is_remembered(journal: Path) -> None:
    async with wrapped(journal, opened={"modes": modes()}) as client:
        session = await client.new()
        update = {"sessionUpdate": "current_mode_update", "currentModeId": "code"}
        await client.prompt(session, {"update": update})
        assert update in client.updates()
    async with wrapped(journal, opened={"modes": modes()}) as client:
        assert (await client.load(session))["modes"]["currentModeId"] == "code"


async def test_set_config_option_is_relayed_and_the_answer_carries_the_complete_list(
    journal: Path, log: Path
) -> None:
    # The agent answers with nothing, with null, and with options that depend on the choice.
    replies: list[Any] = [{}, None, {"configOptions": options(model="large", mode="code")}]
    async with wrapped(
        journal,
        opened={"configOptions": options()},
        log=str(log),
        replies={"session/set_config_option": replies},
    ) as client:
        session = await client.new()
        method, params = "session/set_config_option", set_option(session, "model", "large")
        result = await client.call(method, params)
        assert result["configOptions"] == options(model="large")
        result = await client.call(method, set_option(session, "model", "small"))
        assert result["configOptions"] == options()
        result = await client.call(method, params)
        assert result["configOptions"] == options(model="large", mode="code")
        assert received(log, method)[0]["params"] == params
        assert (await client.load(session))["configOptions"] == options("code", "large")
    async with wrapped(journal, opened={"configOptions": options("code", "large")}) as client:
        assert (await client.load(session))["configOptions"] == options("code", "large")


async def test_options_are_set_again_in_a_restored_session(journal: Path, log: Path) -> None:
    async with wrapped(journal, opened={"configOptions": options()}) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_config_option", set_option(session, "model", "large"))
    replies = {"session/set_config_option": [{"configOptions": options(model="large")}]}
    async with wrapped(
        journal, opened={"configOptions": options()}, log=str(log), replies=replies
    ) as client:
        assert (await client.load(session))["configOptions"] == options(model="large")
        [again] = received(log, "session/set_config_option")
        assert again["params"]["configId"] == "model"
        assert again["params"]["value"] == "large"
        assert again["params"]["sessionId"] != session


async def test_an_option_the_agent_no_longer_takes_shows_the_agents_value(journal: Path) -> None:
    async with wrapped(journal, opened={"configOptions": options()}) as client:
        session = await client.talk({"say": "a"})
        await client.call("session/set_config_option", set_option(session, "model", "large"))
    refusal = {"error": {"code": -32602, "message": "no such model"}}
    replies = {"session/set_config_option": [refusal]}
    async with wrapped(journal, opened={"configOptions": options()}, replies=replies) as client:
        assert (await client.load(session))["configOptions"] == options()


async def test_modes_and_the_option_that_stands_for_them_are_in_step(journal: Path) -> None:
    both = {"modes": modes(), "configOptions": options()}
    async with wrapped(journal, opened=both) as client:
        session = await client.new()
        await client.call("session/set_mode", set_mode(session, "code"))
        [told] = await client.until(client.updates)
        assert told["sessionUpdate"] == "config_option_update"
        assert current(told)["mode"] == "code"
        assert all(key.startswith("acphold/") for key in told["_meta"])
        await client.call("session/set_config_option", set_option(session, "mode", "ask"))
        told = await client.until(lambda: client.updates()[1:])
        assert told[0]["sessionUpdate"] == "current_mode_update"
        assert told[0]["currentModeId"] == "ask"
        result = await client.load(session)
        assert result["modes"]["currentModeId"] == "ask"
        assert current(result)["mode"] == "ask"


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
        {"sessionUpdate": "config_option_update", "configOptions": options("code")},
    ],
)
async def test_mode_and_option_are_in_step_also_when_the_agent_changes_only_one_of_them(
    journal: Path, update: dict[str, Any]
) -> None:
    both = {"modes": modes(), "configOptions": options()}
    async with wrapped(journal, opened=both) as client:
        session = await client.talk({"update": update})
        result = await client.load(session)
        assert result["modes"]["currentModeId"] == "code"
        assert current(result)["mode"] == "code"


async def test_a_mode_that_is_no_value_of_the_option_leaves_it_alone(journal: Path) -> None:
    both = {"modes": modes(), "configOptions": [select("mode", "x", "x", "y", category="mode")]}
    async with wrapped(journal, opened=both) as client:
        session = await client.new()
        await client.call("session/set_mode", set_mode(session, "code"))
        result = await client.load(session)
        assert result["modes"]["currentModeId"] == "code"
        assert current(result)["mode"] == "x"


async def test_boolean_options_are_not_shown_to_clients_that_did_not_opt_in(journal: Path) -> None:
    both = [*options(), BRAVE]
    update = {"sessionUpdate": "config_option_update", "configOptions": both}
    line = update_line(update, _meta={"beside": 1})
    replies = {"session/set_config_option": [{"configOptions": both}]}
    agent: dict[str, Any] = {"opened": {"configOptions": both}, "replies": replies}
    async with wrapped(journal, **agent) as client:
        result = await client.call("session/new", {"cwd": "/", "mcpServers": []})
        assert result["configOptions"] == options()
        session = result["sessionId"]
        set_model = set_option(session, "model", "small")
        result = await client.call("session/set_config_option", set_model)
        assert result["configOptions"] == options()
        await client.prompt(session, {"update": update}, {"line": line})
        assert (await client.load(session))["configOptions"] == options()
        assert len(client.updates()) >= 4
        shown = [u for u in client.updates() if u["sessionUpdate"] == "config_option_update"]
        assert shown
        assert all("brave" not in str(u) for u in shown)
    async with wrapped(journal, client=BOOLEANS, **agent) as client:
        assert (await client.load(session))["configOptions"] == both
        shown = [u for u in client.updates() if u["sessionUpdate"] == "config_option_update"]
        assert all(u["configOptions"] == both for u in shown)


async def test_a_boolean_option_is_set_and_set_again_as_one(journal: Path, log: Path) -> None:
    agent: dict[str, Any] = {"opened": {"configOptions": [BRAVE]}, "log": str(log)}
    async with wrapped(journal, client=BOOLEANS, **agent) as client:
        session = await client.talk({"say": "a"})
        params = {**set_option(session, "brave", True), "type": "boolean"}
        result = await client.call("session/set_config_option", params)
        assert result["configOptions"] == [{**BRAVE, "currentValue": True}]
        assert received(log, "session/set_config_option")[0]["params"] == params
        os.unlink(log)
    async with wrapped(journal, client=BOOLEANS, **agent) as client:
        await client.load(session)
        [again] = received(log, "session/set_config_option")
        assert again["params"]["value"] is True
        assert again["params"]["type"] == "boolean"
