"""Servers far away that are not ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve as serve_websockets

import acphold
from acphold.errors import ConnectionLostError, DeclarationError


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


async def test_a_program_is_asked_for_its_token_with_each_connection() -> None:
    came: list[str | None] = []
    tokens, third = iter(["one", "two", "three"]), asyncio.Event()

    async def attend(connection: ServerConnection) -> None:
        assert connection.request is not None
        came.append(connection.request.headers.get("Authorization"))
        asked = json.loads(await connection.recv())
        who = {"protocolVersion": 1, "agentInfo": {"name": "somebody", "version": "1"}}
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": who}))
        if len(came) > 2:
            third.set()
            await connection.wait_closed()
        elif len(came) == 2:
            raise KeyError("an error of theirs")

    async def token() -> str:
        return next(tokens)

    async with serve_websockets(attend, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"
        async with acphold.connect(url, token=token), asyncio.timeout(30):
            await third.wait()
        with pytest.raises(acphold.ConnectionLostError, match=r"function `token` failed with"):
            async with acphold.connect(url, token=token):
                pass
    assert came == ["Bearer one", "Bearer two", "Bearer three"]


async def test_a_server_of_others_gets_no_prompt_twice_and_the_gap_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    came: list[str] = []

    async def attend(connection: ServerConnection) -> None:
        async for raw in connection:
            asked = json.loads(raw)
            came.append(asked["method"])
            results = {
                "initialize": {
                    "protocolVersion": 1,
                    "agentCapabilities": {"sessionCapabilities": {"resume": {}}},
                },
                "session/new": {"sessionId": "s1"},
                "session/resume": {},
            }
            if asked["method"] == "session/prompt":
                await connection.close()  # the turn may run on
                return
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
            await connection.send(json.dumps(answer))

    async with serve_websockets(attend, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"
        async with acphold.connect(url) as agent:
            session = await agent.new_session("/tmp")
            with pytest.raises(acphold.RemoteError, match="it is unknown if that was done"):
                await session.prompt("once")
    begun = ["initialize", "session/new", "session/prompt"]
    assert came == [*begun, "initialize", "session/resume"]


async def test_a_redirect_takes_nobody_and_no_token_to_another_server() -> None:
    came: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as other,
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
    ):
        there, here = (it.sockets[0].getsockname()[1] for it in (other, server))
        head = f"Location: ws://127.0.0.1:{there}/acp\r\nContent-Length: 0\r\nConnection: close"
        said = f"HTTP/1.1 302 Found\r\n{head}\r\n\r\n".encode()
        with pytest.raises(ConnectionLostError, match="use the address that it leads to"):
            async with acphold.connect(f"http://127.0.0.1:{here}/acp", token="one"):
                pass
    assert came
    assert all(f"127.0.0.1:{here}".encode() in it for it in came)


@pytest.mark.parametrize(
    "serves", [{"files": True}, {"terminals": True}, {"handlers": {"fs/read_text_file": len}}]
)
async def test_an_address_gets_no_files_or_terminals_of_this_machine(serves: Any) -> None:
    with pytest.raises(DeclarationError, match="cannot offer files or terminals"):
        async with acphold.connect("https://there.example/acp", **serves):
            pass
