"""MCP over ACP (unstable), from the agent's turn to the client that provides the server."""

from __future__ import annotations

from typing import Any

import pytest

from acp_wire.schema import UnknownMcpServer
from acphold.testing import WatchedAgent, connect
from tests.library.test_session_servers import call
from tests.library.test_turn import agent_that

pytestmark = pytest.mark.timeout(60)

ENTRY = UnknownMcpServer("acp", b'{"type":"acp","name":"test","serverId":"srv-1"}')


class Provider:
    """The server `test` of a client: `add` reports progress, all else is an error."""

    def __init__(self) -> None:
        self.client: WatchedAgent

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answers `mcp/message`."""
        assert asked["serverId"] == "srv-1"
        match asked["method"]:
            case "initialize":
                version = asked["params"]["protocolVersion"]
                info = {"name": "test", "version": "1"}
                offers: dict[str, Any] = {"tools": {}}
                return {
                    "result": {
                        "protocolVersion": version,
                        "capabilities": offers,
                        "serverInfo": info,
                    }
                }
            case "tools/list":
                tool = {"name": "add", "title": "Add", "inputSchema": {"type": "object"}}
                return {"result": {"tools": [tool]}}
            case "tools/call" if asked["params"]["name"] == "add":
                return await self._add(asked)
        return {"error": {"code": -32601, "message": "it cannot do that"}}

    async def _add(self, asked: dict[str, Any]) -> dict[str, Any]:
        token = asked["params"]["_meta"]["progressToken"]
        for done in (1, 2):
            said = {
                "serverId": "srv-1",
                "requestId": asked["requestId"],
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": done, "total": 2},
            }
            self.client.notify("mcp/message", said)
        given = asked["params"]["arguments"]
        text = str(given["a"] + given["b"])
        return {"result": {"content": [{"type": "text", "text": text}]}}


async def test_a_tool_of_the_client_is_called_with_progress() -> None:
    provider = Provider()
    async with connect(agent_that(call), handlers={"mcp/message": provider.answer}) as client:
        provider.client = client
        session = await client.new_session(mcp_servers=[ENTRY])
        result = await session.prompt('add {"a": 2, "b": 3}')
        assert result.text == "5"
        [shown] = result.tool_calls
        assert (shown.title, shown.status) == ("Add", "completed")
        progress = [
            update["content"][0]["content"]["text"]
            for update in result.received.of("tool_call_update")
            if update.get("content")
        ]
        assert progress == ["1/2", "2/2", "5"]

        result = await session.prompt("divide")
        assert result.text == "it cannot do that"
        assert [shown.status for shown in result.tool_calls] == ["failed"]

        # The server is named anew with the session, after a crash of the agent too.
        await client.restart(kill=True)
        session = await client.load_session(session.id, mcp_servers=[ENTRY])
        assert (await session.prompt('add {"a": 4, "b": 4}')).text == "8"
