"""An MCP server over HTTP with faults, without any library, in the event loop of the test.

The first part of a path names the fault: see `answer`. `/ok` has none.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.mcp_servers.fault_server import UNREADABLE, unreadable

Message = dict[str, object]

EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hi\r\n\r\n"
)


def reply(status: str, body: bytes = b"", kind: str = "text/plain", extra: str = "") -> bytes:
    """A whole response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{extra}Connection: close\r\n\r\n".encode() + body


def result(message: Message, value: object) -> bytes:
    """A JSON-RPC result."""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


def spoken(message: Message) -> bytes:
    """The answer of a healthy server, as JSON; b"" where no answer is due."""
    params = message.get("params", {})
    assert isinstance(params, dict)
    match message["method"]:
        case "initialize":
            introduction = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "faulty", "version": "0"},
            }
            return result(message, introduction)
        case "tools/list":
            return result(message, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        case "tools/call" if params["name"] in UNREADABLE:
            return unreadable(params["name"], message["id"])
        case "tools/call":
            return result(message, {"content": [{"type": "text", "text": "called"}]})
    return b""


def event(name: str, data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return b"event: %b\r\n%b\r\n" % (
        name.encode(),
        b"".join(b"data: %b\r\n" % line for line in raw.split(b"\n")),
    )


class FaultyHttp:
    """A running server. `seen` holds method, path and headers (in lower case) of each request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.calls = 0
        self.sessions: set[str] = set()
        self._events: asyncio.StreamWriter | None = None

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
            case "packed":
                packed = "Content-Encoding: gzip\r\n"
                return writer.write(reply("200 OK", b"{}", "application/json", packed))
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
            case "sse-ok" if method == "GET":
                self._events = writer
                writer.write(EVENTS + event("endpoint", "/sse-ok"))
                await asyncio.sleep(60)
            case "sse-ok" | "events":
                return await self._tell(method, fault, message, writer)
            case "sse" | "sse-away" | "sse-404" | "sse-end" | "sse-quiet":
                return await self._stream(method, fault, writer)
        return await self._speak(method, fault, headers, message, writer)

    async def _tell(
        self, method: str, fault: str, message: Message, writer: asyncio.StreamWriter
    ) -> None:
        """Answer in order, with events: on the one stream of SSE, or each on one of its own."""
        if method != "POST":
            if fault == "events":
                return writer.write(reply("405 Not so"))
            self._events = writer
            writer.write(EVENTS + event("endpoint", f"/{fault}"))
            await writer.drain()
            await asyncio.sleep(60)
        answer = spoken(message)
        if fault == "events" and answer:
            writer.write(EVENTS + event("message", answer))
        else:
            writer.write(reply("202 Accepted"))
        if fault == "sse-ok" and answer:
            assert self._events is not None
            self._events.write(event("message", answer))
        return None

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
        """Answer like a healthy server; faults affect the call of a tool."""
        match message.get("method"):
            case None if fault == "clings" and method == "DELETE":
                await asyncio.sleep(60)
            case None:
                return writer.write(reply("405 Not so"))
            case "initialize":
                session = f"session-{len(self.sessions)}"
                self.sessions.add(session)
                kept = f"mcp-session-id: {session}\r\n"
                answer = spoken(message)
                if fault == "clings":
                    answer = re.sub(rb'"20..-..-..', b'"1999-01-01', answer)
                writer.write(reply("200 OK", answer, "application/json", kept))
            case "tools/call":
                await self._call(fault, headers, message, writer)
            case "tools/list":
                writer.write(reply("200 OK", spoken(message), "application/json"))
            case _ if fault == "deaf":
                await asyncio.sleep(60)
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
                writer.write(reply("200 OK", spoken(message), "application/json"))


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
