"""`session/new`: checks, params for the agent, and the id that comes back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.editor import DEADLINE, Refused, received, update_line
from tests.served import Guest, wrapped

INVALID_PARAMS = -32602


def new(**params: Any) -> dict[str, Any]:
    return {"cwd": "/", "mcpServers": [], **params}


async def test_a_missing_or_wrong_field_is_named(client: Guest) -> None:
    for params, field in (
        ({"mcpServers": []}, "cwd"),
        *(({"cwd": cwd, "mcpServers": []}, "cwd") for cwd in (7, "work", "./work", "", "~/work")),
        ({"cwd": "/"}, "mcpServers"),
        ({"cwd": "/", "mcpServers": {}}, "mcpServers"),
    ):
        error = await client.refused("session/new", params)
        assert error.code == INVALID_PARAMS
        assert field in error.message
        if params == new(cwd="work"):
            assert error.data["field"] == field


async def test_additional_directories_must_be_absolute_where_advertised(journal: Path) -> None:
    can: dict[str, Any] = {"sessionCapabilities": {"additionalDirectories": {}}}
    async with wrapped(journal, capabilities=can) as client:
        error = await client.refused("session/new", new(additionalDirectories=["/a", "b"]))
        assert error.code == INVALID_PARAMS
        assert "additionalDirectories[1]" in error.message
        session = await client.new("/", additionalDirectories=["/a", "/b"])
        [listed] = await client.sessions()
        assert listed["sessionId"] == session
        assert listed["additionalDirectories"] == ["/a", "/b"]


async def test_additional_directories_that_are_not_advertised_are_refused(client: Guest) -> None:
    error = await client.refused("session/new", new(additionalDirectories=["/a"]))
    assert error.code == INVALID_PARAMS
    assert "additionalDirectories" in error.message
    await client.new("/", additionalDirectories=[])


SERVER = {"name": "files", "command": "/bin/cat", "args": [], "env": []}


async def test_an_mcp_server_that_cannot_be_used_is_refused_by_its_name(
    log: Path, client: Guest
) -> None:
    for server, said in (
        ({**SERVER, "command": "no-such-program-anywhere"}, "command"),
        ({**SERVER, "command": "./cat"}, "command"),
        ({**SERVER, "command": "bin/cat"}, "command"),
        ({**SERVER, "command": ""}, "command"),
        ({**SERVER, "args": "x"}, "args"),
        ({**SERVER, "env": [{"name": "A"}]}, "env"),
        ({"name": "files", "args": [], "env": []}, "command"),
        ({"type": "http", "name": "files", "url": "x", "headers": []}, "url"),
        ({"type": "sse", "name": "files", "headers": []}, "url"),
    ):
        error = await client.refused("session/new", new(mcpServers=[SERVER, server]))
        assert error.code == INVALID_PARAMS
        assert "'files'" in error.message
        assert "mcpServers[1]" in error.message
        assert said in error.message
        assert "\n" not in error.message
    assert received(log, "session/new") == []


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_http_and_sse_servers_are_relayed_to_an_agent_that_takes_them(
    journal: Path, log: Path, transport: str
) -> None:
    server = {
        "type": transport,
        "name": "web",
        "url": "https://example.test/mcp",
        "headers": [{"name": "Authorization", "value": "Bearer t", "_meta": {"x": 1}}],
        "_vendor": True,
    }
    can = {"mcpCapabilities": {transport: True}}
    async with wrapped(journal, log=str(log), capabilities=can) as client:
        await client.new("/", mcpServers=[server])
        assert received(log, "session/new")[0]["params"]["mcpServers"] == [server]
        broken = {**server, "headers": "none"}
        error = await client.refused("session/new", new(mcpServers=[broken]))
        assert "'web'" in error.message
        assert "headers" in error.message


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_the_agent_cannot_reach_is_put_behind_a_bridge_on_stdio(
    journal: Path, log: Path, transport: str
) -> None:
    headers = [{"name": "Authorization", "value": "Bearer t"}]
    server = {"type": transport, "name": "web", "url": "https://x.test/mcp", "headers": headers}
    async with wrapped(journal, log=str(log)) as client:
        await client.new("/", mcpServers=[server])
        (entry,) = received(log, "session/new")[0]["params"]["mcpServers"]
        assert entry["name"] == "web"
        assert "type" not in entry
        assert entry["args"][-1] == "mcp-bridge"
        assert "Bearer t" not in json.dumps([entry["command"], entry["args"]])
        assert "Bearer t" in json.dumps(entry["env"])


async def test_a_command_on_path_is_handed_on_absolute_and_nothing_else_is_changed(
    journal: Path, log: Path
) -> None:
    first = {"name": "a", "command": "cat", "args": ["-"], "env": [], "timeout": 5, "_meta": {}}
    second = {"name": "b", "command": "/not/there/yet", "args": [], "env": []}
    async with wrapped(journal, log=str(log)) as client:
        sent = new(mcpServers=[first, second], _meta={"trace": 1}, vendor={"x": [None]})
        await client.call("session/new", sent)
        found = shutil.which("cat")
        assert found is not None
        expected = {**sent, "mcpServers": [{**first, "command": found}, second]}
        assert received(log, "session/new")[0]["params"] == expected


async def test_a_stdio_server_without_env_is_taken_and_the_agent_gets_an_empty_one(
    journal: Path, log: Path
) -> None:
    bare = {"name": "a", "command": "/bin/cat", "args": [], "_meta": {"x": 1}}
    marked = {"type": "stdio", "name": "b", "command": "/bin/cat", "args": ["-"]}
    async with wrapped(journal, log=str(log)) as client:
        await client.new("/", mcpServers=[bare, marked])
        got = received(log, "session/new")[0]["params"]["mcpServers"]
        assert got == [{**bare, "env": []}, {**marked, "env": []}]


async def test_a_server_reached_in_a_way_newer_than_this_release_is_relayed(
    journal: Path, log: Path
) -> None:
    server = {"type": "acp", "name": "mine", "id": "x-1"}
    async with wrapped(journal, log=str(log)) as client:
        await client.new("/", mcpServers=[server])
        assert received(log, "session/new")[0]["params"]["mcpServers"] == [server]


async def test_the_id_is_the_agents_own_if_it_is_free(journal: Path) -> None:
    async with wrapped(journal, ids="counter") as client:
        assert await client.new() == "0"
        assert await client.new() == "1"


async def test_ids_are_unique_when_the_agent_counts_from_0_in_every_process(journal: Path) -> None:
    seen: list[str] = []
    for number in range(3):
        async with wrapped(journal, ids="counter") as client:
            session = await client.talk({"say": f"in process {number}"})
            seen.append(session)
    assert len(set(seen)) == 3
    async with wrapped(journal, ids="counter") as client:
        for number, session in enumerate(seen):
            await client.load(session)
            assert client.text(session_id=session) == f"in process {number}"
            await client.prompt(session, {"say": " and on"})
            assert client.text(session_id=session).startswith(f"in process {number}")
            assert client.text(session_id=session).endswith(" and on")


async def test_an_updates_session_is_the_clients_when_ids_differ(journal: Path, log: Path) -> None:
    async with wrapped(journal, ids="counter") as client:
        await client.prompt(await client.new(), "taken")
    async with wrapped(journal, ids="counter", log=str(log)) as client:
        session = await client.new()
        assert session != "0"
        await client.prompt(session, {"say": "mine"})
        assert client.text(session_id=session) == "mine"
        assert received(log, "session/prompt")[0]["params"]["sessionId"] == "0"
        told = [message["params"] for message in client.messages if "method" in message]
        assert {params["sessionId"] for params in told} == {session}


async def test_an_update_before_the_answer_to_new_is_not_taken_for_a_session_of_the_last_process(
    journal: Path,
) -> None:
    commands = [{"name": "early", "description": ""}]
    early = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    line = update_line(early, "0")
    async with wrapped(journal, ids="counter", before={"session/new": [line]}) as client:
        old = await client.new()
        await client.until(lambda: client.updates(old) == [early])
        with pytest.raises(Refused):
            await client.prompt(old, {"exit": 3})
        new = await client.new()  # which the agent, started again, calls "0" as well
        assert old != new
        await client.until(lambda: client.updates(new) == [early])
        assert client.updates(old).count(early) == 1
        await client.prompt(old, {"say": "old"})
        await client.prompt(new, {"say": "new"})
        assert client.text(session_id=new) == "new"
        assert client.text(session_id=old).endswith("old")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_updates_around_the_agents_answer_to_new_follow_ours(
    journal: Path, when: str
) -> None:
    update = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    info = {"sessionUpdate": "session_info_update", "title": "Early"}
    lines = [update_line(update, "0"), update_line(info, "0")]
    agent: dict[str, Any] = {"ids": "counter", when: {"session/new": lines}}
    async with wrapped(journal, **agent) as client:
        assert await client.new() == "0"
        answer = client.place_of_answer(client.last_id)
        await client.until(lambda: len(client.updates("0")) == 2)
        places = [n for n, message in enumerate(client.messages) if "method" in message]
        assert min(places) > answer


async def test_notifications_and_requests_around_the_answer_to_new_follow_ours(
    journal: Path,
) -> None:
    told = '{"jsonrpc":"2.0","method":"_vendor/ready","params":{"sessionId":"$ID","n":1}}'
    asked = '{"jsonrpc":"2.0","id":5,"method":"_vendor/ask","params":{"sessionId":"$ID"}}'
    async with wrapped(journal, after={"session/new": [told, asked]}) as client:
        client.answers["_vendor/ask"] = lambda params: {"yes": True}
        session = await client.new()
        answer = client.place_of_answer(client.last_id)
        await client.until(lambda: len(client.messages) == answer + 3)
        told_message, asked_message = client.messages[answer + 1 :]
        assert told_message["params"] == {"sessionId": session, "n": 1}
        assert asked_message["params"] == {"sessionId": session}


async def test_modes_options_and_unknown_fields_of_the_answer_reach_the_client(
    journal: Path,
) -> None:
    opened = {
        "modes": {"currentModeId": "a", "availableModes": [{"id": "a", "name": "A", "_x": 1}]},
        "configOptions": [],
        "models": {"currentModelId": "m", "availableModels": []},
        "_meta": {"vendor": 1},
    }
    async with wrapped(journal, opened=opened) as client:
        result = await client.call("session/new", new())
        assert {name: result[name] for name in opened} == opened


async def test_a_new_session_without_an_id_is_an_error_and_leaves_nothing(journal: Path) -> None:
    replies = [{"oops": 1}, None, *({"sessionId": it} for it in ("", "a\0b", "x" * 1001))]
    async with wrapped(journal, replies={"session/new": replies}) as client:
        for _ in replies:
            error = await client.refused("session/new", new())
            assert error.code == -32603
        assert await client.sessions() == []


async def test_the_bridge_that_the_agent_is_handed_reaches_the_server(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, log=str(log)) as client:
        server = {"type": "http", "name": "w", "url": "http://127.0.0.1:9/mcp", "headers": []}
        await client.new("/", mcpServers=[server])
        (entry,) = received(log, "session/new")[0]["params"]["mcpServers"]
    env = os.environ | {pair["name"]: pair["value"] for pair in entry["env"]}
    bridge = await asyncio.create_subprocess_exec(
        entry["command"],
        *entry["args"],
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    try:
        bridge.stdin.write(json.dumps(request).encode() + b"\n")
        out = await asyncio.wait_for(bridge.stdout.readline(), DEADLINE)
        bridge.stdin.close()
        await asyncio.wait_for(bridge.communicate(), DEADLINE)
    finally:
        if bridge.returncode is None:
            bridge.kill()
    # Nobody listens there: that it says so is all that can be seen of its having tried.
    assert "127.0.0.1:9" in json.loads(out)["error"]["message"]
    assert bridge.returncode == 0
