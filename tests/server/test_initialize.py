"""`initialize`, and messages before it. Source: spec v1, initialization."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.editor import introduced, received, scripted_agent
from tests.hub.shared import Shared
from tests.owners import lone_command
from tests.served import Guest, guest

INVALID_REQUEST = -32600


@pytest.fixture
async def stranger(journal: Path, log: Path) -> AsyncIterator[Guest]:
    """A client that has not introduced itself."""
    async with guest(scripted_agent(log=str(log)), journal) as found:
        yield found


async def test_anything_before_initialize_is_refused_and_told_why(stranger: Guest) -> None:
    for method, params in (
        ("session/new", {"cwd": "/", "mcpServers": []}),
        ("session/list", {}),
        ("session/prompt", {"sessionId": "x", "prompt": []}),
        ("authenticate", {"methodId": "x"}),
        ("_vendor/thing", {}),
    ):
        error = await stranger.refused(method, params)
        assert error.code == INVALID_REQUEST
        assert "initialize" in error.message
    await stranger.initialize()
    await stranger.new()


async def test_a_notification_before_initialize_is_ignored_and_not_answered(
    log: Path, stranger: Guest
) -> None:
    stranger.tell("session/cancel", {"sessionId": "x"})
    stranger.tell("_vendor/thing", {})
    await stranger.initialize()
    assert len(stranger.messages) == 1
    assert [message["method"] for message in received(log)] == ["initialize"]


@pytest.mark.parametrize("version", [0, 2, 65535])
async def test_version_one_is_answered_whatever_version_is_asked_for_and_asked_of_the_agent(
    log: Path, version: int, stranger: Guest
) -> None:
    answer = await stranger.call("initialize", {"protocolVersion": version})
    assert answer["protocolVersion"] == 1
    assert received(log, "initialize")[0]["params"]["protocolVersion"] == 1


@pytest.mark.parametrize("asked", ["1", "2"])
async def test_a_version_in_quotes_is_taken_as_its_number(
    log: Path, asked: str, stranger: Guest
) -> None:
    for words in ("one", "1.0", "", "99999"):
        error = await stranger.refused("initialize", {"protocolVersion": words})
        assert (error.code, error.data["field"]) == (-32602, "$.protocolVersion")
    answer = await stranger.call("initialize", {"protocolVersion": asked})
    assert answer["protocolVersion"] == 1
    assert received(log, "initialize")[0]["params"]["protocolVersion"] == 1


async def test_initialize_without_a_version_is_refused_by_name(stranger: Guest) -> None:
    error = await stranger.refused("initialize", {})
    assert error.code == -32602
    assert "protocolVersion" in error.message
    await stranger.initialize()


async def test_a_second_initialize_is_refused_and_the_agent_goes_on(client: Guest) -> None:
    session = await client.new()
    error = await client.refused("initialize", {"protocolVersion": 1})
    assert error.code == INVALID_REQUEST
    await client.prompt(session, {"say": "still here"})


VERSION_2: dict[str, Any] = {
    "protocolVersion": 2,
    "info": {"name": "Two", "version": "2.0"},
    "capabilities": {
        "elicitation": {"form": {}},
        "auth": {"terminal": {}},
        "gizmo": {},
        "_meta": {"vendor": 1},
    },
}


async def test_what_a_client_of_version_two_says_of_itself_reaches_the_agent_as_version_one_has_it(
    log: Path, stranger: Guest
) -> None:
    answer = await stranger.call("initialize", VERSION_2)
    assert answer["protocolVersion"] == 1
    [told] = received(log, "initialize")
    assert told["params"] == {
        "protocolVersion": 1,
        "clientInfo": {"name": "Two", "version": "2.0"},
        "clientCapabilities": {
            "elicitation": {"form": {}},
            "auth": {"terminal": True},
            "_meta": {"vendor": 1},
        },
    }
    await stranger.new()


async def test_what_is_said_for_version_one_beside_it_counts(journal: Path, log: Path) -> None:
    both = {**VERSION_2, "clientInfo": {"name": "One", "version": "1"}, "clientCapabilities": {}}
    async with guest(scripted_agent(log=str(log)), journal) as client:
        await client.call("initialize", both)
        [told] = received(log, "initialize")
        assert told["params"] == {
            "protocolVersion": 1,
            "clientInfo": {"name": "One", "version": "1"},
            "clientCapabilities": {},
        }


async def test_a_client_that_does_not_go_on_in_version_one_may_introduce_itself_anew_in_it(
    log: Path, stranger: Guest
) -> None:
    await stranger.call("initialize", VERSION_2)
    can = {"fs": {"readTextFile": True}}
    await stranger.call("initialize", {"protocolVersion": 1, "clientCapabilities": can})
    told = received(log, "initialize")[-1]["params"]
    assert told == {"protocolVersion": 1, "clientCapabilities": can}
    assert (await stranger.refused("initialize", {"protocolVersion": 1})).code == INVALID_REQUEST
    session = await stranger.new()
    await stranger.prompt(session, {"say": "here"})
    assert stranger.text() == "here"


async def test_a_client_that_went_on_in_version_one_is_introduced(stranger: Guest) -> None:
    await stranger.call("initialize", VERSION_2)
    await stranger.new()
    assert (await stranger.refused("initialize", {"protocolVersion": 1})).code == INVALID_REQUEST


async def test_a_client_that_introduces_itself_anew_does_not_start_the_agent_of_others_anew(
    house: Shared,
) -> None:
    _, session = await house.opened()
    other = house.stranger()
    await other.call("initialize", VERSION_2)
    await other.call("initialize", {"protocolVersion": 1})
    await other.load(session)
    await house.told(other, session, "still here")
    assert house.agent.generation == 1


async def test_auth_methods_prompt_capabilities_and_agent_info_are_as_the_agent_says(
    journal: Path,
) -> None:
    methods = [{"id": "key", "name": "API key", "vendor": {"x": [1, None]}}]
    info = {"name": "scripted", "version": "1", "title": "The Agent", "build": 7}
    can = {
        "promptCapabilities": {"image": True, "_meta": {"max": 3}, "video": True},
        "mcpCapabilities": {"http": True, "sse": True, "acp": True},
        "auth": {"logout": {}},
        "_meta": {"vendor": {"deep": [1.50, "\u00e9"]}},
    }
    agent = scripted_agent(authMethods=methods, info=info, capabilities=can)
    async with guest(agent, journal) as client:
        answer = await client.initialize()
        assert answer["authMethods"] == methods
        assert answer["agentInfo"] == info
        for name, value in can.items():
            assert answer["agentCapabilities"][name] == value


async def test_mcp_over_http_and_sse_is_advertised_whatever_the_agent_takes(
    journal: Path,
) -> None:
    can = {"mcpCapabilities": {"sse": False, "acp": True}}
    async with guest(scripted_agent(capabilities=can), journal) as client:
        answer = await client.initialize()
        told = answer["agentCapabilities"]["mcpCapabilities"]
        assert told == {"http": True, "sse": True, "acp": True}


async def test_the_session_capabilities_are_the_agents_and_those_of_acphold(
    journal: Path,
) -> None:
    sessions = {
        "list": {"_meta": {"mine": True}},
        "resume": None,
        "fork": {},
        "additionalDirectories": {},
        "title": {"_meta": {"own": 1}},
        "archive": None,
        "_vendor": 1,
    }
    agent = scripted_agent(capabilities={"sessionCapabilities": sessions, "loadSession": False})
    async with guest(agent, journal) as client:
        can = (await client.initialize())["agentCapabilities"]
        assert can["loadSession"] is True
        assert can["sessionCapabilities"] == {
            "list": {"_meta": {"mine": True}},
            "resume": {},
            "fork": {},
            "additionalDirectories": {},
            "title": {"_meta": {"own": 1}},
            "_vendor": 1,
            "close": {},
            "delete": {},
        }


async def test_an_agent_without_any_capabilities_gets_those_of_acphold(stranger: Guest) -> None:
    can = (await stranger.initialize())["agentCapabilities"]
    assert can["loadSession"] is True
    assert set(can["sessionCapabilities"]) == {"list", "resume", "close", "delete"}


async def test_the_agent_is_told_of_the_client_as_it_introduced_itself(
    journal: Path, log: Path
) -> None:
    params = {
        "protocolVersion": 1,
        "clientCapabilities": {"fs": {"readTextFile": True, "_meta": {"a": 1}}, "_vendor": [1]},
        "clientInfo": {"name": "editor", "version": "2", "theme": "dark"},
        "_meta": {"trace": "x"},
    }
    async with guest(scripted_agent(log=str(log)), journal) as client:
        await client.call("initialize", params)
        assert received(log, "initialize")[0]["params"] == params


async def test_stdout_carries_one_message_a_line_and_nothing_else(journal: Path) -> None:
    agent = scripted_agent(initialize="garbage")
    async with introduced(lone_command(agent), journal=journal) as client:
        await client.talk({"line": "a stray print"}, {"say": "ok"})
        assert all(message.get("jsonrpc") == "2.0" for message in client.messages)
        assert client.text() == "ok"


async def test_an_id_comes_back_equal_in_type_and_value(client: Guest) -> None:
    ids = ["1", "text", 10**15, -4, 0, None]
    for id_ in ids:
        client.send({"id": id_, "method": "session/list", "params": {}})
    await client.until(lambda: len(client.messages) == 1 + len(ids))
    told = [message["id"] for message in client.messages[1:]]
    assert sorted(map(repr, told)) == sorted(map(repr, ids))  # each is answered when it can be


async def test_an_agent_that_is_an_acphold_asks_a_client_that_came_as_a_watcher_through_us(
    journal: Path, log: Path
) -> None:
    """`acphold/watches` is meant for us: the agent asks us, and we know which client to ask."""
    watching = {"clientCapabilities": {"_meta": {"acphold/watches": True, "vendor": 1}}}
    async with guest(scripted_agent(log=str(log)), journal) as client:
        await client.call("initialize", {"protocolVersion": 1, **watching})
        [told] = received(log, "initialize")
        assert told["params"]["clientCapabilities"] == {"_meta": {"vendor": 1}}
