"""The bridge: an agent that knows stdio only gets a server that is reached over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from acp_wire.errors import InvalidParamsError
from acp_wire.rpc.framing import LineBuffer
from acp_wire.schema import (
    HttpHeader,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    decode,
)
from acp_wire.transports.streams import memory_pair
from acphold.mcp_servers.bridge import bridge_server, server_from_env
from acphold.mcp_servers.bridge_traffic import bridge
from acphold.mcp_servers.connections import McpConnection
from acphold.mcp_servers.offers import Progress
from tests.mcp_servers.conftest import BRIDGE, SECRET, Connect, Remote, bridged
from tests.mcp_servers.http_faults import FaultyHttp
from tests.watched_processes import until

pytestmark = pytest.mark.slow


@pytest.fixture(params=["http", "sse"])
def everything_bridged(
    request: pytest.FixtureRequest, everything: dict[str, Remote]
) -> McpServerStdio:
    return bridged(everything[request.param])


async def test_everything_passes_the_bridge(
    everything_bridged: McpServerStdio, connect: Connect
) -> None:
    heard: list[float] = []

    async def report(progress: Progress) -> None:
        heard.append(progress.done)

    connection: McpConnection = connect(everything_bridged, roots=("/srv/x",))
    assert (await connection.call("echo", {"message": "hi"})).text == "Echo: hi"
    arguments = {"duration": 0.2, "steps": 2}
    await connection.call("trigger-long-running-operation", arguments, on_progress=report)
    assert heard == [1, 2]
    assert "file:///srv/x" in (await connection.call("get-roots-list")).text


async def test_the_headers_travel_and_stand_in_no_arguments(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    headers = (HttpHeader(name="Authorization", value=f"Bearer {SECRET}"),)
    server = McpServerHttp(name="far", url=f"{faulty_url.url('ok')}?key={SECRET}", headers=headers)
    connection = connect(bridged(server))
    assert (await connection.call("t")).text == "called"
    assert not [line for line in command_lines() if SECRET in line]
    assert any(BRIDGE in line for line in command_lines())
    for _, _, seen in faulty_url.seen:
        assert seen["authorization"] == f"Bearer {SECRET}"
    methods = [(method, seen.get("mcp-protocol-version")) for method, _, seen in faulty_url.seen]
    assert methods[0] == ("POST", None)
    assert {version for _, version in methods[1:]} == {"2025-11-25"}


def command_lines() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


async def test_a_refusal_reaches_the_agent_in_words(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    headers = (HttpHeader(name="Authorization", value=f"Bearer {SECRET}"),)
    connection = connect(
        bridged(McpServerHttp(name="far", url=faulty_url.url("401"), headers=headers))
    )
    assert not await connection.first_attempt()
    assert "it answered 401 Unauthorized (WWW-Authenticate" in str(connection.error)
    assert SECRET not in str(connection.error)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("sse-end", "it closed its event stream"), ("sse-404", "it answered 404 Somehow")],
)
async def test_a_lost_server_is_reported_to_whoever_waits_and_ends_the_bridge(
    faulty_url: FaultyHttp, fault: str, words: str
) -> None:
    server = McpServerSse(name="far", url=faulty_url.url(fault), headers=())
    env = {variable.name: variable.value for variable in bridged(server).env}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        BRIDGE,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":7,"method":"ping"}\nnoise\n')
    async with asyncio.timeout(40):
        answers = [msgspec.json.decode(await process.stdout.readline()) for _ in range(2)]
        assert await process.wait() == 1
    by_id = {answer["id"]: answer["error"] for answer in answers}
    assert by_id[None]["code"] == -32700
    assert words in by_id[7]["message"]


async def test_what_cannot_be_sent_on_is_refused_by_its_id_and_ends_nothing(
    faulty_url: FaultyHttp,
) -> None:
    server = McpServerHttp(name="far", url=faulty_url.url("ok"), headers=())
    client, agent = memory_pair()
    bridging = asyncio.create_task(bridge(server, agent))
    deep = (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"a":' + b"[" * 300 + b"]" * 300
    )
    number = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":5}'
    good = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"a":NaN}}'
    client.send(b"\n".join([deep % 1 + b"}}", number % 2, good % 3, b""]))
    answers: dict[int, dict[str, object]] = {}
    buffer = LineBuffer(1_000_000)
    async with asyncio.timeout(40):
        while len(answers) < 3:
            for line in buffer.feed(await client.receive()):
                assert isinstance(line, bytes)
                answers |= {msgspec.json.decode(line)["id"]: msgspec.json.decode(line)}
        await client.aclose()
        assert await bridging == 0
    assert "nested deeper than 199 levels" in str(answers[1]["error"])
    assert "not a JSON-RPC message" in str(answers[2]["error"])
    assert "tools" in str(answers[3]["result"])


async def test_a_server_that_has_forgotten_the_session_gets_a_new_bridge(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    server = McpServerHttp(name="far", url=faulty_url.url("forgets"), headers=())
    connection = connect(bridged(server))
    assert (await connection.call("t")).text == "called"
    assert (faulty_url.calls, len(faulty_url.sessions)) == (2, 2)


async def test_the_end_of_the_agent_ends_the_bridge_and_the_session(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    connection = connect(bridged(McpServerHttp(name="far", url=faulty_url.url("ok"), headers=())))
    await connection.ready()
    await connection.aclose()
    await until(lambda: faulty_url.seen[-1][0] == "DELETE")


@pytest.mark.parametrize(
    ("env", "field"),
    [
        ({}, "ACPHOLD_MCP_URL"),
        ({"ACPHOLD_MCP_URL": "u", "ACPHOLD_MCP_TRANSPORT": "ftp"}, "ACPHOLD_MCP_TRANSPORT"),
        ({"ACPHOLD_MCP_URL": "u", "ACPHOLD_MCP_HEADERS": SECRET}, "ACPHOLD_MCP_HEADERS"),
    ],
)
def test_an_environment_that_names_no_server_is_reported(env: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidParamsError, match=field) as caught:
        server_from_env(env)
    assert caught.value.field == field
    assert SECRET not in str(caught.value)


def test_headers_may_be_written_as_an_object_too() -> None:
    env = {"ACPHOLD_MCP_URL": "http://h", "ACPHOLD_MCP_HEADERS": '{"A": "b"}'}
    assert server_from_env(env).headers == (HttpHeader(name="A", value="b"),)


@pytest.mark.parametrize("kind", [McpServerHttp, McpServerSse])
def test_the_entry_says_the_same_as_the_server(kind: type[McpServerHttp]) -> None:
    headers = (HttpHeader(name="A", value="1"), HttpHeader(name="A", value="2"))
    server = kind(name="bridged", url="https://h/mcp", headers=headers)
    entry = decode(McpServerStdio, bridge_server(server, ("bridge", "it"))).value
    assert (entry.command, *entry.args) == ("bridge", "it")
    assert server_from_env({variable.name: variable.value for variable in entry.env}) == server
