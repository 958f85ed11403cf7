"""Little is kept for clients that read slowly or not at all; others are served as before."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

import acphold
from tests.web.conftest import Served, serving
from tests.web.test_attacks import frame, have_a_turn, raw_socket
from tests.web.test_gate import INITIALIZE, bearer
from tests.web.test_streams import HttpClient, opened

pytestmark = pytest.mark.slow

MIB = 1 << 20
WITHOUT_HASTE = (
    "import sys; from acphold.web import bounds; bounds.PATIENCE_SECONDS = 1e9;"
    "from acphold.__main__ import main; sys.exit(main())"
)


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that sends nobody away for being slow."""
    monkeypatch.setattr("tests.web.conftest.ACPHOLD", (sys.executable, "-c", WITHOUT_HASTE))
    with serving(tmp_path) as served:
        yield served


@asynccontextmanager
async def unread_stream(
    served: Served, token: str, path: str, **headers: str
) -> AsyncIterator[asyncio.StreamReader]:
    """A stream of events of which only the head is read, and as much as the system buffers."""
    place = urlsplit(served.url)
    assert place.hostname is not None
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", place.port))
    reader, writer = await asyncio.open_connection(sock=own, limit=4096)
    named = {"Host": place.netloc, "Accept": "text/event-stream", **bearer(token)}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        yield reader
    finally:
        writer.transport.abort()


async def read_all(reader: asyncio.StreamReader, until: bytes) -> int:
    """Read up to and including `until`; returns the number of bytes."""
    number, rest = 0, b""
    while until not in rest:
        data = await reader.read(MIB)
        assert data, "the stream has ended before"
        number += len(data)
        rest = rest[-len(until) :] + data
    return number


async def test_a_stream_of_a_session_that_nobody_reads_keeps_little_and_has_all_when_it_is_read(
    patient: Served,
) -> None:
    token = patient.token()
    server = psutil.Process(patient.process.pid)
    async with (
        httpx2.AsyncClient(base_url=patient.url, headers=bearer(token), timeout=30) as http,
        acphold.connect(patient.url, token=token) as other,
    ):
        client = HttpClient(http)
        await client.initialize()
        session_id = await opened(client, patient)
        session = await other.load_session(session_id, cwd=patient.folder)
        headers = {"Acp_Session_Id": session_id, **client.connection}
        async with unread_stream(patient, token, "/acp", **headers) as reader:
            await session.prompt("quick: to begin with")
            before = server.memory_info().rss
            for _ in range(32):
                assert len((await session.prompt("quick: " + "x" * MIB)).text) > MIB
            assert server.memory_info().rss - before < 48 * MIB
            await have_a_turn(patient, token)
            await session.prompt("quick: the last of them")
            async with asyncio.timeout(60):
                number = await read_all(reader, b"You said: quick: the last of them")
            assert number > 32 * 2 * MIB  # each prompt, and its echo


async def test_a_feed_of_the_list_that_nobody_reads_keeps_little_and_others_are_told(
    patient: Served,
) -> None:
    token = patient.token()
    server = psutil.Process(patient.process.pid)
    async with (
        acphold.connect(patient.url, token=token) as agent,
        httpx2.AsyncClient(base_url=patient.url, headers=bearer(token), timeout=60) as http,
        unread_stream(patient, token, "/sessions/feed"),
        http.stream("GET", "/sessions/feed") as feed,
    ):
        told = feed.aiter_lines()
        session = await agent.new_session(cwd=patient.folder)
        await session.prompt("quick: to begin with")
        before = server.memory_info().rss
        for number in range(300):
            await session.prompt(f"quick: {number}")
        assert server.memory_info().rss - before < 32 * MIB
        async with asyncio.timeout(60):
            while session.id not in await anext(told):
                pass


async def test_a_token_that_is_revoked_ends_what_its_client_does_not_read(patient: Served) -> None:
    token = patient.token()
    async with raw_socket(patient, token) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        # Malformed requests are answered, too, until nobody reads the answers any more.
        writer.write(frame(INITIALIZE) + frame("{}") * 100_000)
        await until_stuck(patient)
        patient.run("access", "revoke", token.split("_")[1])
        await until_nobody_is_connected(patient)
    for path in ("/sessions/feed", "/acp"):
        token = patient.token()
        async with httpx2.AsyncClient(
            base_url=patient.url, headers=bearer(token), timeout=30
        ) as http:
            client = HttpClient(http)
            if path == "/acp":
                await client.initialize()
            async with unread_stream(patient, token, path, **client.connection):
                patient.run("access", "revoke", token.split("_")[1])
                await until_nobody_is_connected(patient)


async def test_a_server_ends_as_it_should_while_somebody_who_reads_nothing_takes_their_leave(
    patient: Served,
) -> None:
    token = patient.token()
    ping, leave = b"\x89\xfd\0\0\0\0" + bytes(125), b"\x88\x80\0\0\0\0"
    async with (
        httpx2.AsyncClient(base_url=patient.url, headers=bearer(token), timeout=30) as http,
        raw_socket(patient, token) as (_, writer),
        asyncio.timeout(60),
    ):
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(ping * 40_000 + leave)
        while '{transport="websocket"} 0' not in (await http.get("/metrics")).text:
            pass
        assert connections(patient)
        patient.process.terminate()
        assert await asyncio.to_thread(patient.process.wait) == 0


def connections(served: Served) -> list[object]:
    """Those that a server has with others."""
    port = int(served.url.rpartition(":")[2])
    found = psutil.Process(served.process.pid).net_connections("tcp")
    return [it for it in found if it.laddr.port == port and it.raddr]


async def until_nobody_is_connected(served: Served) -> None:
    async with asyncio.timeout(30):
        left = connections(served)
        while left:
            await asyncio.sleep(0.05)
            left = connections(served)


async def until_stuck(served: Served) -> None:
    """Until a server takes nothing any more of its one client."""
    server = psutil.Process(served.process.pid)
    before, now = -1.0, 0.0
    async with asyncio.timeout(30):
        while now > before:  # its processor is busy
            before = now
            await asyncio.sleep(0.3)
            now = sum(server.cpu_times()[:2])
