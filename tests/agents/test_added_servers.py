"""The MCP server that each session gets besides those of the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acp_wire.schema import McpServerStdio
from acp_wire.surroundings import Surroundings
from acphold.errors import RemoteError
from acphold.live.agents.interface import ask
from acphold.live.agents.wrapped import AddedServers, ProcessAgent, ProcessOptions
from tests.agents.test_wrapped import Heard
from tests.editor import scripted_agent


def server(cwd: str) -> McpServerStdio:
    """The one that is added."""
    return McpServerStdio(name="acphold", command="/bin/python", args=("mcp", cwd), env=())


def named(params: bytes) -> list[str]:
    """The servers in the params of a request."""
    return [given["name"] for given in json.loads(params)["mcpServers"]]


def params(*servers: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"cwd": "/w", "mcpServers": list(servers), **more}).encode()


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
def test_a_session_gets_it_behind_those_of_the_client(method: str) -> None:
    sent = AddedServers(server).add_to(method, params({"name": "own"}, _meta={"k": 1}))
    assert named(sent) == ["own", "acphold"]
    assert json.loads(sent)["mcpServers"][1]["args"] == ["mcp", "/w"]
    assert json.loads(sent)["_meta"] == {"k": 1}


@pytest.mark.parametrize("given", [b'{"cwd":"/w"}', b'{"cwd":"/w","mcpServers":null}'])
def test_a_client_that_names_no_servers_gets_it_too(given: bytes) -> None:
    assert named(AddedServers(server).add_to("session/new", given)) == ["acphold"]


@pytest.mark.parametrize(
    "there",
    [
        {"name": "acphold", "command": "/other"},
        {"name": "recall", "command": "/usr/bin/acphold", "args": ["mcp"]},
        {"name": "recall", "command": "/py", "args": ["-P", "-m", "acphold", "mcp", "--cwd", "/"]},
    ],
)
def test_a_session_that_has_it_already_does_not_get_it_twice(there: dict[str, Any]) -> None:
    given = params(there)
    assert AddedServers(server).add_to("session/new", given) == given


@pytest.mark.parametrize("there", [{"name": 7}, {"name": "x", "command": "acphold"}, {"args": 1}])
def test_a_session_with_another_server_gets_it_too(there: dict[str, Any]) -> None:
    assert len(named_or_not(AddedServers(server).add_to("session/new", params(there)))) == 2


def named_or_not(given: bytes) -> list[Any]:
    return list(json.loads(given)["mcpServers"])


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("session/prompt", b'{"mcpServers":[]}'),
        ("session/new", b"[]"),
        ("session/new", b'{"mcpServers":{}}'),
        ("session/new", b'{"cwd":7,"mcpServers":[]}'),
    ],
)
def test_a_request_that_opens_no_session_is_left_as_it_is(method: str, given: bytes) -> None:
    assert AddedServers(server).add_to(method, given) == given
    assert AddedServers().add_to("session/new", b'{"cwd":"/"}') == b'{"cwd":"/"}'


async def test_an_agent_that_refuses_it_is_asked_without_it_and_told_nothing_more(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    refusal = {"error": {"code": -32602, "message": "no MCP here"}}
    replies = {"session/new": [refusal, {"sessionId": "s1"}, {"sessionId": "s2"}]}
    command = scripted_agent(log=str(log), replies=replies)
    agent = ProcessAgent(command, Heard(), Surroundings.here(), ProcessOptions(added=server))
    try:
        await agent.initialize(b'{"protocolVersion":1}')
        for session in ("s1", "s2"):
            result = await ask(agent, "session/new", params({"name": "own"}))
            assert json.loads(result)["sessionId"] == session
    finally:
        await agent.aclose()
    received = [json.loads(line) for line in log.read_text().splitlines()]
    opened = [message["params"] for message in received if message["method"] == "session/new"]
    assert [named(json.dumps(sent).encode()) for sent in opened] == [
        ["own", "acphold"],
        ["own"],
        ["own"],
    ]


async def test_what_an_agent_refuses_anyway_is_refused() -> None:
    refusal = {"error": {"code": -32602, "message": "no such folder"}}
    agent = ProcessAgent(
        scripted_agent(replies={"session/new": [refusal]}),
        Heard(),
        Surroundings.here(),
        ProcessOptions(added=server),
    )
    try:
        await agent.initialize(b'{"protocolVersion":1}')
        with pytest.raises(RemoteError, match="no such folder"):
            await ask(agent, "session/new", params())
    finally:
        await agent.aclose()
