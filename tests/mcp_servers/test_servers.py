"""The MCP servers that a client names, and the errors for wrong ones."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import given, strategies as st

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import McpCapabilities, McpServerHttp, McpServerSse, McpServerStdio
from acphold.mcp_servers.servers import check_server, parse_servers

ALL = McpCapabilities(http=True, sse=True)
SECRET = "sk-c0ffee"

STDIO = {"name": "files", "command": "/bin/sh", "args": ["-c"], "env": []}
HTTP = {"type": "http", "name": "docs", "url": "https://mcp.example/v1?key=k", "headers": []}


def named(*servers: object, can: McpCapabilities = ALL) -> tuple[object, ...]:
    return parse_servers(json.dumps(servers).encode(), can, os.environ["PATH"])


def refusal(server: dict[str, object], can: McpCapabilities = ALL) -> tuple[str | None, str]:
    """The refused field, and the message; both are the same whoever is going to connect."""
    with pytest.raises(InvalidParamsError) as ours:
        named(server, can=can)
    with pytest.raises(InvalidParamsError) as theirs:
        check_server(json.dumps(server).encode(), 0, can, os.environ["PATH"])
    assert (ours.value.field, str(ours.value)) == (theirs.value.field, str(theirs.value))
    return ours.value.field, str(ours.value)


def test_each_kind_of_server_gets_its_type() -> None:
    sse = {**HTTP, "type": "sse", "name": "old"}
    kinds = [type(server) for server in named(STDIO, HTTP, sse)]
    assert kinds == [McpServerStdio, McpServerHttp, McpServerSse]


@pytest.mark.parametrize("given", [b"", b"null", b"[]"])
def test_a_session_may_name_no_servers(given: bytes) -> None:
    assert parse_servers(given, ALL, "") == ()


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ({**STDIO, "name": ""}, "name"),
        ({**STDIO, "name": 5}, "name"),
        ({**STDIO, "command": ""}, "command"),
        ({**STDIO, "command": "./server"}, "command"),
        ({**STDIO, "command": "no-such-program"}, "command"),
        ({**STDIO, "command": "/bin/e\0cho"}, "command"),
        ({"name": "files", "command": "/bin/sh"}, "args"),
        ({**STDIO, "args": ["ok", 5]}, "args[1]"),
        ({**STDIO, "args": ["a\0b"]}, "args[0]"),
        ({**STDIO, "env": [{"name": "A=B", "value": SECRET}]}, "env[0].name"),
        ({**STDIO, "env": [{"name": "A", "value": f"{SECRET}\0"}]}, "env[0].value"),
        ({**STDIO, "env": [{"name": "A", "value": [SECRET]}]}, "env[0].value"),
        ({**STDIO, "env": {"A": SECRET}}, "env"),
        ({**HTTP, "url": ""}, "url"),
        ({**HTTP, "url": f"ftp://h/{SECRET}"}, "url"),
        ({**HTTP, "url": f"http://?key={SECRET}"}, "url"),
        ({**HTTP, "url": f"http://h:99999/{SECRET}"}, "url"),
        ({**HTTP, "url": f"http://[::1/{SECRET}"}, "url"),
        ({**HTTP, "headers": [{"name": "A B", "value": SECRET}]}, "headers[0].name"),
        ({**HTTP, "headers": [{"name": "A", "value": f"{SECRET}\r\nX: y"}]}, "headers[0].value"),
        ({**HTTP, "headers": {"Authorization": SECRET}}, "headers"),
    ],
)
def test_a_mistake_is_reported_with_the_server_and_the_field(
    server: dict[str, object], field: str
) -> None:
    where, message = refusal(server)
    assert where == f"mcpServers[0].{field}"
    assert message.startswith(f"mcpServers[0].{field}: MCP server ")
    assert repr(server["name"]) in message or field == "name"
    assert SECRET not in message


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_transport_that_was_not_advertised_is_refused(kind: str) -> None:
    field, message = refusal({**HTTP, "type": kind}, McpCapabilities())
    assert field == "mcpServers[0].type"
    assert "'docs'" in message


def test_a_command_is_found_on_path() -> None:
    (server,) = named({**STDIO, "command": "sh"})
    assert isinstance(server, McpServerStdio)
    assert server.command == shutil.which("sh")


def test_a_program_without_env_is_connected_with_none() -> None:
    (server,) = named({"name": "files", "command": "/bin/cat", "args": []})
    assert isinstance(server, McpServerStdio)
    assert server.env == ()


def test_a_command_is_found_on_the_path_the_server_gets() -> None:
    env = [{"name": "PATH", "value": "/nowhere"}]
    assert refusal({**STDIO, "command": "sh", "env": env})[0] == "mcpServers[0].command"


def test_two_servers_of_one_name_are_refused_where_we_connect() -> None:
    with pytest.raises(InvalidParamsError, match=r"mcpServers\[1\]\.name: MCP server 'files'"):
        named(STDIO, {**HTTP, "name": "files"})


def test_a_way_that_is_newer_than_this_release_is_for_other_agents_only() -> None:
    newer = {"type": "newer", "name": "x", "serverId": "1"}
    with pytest.raises(InvalidParamsError, match=r"mcpServers\[0\]\.type: MCP server 'x'.* newer"):
        named(newer)
    raw = json.dumps(newer).encode()
    assert check_server(raw, 0, ALL, os.environ["PATH"]) == raw


@given(st.dictionaries(st.text("xyz", min_size=1), st.integers(), max_size=3))
def test_what_another_agent_is_handed_keeps_its_bytes(extra: dict[str, int]) -> None:
    raw = json.dumps({**STDIO, **extra}, indent=1).encode()
    assert check_server(raw, 0, ALL, os.environ["PATH"]) == raw


def test_only_the_command_of_what_another_agent_is_handed_is_made_absolute() -> None:
    raw = json.dumps({**STDIO, "command": "sh", "later": {"a": 1}}).encode()
    assert json.loads(check_server(raw, 0, ALL, os.environ["PATH"])) == {
        **STDIO,
        "command": shutil.which("sh"),
        "later": {"a": 1},
    }
