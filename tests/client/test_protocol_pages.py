"""Sentences of the protocol's pages that bind clients, where no other test here has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acp_wire.schema import McpServerHttp, McpServerStdio
from acp_wire.transports.streams import memory_pair
from tests.client.far_agent import ALL, FarAgent, talking

SERVERS: list[McpServerStdio | McpServerHttp] = [
    McpServerStdio(name="local", command="/bin/true", args=("-x",), env=()),
    McpServerHttp(name="far", url="https://example.com/mcp", headers=()),
]


@pytest.mark.parametrize("way", ["load", "resume"])
async def test_load_and_resume_name_the_session_its_folders_and_its_servers(
    way: str, tmp_path: Path
) -> None:
    far = FarAgent(ALL)
    async with talking(far) as agent:
        opening = agent.load_session if way == "load" else agent.resume_session
        await opening(
            "sess_1", tmp_path, mcp_servers=SERVERS, additional_directories=[tmp_path / "more"]
        )
    assert far.params(f"session/{way}") == {
        "sessionId": "sess_1",
        "cwd": str(tmp_path),
        "mcpServers": [
            {"name": "local", "command": "/bin/true", "args": ["-x"], "env": []},
            {"type": "http", "name": "far", "url": "https://example.com/mcp", "headers": []},
        ],
        "additionalDirectories": [f"{tmp_path}/more"],
    }


async def test_a_session_of_the_list_is_opened_in_the_folders_that_the_list_has() -> None:
    far = FarAgent(ALL)
    infos: list[dict[str, Any]] = [
        {"sessionId": "a", "cwd": "/one", "additionalDirectories": ["/x", "/y"]},
        {"sessionId": "b", "cwd": "/two"},
    ]

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessions": infos}

    async with talking(far) as agent:
        first, second = [info async for info in agent.sessions()]
        await agent.load_session(first)
        assert far.params("session/load")["cwd"] == "/one"
        assert far.params("session/load")["additionalDirectories"] == ["/x", "/y"]
        await agent.load_session(second)
        assert far.params("session/load") == {"sessionId": "b", "cwd": "/two", "mcpServers": []}
        await agent.resume_session(first, "/other", additional_directories=[])
        assert far.params("session/resume")["cwd"] == "/other"
        assert "additionalDirectories" not in far.params("session/resume")


async def test_each_message_is_one_line_of_utf_8_whatever_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = memory_pair()
    sent = bytearray()
    send = ours.send

    def listen(data: bytes) -> None:
        sent.extend(data)
        send(data)

    monkeypatch.setattr(ours, "send", listen)
    far = FarAgent()
    async with talking(far, over=(ours, theirs)) as agent:
        session = await agent.new_session("/tmp")
        await session.prompt("two\nlines\r\n\u2028 and half a \ud83d pair")
    for line in sent.decode("utf-8").split("\n")[:-1]:
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert set(message) <= {"jsonrpc", "id", "method", "params", "result", "error"}
    assert far.params("session/prompt")["prompt"][0]["text"].startswith("two\nlines\r\n\u2028")
    assert far.params("initialize").keys() == {
        "protocolVersion",
        "clientCapabilities",
        "clientInfo",
    }
