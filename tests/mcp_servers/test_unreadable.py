"""Answers that cannot be read and arguments that cannot be sent, on each transport: the call ends,
and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from acp_wire.schema import McpServerHttp, McpServerSse
from acphold.mcp_servers.errors import McpAnswerError
from acphold.mcp_servers.servers import Server
from tests.mcp_servers.conftest import Connect, Faulty, bridged
from tests.mcp_servers.fault_server import UNREADABLE
from tests.mcp_servers.http_faults import FaultyHttp

pytestmark = pytest.mark.slow

READ_ALL_THE_SAME = {
    "half_surrogate": "cut \ufffd",
    "bad_byte": "cut \ufffd",
    "several_lines": "cut",
}
"""Faults that are repaired, with the repaired text."""

WAYS = ("stdio", "sse", "http", "events", "bridge to sse", "bridge to http", "bridge to events")


@pytest.fixture(params=WAYS)
def server(request: pytest.FixtureRequest, faulty: Faulty, faulty_url: FaultyHttp) -> Server:
    """A server whose tools are those of UNREADABLE."""
    if request.param == "stdio":
        return faulty("ok")
    *bridge, kind = request.param.split(" to ")
    paths = {"sse": "sse-ok", "http": "ok", "events": "events"}
    made = McpServerSse if kind == "sse" else McpServerHttp
    far = made(name="far", url=faulty_url.url(paths[kind]), headers=())
    return bridged(far) if bridge else far


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_what_cannot_be_read_or_sent_fails_only_its_call(
    server: Server, connect: Connect, request: pytest.FixtureRequest
) -> None:
    way = request.node.callspec.params["server"]
    on_events = way.endswith("events")
    connection = connect(server)
    await connection.ready()
    state = connection.state
    if way == "stdio":  # where a line is a message
        with pytest.raises(McpAnswerError, match="lines to stdout that are not MCP"):
            await connection.call("several_lines", seconds=0.2)
    for tool in UNREADABLE.keys() - ({"several_lines"} if way == "stdio" else set()):
        async with asyncio.timeout(5):
            text = READ_ALL_THE_SAME.get(tool)
            if text is not None and not (on_events and tool == "half_surrogate"):
                assert (await connection.call(tool)).text == text
            else:
                with pytest.raises(McpAnswerError, match="its answer cannot be read"):
                    await connection.call(tool)
            assert not (await connection.call("fine")).failed
    assert connection.state is state
    for argument in (nested(230), nested(600), "\ud83d"):
        async with asyncio.timeout(5):
            try:
                await connection.call("fine", {"argument": argument})
            except McpAnswerError as exc:
                assert "cannot be sent" in str(exc)  # noqa: PT017  # some get through
            assert not (await connection.call("fine")).failed
        assert connection.state is state
