"""Answers without an end, and small ones that unpack to much, of whatever request is sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from acp_wire.errors import AcpError, ConnectionLostError
from acp_wire.transports import http_client
from acp_wire.transports.http_client import connect, post
from acp_wire.transports.route import Route

LIMIT: Final = 1 << 20
MOST: Final = 32 << 20
"""Bytes that all of it may take."""

HEAD: Final = "Content-Type: text/event-stream\r\n"
BOMB: Final = gzip.compress(bytes(64 << 20), 1)

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def _packed(writer: asyncio.StreamWriter, kind: str) -> None:
    head = (
        f"HTTP/1.1 200 OK\r\n{HEAD}Content-Encoding: {kind}\r\nContent-Length: {len(BOMB)}\r\n\r\n"
    )
    writer.write(head.encode() + BOMB)
    await writer.drain()


async def gzipped(writer: asyncio.StreamWriter) -> None:
    await _packed(writer, "gzip")


async def zstd(writer: asyncio.StreamWriter) -> None:
    await _packed(writer, "Zstd")


async def twice(writer: asyncio.StreamWriter) -> None:
    await _packed(writer, "identity, gzip")


async def flood(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\n{HEAD}\r\ndata: ".encode())
    while True:
        writer.write(bytes([65]) * 65536)
        await writer.drain()


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 401 Unauthorized\r\n{HEAD}\r\n".encode())
    while True:
        writer.write(b":\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def drip_of_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: x\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def ids(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\n{HEAD}\r\n".encode())
    for number in range(700):
        asked = {"id": f"{number}{'A' * 60_000}", "method": "a", "params": {"sessionId": "s"}}
        writer.write(f"data: {json.dumps(asked)}\n\n".encode())
        await writer.drain()


EVIL: Final[dict[str, Say]] = {
    it.__name__: it for it in (gzipped, zstd, twice, flood, drip, drip_of_headers, ids)
}


@asynccontextmanager
async def server(place: str, evil: Say) -> AsyncIterator[Route]:
    """A server that is evil at one place: at the first look, a POST, a stream or the end."""

    open_: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_[writer] = task
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            method = head.split()[0]
            if method == "get":
                here = "stream" if "acp-connection-id" in head else "look"
            else:
                here = "post" if method == "post" else "end"
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length or 0))
            if here == place:
                await evil(writer)
            elif here == "look":
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            elif here == "stream":
                writer.write(f"HTTP/1.1 200 OK\r\n{HEAD}\r\n: here\n\n".encode())
                await reader.read()
            else:
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})
                named = "Acp-Connection-Id: one\r\nAcp-One-Stream: true\r\n"
                writer.write(
                    f"HTTP/1.1 200 OK\r\n{named}Content-Length: {len(body)}\r\n\r\n{body}".encode()
                )
        writer.close()

    async with await asyncio.start_server(attend, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield Route(f"http://127.0.0.1:{port}/acp", seconds=1, limit=LIMIT)
        for writer, task in open_.items():
            task.cancel()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await asyncio.wait(open_.values())


async def talk(route: Route) -> None:
    """Connect, say one thing, read to the end, and leave."""
    transport = await connect(route)
    try:
        transport.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n')
        while await transport.receive() and not await reads_on(transport.receive()):
            pass
    finally:
        await transport.aclose()


async def reads_on(reading: Awaitable[bytes]) -> bool:
    """Return True if nothing more comes."""
    try:
        async with asyncio.timeout(1):
            return not await reading
    except TimeoutError:
        return True


@pytest.mark.parametrize("place", ["look", "post", "stream", "end"])
@pytest.mark.parametrize("evil", EVIL)
async def test_no_answer_takes_more_memory_or_time_than_it_may(
    place: str, evil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POST_SECONDS", "INITIALIZE_SECONDS"):
        monkeypatch.setattr(http_client, name, 1.0)
    async with server(place, EVIL[evil]) as route, asyncio.timeout(20):
        tracemalloc.start()
        try:
            with suppress(AcpError):
                await talk(route)
            assert tracemalloc.get_traced_memory()[1] < MOST
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("evil", EVIL)
async def test_a_short_answer_is_short_or_the_server_is_lost(evil: str) -> None:
    async with server("post", EVIL[evil]) as route:
        with pytest.raises(ConnectionLostError):
            await post(route, "/pair", b"{}")
