"""MCP over ACP: a connection to a server that the client provides itself."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from acp_wire.errors import (
    ConnectionLostError,
    InvalidParamsError,
    MethodNotFoundError,
    RemoteError,
)
from acp_wire.schema import McpCapabilities
from acphold.mcp_servers.connections import Failed, Lost, McpConnection, Ready
from acphold.mcp_servers.errors import McpAnswerError, McpConnectError, McpLostError
from acphold.mcp_servers.offers import Progress
from acphold.mcp_servers.servers import McpServerAcp, parse_servers, server_ids
from acphold.mcp_servers.transports import Channel
from tests.mcp_servers.conftest import Connect, Told
from tests.watched_processes import until

SERVER = McpServerAcp(name="mine", server_id="srv-1")


class Provider:
    """A client that provides a server: `asked` has its calls, `fault` is raised at tools/call."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.fault: Exception | None = None
        self.answer: object = None
        self.cancelled = 0
        self.channel = Channel(self.ask)

    async def ask(self, method: str, params: bytes) -> bytes:
        assert method == "mcp/message"
        asked = msgspec.json.decode(params)
        self.asked.append(asked)
        return msgspec.json.encode(await self._answer(asked))

    def tell(self, asked: dict[str, Any], method: str, **params: object) -> bool:
        """Say something for a request; whether it was taken."""
        said = {
            "serverId": asked["serverId"],
            "requestId": asked["requestId"],
            "method": method,
            "params": params,
        }
        return self.channel.hear(msgspec.json.encode(said))

    async def _answer(self, asked: dict[str, Any]) -> object:
        match asked["method"]:
            case "initialize":
                return {"result": introduced(asked)}
            case "tools/list":
                return {"result": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}}
        return await self._call(asked)

    async def _call(self, asked: dict[str, Any]) -> object:
        if self.fault is not None:
            raise self.fault
        if self.answer is not None:
            return self.answer
        tool = asked["params"]["name"]
        if tool == "hang":
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        if tool == "bad":
            return {"error": {"code": -32602, "message": "no such tool"}}
        token = asked["params"].get("_meta", {}).get("progressToken")
        for done in range(1, 4) if token is not None else ():
            self.tell(asked, "notifications/progress", progressToken=token, progress=done, total=3)
        return {"result": {"content": [{"type": "text", "text": tool}]}}


def introduced(asked: dict[str, Any]) -> dict[str, object]:
    """The result of `initialize`."""
    return {
        "protocolVersion": asked["params"]["protocolVersion"],
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "mine", "version": "1"},
    }


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def mine(connect: Connect, provider: Provider) -> McpConnection:
    """A connection to its server."""
    return connect(SERVER, channel=provider.channel)


async def test_requests_carry_the_server_and_ids_of_our_own(
    mine: McpConnection, provider: Provider
) -> None:
    assert [tool.name for tool in await mine.tools()] == ["add"]
    assert (await mine.call("add", {"a": 1})).text == "add"
    methods = [asked["method"] for asked in provider.asked]
    assert methods == ["initialize", "tools/list", "tools/call"]  # no notification among them
    assert {asked["serverId"] for asked in provider.asked} == {"srv-1"}
    assert len({asked["requestId"] for asked in provider.asked}) == 3
    assert all(isinstance(asked["requestId"], str) for asked in provider.asked)
    assert provider.asked[2]["params"]["arguments"] == {"a": 1}


async def test_progress_comes_in_order_and_before_the_result(mine: McpConnection) -> None:
    reports: list[Progress] = []

    async def report(progress: Progress) -> None:
        reports.append(progress)

    await mine.call("add", on_progress=report)
    assert reports == [Progress(done, 3, None) for done in (1, 2, 3)]


async def test_a_changed_list_is_reported_while_a_request_is_active(
    connect: Connect, provider: Provider
) -> None:
    told = Told()
    mine = connect(SERVER, channel=provider.channel, listener=told)
    await mine.ready()
    hanging = asyncio.create_task(mine.call("hang"))
    await until(lambda: provider.asked[-1]["method"] == "tools/call")
    assert provider.tell(provider.asked[-1], "notifications/tools/list_changed")
    await until(lambda: told.changes == ["tools"])
    hanging.cancel()


async def test_a_notification_without_an_active_request_is_not_taken(
    mine: McpConnection, provider: Provider
) -> None:
    await mine.call("add")
    assert not provider.tell(provider.asked[-1], "notifications/progress", progress=1)
    for odd in (b"", b"[]", b'{"serverId":1}', b'{"connectionId":"c","method":"x"}'):
        assert not provider.channel.hear(odd)


async def test_an_error_of_the_server_is_a_failed_call_and_nothing_worse(
    mine: McpConnection,
) -> None:
    result = await mine.call("bad")
    assert (result.failed, result.text) == (True, "no such tool")
    assert isinstance(mine.state, Ready)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (MethodNotFoundError("mcp/message"), "its client does not know `mcp/message`"),
        (RemoteError(-32601, "what?"), "its client does not know `mcp/message`"),
        (RemoteError(-32602, "no such server"), "does not pass .* on: no such server"),
        (ConnectionLostError("the client has gone"), "does not pass .* on: the client has gone"),
    ],
)
async def test_an_error_of_the_client_ends_the_connection_until_it_is_used_again(
    mine: McpConnection, provider: Provider, fault: Exception, words: str
) -> None:
    await mine.ready()
    provider.fault = fault
    with pytest.raises(McpLostError, match=f"'mine': .*{words}; `tools/call` was not answered"):
        await mine.call("add")
    assert isinstance(mine.state, Lost)
    provider.fault = None
    assert (await mine.call("add")).text == "add"
    assert [asked["method"] for asked in provider.asked].count("initialize") == 2


async def test_a_client_that_does_not_know_the_method_is_a_failed_connection(
    connect: Connect,
) -> None:
    async def ask(method: str, params: bytes) -> bytes:
        raise MethodNotFoundError(method)

    mine = connect(SERVER, channel=Channel(ask))
    with pytest.raises(McpConnectError, match="'mine': its client does not know `mcp/message`"):
        await mine.tools()
    assert isinstance(mine.state, Failed)


async def test_a_client_that_does_not_answer_is_given_up(
    connect: Connect, provider: Provider
) -> None:
    async def ask(method: str, params: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    mine = connect(SERVER, channel=Channel(ask), deadline=0.2)
    with pytest.raises(McpConnectError, match=r"it did not answer for 0.2 s"):
        await mine.ready()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "neither `result` nor `error`"),
        ({"content": []}, "neither `result` nor `error`"),  # of another draft
        ({"result": None}, "its answer is not MCP"),
        ({"error": {"code": "x"}}, "its answer is not MCP"),
        ([], "its answer is not MCP"),
    ],
)
async def test_an_answer_that_is_not_mcp_fails_only_its_request(
    mine: McpConnection, provider: Provider, answer: object, words: str
) -> None:
    await mine.ready()
    provider.answer = answer
    if answer == []:
        provider.answer = [1]
    with pytest.raises(McpAnswerError, match=words):
        await mine.call("add")
    provider.answer = None
    assert (await mine.call("add")).text == "add"


async def test_params_that_are_not_json_fail_only_their_request(mine: McpConnection) -> None:
    with pytest.raises(McpAnswerError, match="the request cannot be sent: "):
        await mine.call("add", {"text": "\ud800"})
    assert (await mine.call("add")).text == "add"


async def test_result_is_preferred_to_error(mine: McpConnection, provider: Provider) -> None:
    provider.answer = {"error": {"code": 1, "message": "no"}, "result": {"content": []}}
    assert not (await mine.call("add")).failed


async def test_cancelling_a_call_cancels_the_request_and_so_does_closing(
    mine: McpConnection, provider: Provider
) -> None:
    await mine.ready()
    for count, end in enumerate((True, False), 1):
        call = asyncio.create_task(mine.call("hang"))
        asked = count
        await until(lambda asked=asked: len(provider.asked) > asked)  # type: ignore[misc]
        if end:
            call.cancel()
        else:
            await mine.aclose()
        await until(lambda count=count: provider.cancelled == count)  # type: ignore[misc]
        await asyncio.wait([call])
    assert isinstance(call.exception(), McpLostError)


async def test_two_connections_to_one_server_keep_their_answers_apart(
    connect: Connect, provider: Provider
) -> None:
    one, two = (connect(SERVER, channel=provider.channel) for _ in range(2))
    results = await asyncio.gather(one.call("a"), two.call("b"))
    assert [result.text for result in results] == ["a", "b"]


async def test_the_server_is_offered_nothing_it_has_no_way_to_ask_for(
    connect: Connect, provider: Provider
) -> None:
    async def elicit(server: str, params: dict[str, object]) -> dict[str, object]:
        return {}

    await connect(SERVER, channel=provider.channel, roots=("/srv",), elicitation=elicit).ready()
    assert not any(provider.asked[0]["params"]["capabilities"].values())


# -- the entries of mcpServers ----------------------------------------------------------------


def named(*entries: object) -> tuple[object, ...]:
    return parse_servers(msgspec.json.encode(entries), McpCapabilities(), "")


def entry(**members: object) -> dict[str, object]:
    return {"type": "acp", "name": "mine", "serverId": "srv-1", **members}


def test_an_entry_is_taken() -> None:
    assert named(entry()) == (SERVER,)


@pytest.mark.parametrize("bad", [None, "", 7])
def test_an_entry_without_a_server_id_is_refused_by_its_name(bad: object) -> None:
    with pytest.raises(InvalidParamsError, match=r"mcpServers\[0\].serverId: MCP server 'mine'"):
        named(entry(serverId=bad))


def test_two_entries_of_one_server_id_are_refused() -> None:
    with pytest.raises(InvalidParamsError, match=r"mcpServers\[1\].serverId: MCP server 'other'"):
        named(entry(), entry(name="other"))


def test_the_ids_that_a_client_provides_are_found() -> None:
    stdio = {"name": "x", "command": "/acp", "args": ["acp"], "env": []}
    given = msgspec.json.encode([stdio, entry(), entry(serverId="2")])
    assert server_ids(given) == ("srv-1", "2")
    older = msgspec.json.encode([{"type": "acp", "name": "x", "id": "1"}])
    assert [server_ids(raw) for raw in (older, b"null", b"[]")] == [(), (), ()]
