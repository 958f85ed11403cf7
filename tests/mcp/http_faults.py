"""An MCP server over HTTP with faults, without any library, in the event loop of the test.

The first part of a path says what is wrong: see `answer`. `/ok` is in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

Message = dict[str, object]

EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hi\r\n\r\n"
)


def reply(status: str, body: bytes = b"", kind: str = "text/plain", extra: str = "") -> bytes:
    """A whole response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{extra}Connection: close\r\n\r\n".encode() + body


def result(message: Message, value: object, extra: str = "") -> bytes:
    """The response that carries a JSON-RPC result."""
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()
    return reply("200 OK", body, "application/json", extra)


def event(name: str, data: str) -> bytes:
    return f"event: {name}\r\ndata: {data}\r\n\r\n".encode()


class FaultyHttp:
    """A running server. `seen` holds method, path and headers (in lower case) of each request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.calls = 0
        self.sessions: set[str] = set()

    def url(self, fault: str) -> str:
        return f"http://127.0.0.1:{self.port}/{fault}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *rest = head.strip().split("\r\n")
            method, path, _ = first.split(" ")
            headers = {
                name.lower(): value for name, value in (line.split(": ", 1) for line in rest)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append((method, path, headers))
            message: Message = json.loads(body) if body else {}
            await self._answer(method, path.split("?")[0].strip("/"), headers, message, writer)
            await writer.drain()
        writer.close()

    async def _answer(
        self,
        method: str,
        fault: str,
        headers: dict[str, str],
        message: Message,
        writer: asyncio.StreamWriter,
    ) -> None:
        match fault:
            case "403" | "404" | "429" | "500":
                return writer.write(reply(f"{fault} Somehow", b"nope"))
            case "401":
                secret = headers.get("authorization", "")
                challenge = f'WWW-Authenticate: Bearer error="bad {secret}"\r\n'
                return writer.write(reply("401 Unauthorized", extra=challenge))
            case "302":
                return writer.write(reply("302 Found", extra="Location: /ok\r\n"))
            case "around":
                return writer.write(reply("307 Again", extra="Location: /around\r\n"))
            case "elsewhere":
                away = f"Location: http://localhost:{self.port}/ok?key=k\r\n"
                return writer.write(reply("307 There", extra=away))
            case "moved":
                return writer.write(reply("308 Moved", extra="Location: /ok\r\n"))
            case "html":
                return writer.write(reply("200 OK", b"<html>", "text/html"))
            case "nojson":
                return writer.write(reply("200 OK", b"{nope", "application/json"))
            case "huge":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                while True:
                    writer.write(b" " * 1_000_000)
                    await writer.drain()
            case "202":
                return writer.write(reply("202 Accepted"))
            case "drop":
                return None
            case "slow":
                await asyncio.sleep(60)
            case "mute":
                writer.write(EVENTS)
                await writer.drain()
                await asyncio.sleep(60)
            case "mistaken":
                error = {"code": -32602, "message": "clients are unwelcome"}
                body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
                return writer.write(reply("400 Bad", body, "application/json"))
            case "sse" | "sse-away" | "sse-404" | "sse-end" | "sse-quiet":
                return await self._stream(method, fault, writer)
        return await self._speak(method, fault, headers, message, writer)

    async def _stream(self, method: str, fault: str, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS)
        address = {"sse-away": "http://localhost:1/x", "sse-404": "/404", "sse-end": "/202"}
        if fault in address:
            writer.write(event("endpoint", address[fault]))
        await writer.drain()
        await asyncio.sleep(0.2 if fault == "sse-end" else 60)

    async def _speak(
        self,
        method: str,
        fault: str,
        headers: dict[str, str],
        message: Message,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer as a server in order does; what a fault breaks is the call of a tool."""
        match message.get("method"):
            case None:
                return writer.write(reply("405 Not so"))
            case "initialize":
                params = message["params"]
                assert isinstance(params, dict)
                session = f"session-{len(self.sessions)}"
                self.sessions.add(session)
                introduction = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "faulty", "version": "0"},
                }
                writer.write(result(message, introduction, f"mcp-session-id: {session}\r\n"))
            case "tools/list":
                tools = [{"name": "t", "inputSchema": {"type": "object"}}]
                writer.write(result(message, {"tools": tools}))
            case "tools/call":
                await self._call(fault, headers, message, writer)
            case _:
                writer.write(reply("202 Accepted"))
        return None

    async def _call(
        self,
        fault: str,
        headers: dict[str, str],
        message: Message,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.calls += 1
        match fault:
            case "forgets" if headers.get("mcp-session-id") == "session-0":
                error = {"code": -32001, "message": "Session not found"}
                body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
                writer.write(reply("404 Not Found", body, "application/json"))
            case "drop-call":
                return
            case "500-call":
                writer.write(reply("500 Oops"))
            case "break-off":
                writer.write(EVENTS)
            case _:
                writer.write(result(message, {"content": [{"type": "text", "text": "called"}]}))


@asynccontextmanager
async def faulty_http() -> AsyncIterator[FaultyHttp]:
    """A server with every fault for the block."""
    running: FaultyHttp

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(asyncio.CancelledError):
            await running.serve(reader, writer)
        serving.discard(task)
        writer.close()

    serving: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    running = FaultyHttp(server.sockets[0].getsockname()[1])
    try:
        yield running
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)
