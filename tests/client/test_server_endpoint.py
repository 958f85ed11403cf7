"""Servers far away that are not ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets

import acphold


async def test_a_server_that_nobody_has_paired_with_is_tried_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    came: list[str | None] = []

    async def attend(connection: ServerConnection) -> None:
        assert connection.request is not None
        came.append(connection.request.headers.get("Authorization"))
        asked = json.loads(await connection.recv())
        who = {"protocolVersion": 1, "agentInfo": {"name": "somebody", "version": "1"}}
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": who}))
        await connection.wait_closed()

    async with serve_websockets(attend, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"
        async with acphold.connect(url) as agent:
            assert agent.name == "somebody"
        async with acphold.connect(url, token="one") as agent:
            assert agent.name == "somebody"
    assert came == [None, "Bearer one"]
