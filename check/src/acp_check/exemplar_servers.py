"""The exemplar's MCP client: only as much as a rule can see.

It uses no MCP SDK: that takes a second to import, and the exemplar is started a hundred times.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from urllib.parse import urlsplit

from acp_check.record import Json
from acp_wire.tasks import timeout

INTRODUCTION: Json = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "exemplar", "version": "1"},
}


class ServerLink:
    """A connection to one server."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    async def call(self, method: str, params: Json) -> Json:
        """Return the result of a request; raises OSError, ValueError, KeyError or TimeoutError."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        result: Json = json.loads(await self.exchange(json.dumps(message).encode()))["result"]
        return result

    async def exchange(self, message: bytes) -> bytes:
        """Send a message and return the answer."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connection, if one is kept."""


class StdioLink(ServerLink):
    """A server started as a program."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    @classmethod
    async def to(cls, server: Json) -> StdioLink:
        """Start a server."""
        env = {it["name"]: it["value"] for it in server.get("env") or ()}
        process = await asyncio.create_subprocess_exec(
            server["command"],
            *server.get("args") or (),
            env={**os.environ, **env},
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        return cls(process)

    async def exchange(self, message: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(message + b"\n")
        return await self._process.stdout.readline()

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class HttpLink(ServerLink):
    """A server at a URL that takes each message in its own request."""

    def __init__(self, url: str, headers: Json) -> None:
        super().__init__()
        self.url = url
        self.headers = headers

    async def exchange(self, message: bytes) -> bytes:
        reader, writer = await _open(self.url, "POST", self.headers, message)
        try:
            return (await reader.read()).partition(b"\r\n\r\n")[2]
        finally:
            writer.close()


class SseLink(ServerLink):
    """A server at a URL that answers on a stream."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, poster: HttpLink
    ) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer
        self._poster = poster

    @classmethod
    async def to(cls, server: Json) -> SseLink:
        """Open the stream of a server, which names the address to post to."""
        headers = _headers(server)
        reader, writer = await _open(server["url"], "GET", headers)
        path = (await _data(reader)).decode()
        place = urlsplit(server["url"])
        return cls(reader, writer, HttpLink(f"http://{place.netloc}{path}", headers))

    async def exchange(self, message: bytes) -> bytes:
        await self._poster.exchange(message)
        return await _data(self._reader)

    async def aclose(self) -> None:
        self._writer.close()


async def _open(
    url: str, method: str, headers: Json, body: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    path = f"{place.path}?{place.query}" if place.query else place.path
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {place.netloc}",
        "Connection: close",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    return reader, writer


async def _data(reader: asyncio.StreamReader) -> bytes:
    """Return the data of the next event of a stream."""
    while line := await reader.readline():
        if line.startswith(b"data: "):
            return line[6:].strip()
    raise ConnectionError("the stream has ended")


def _headers(server: Json) -> Json:
    return {it["name"]: it["value"] for it in server.get("headers") or ()}


async def connect(server: Json, seconds: float) -> ServerLink | None:
    """Return a server that was initialized and listed its tools in time, or None."""
    link: ServerLink | None = None
    try:
        async with timeout(seconds):
            match server.get("type"):
                case "http":
                    link = HttpLink(server["url"], _headers(server))
                case "sse":
                    link = await SseLink.to(server)
                case _:
                    link = await StdioLink.to(server)
            await link.call("initialize", INTRODUCTION)
            await link.call("tools/list", {})
            return link
    except (OSError, ValueError, KeyError, TimeoutError):
        if link is not None:
            await link.aclose()
        return None


async def tool_text(link: ServerLink, tool: str) -> str:
    """Return the text a tool answers."""
    result = await link.call("tools/call", {"name": tool, "arguments": {}})
    return "".join(str(it.get("text", "")) for it in result.get("content", ()))
