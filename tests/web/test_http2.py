"""`serve --http2`: the same over HTTP/2, with TLS or for a proxy that knows, and WebSockets in it.

The other tests of this folder that have a server of their own run with it, too: `make slow`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived
from websockets.asyncio.client import connect
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

import acphold
from acphold.errors import SettingsError
from acphold.web import http2, server
from acphold.web.connections import Connections, bounds
from acphold.web.sockets import GOING_AWAY, Receive, Scope, Send
from tests.web.certificates import new_authority
from tests.web.conftest import Served, serving
from tests.web.test_streams import HttpClient, opened, text, until

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, "--http2") as found:
        yield found


async def test_a_turn_goes_over_http2_and_a_websocket_stands_beside_it(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token()}"}
    async with httpx2.AsyncClient(
        base_url=served.url, headers=headers, timeout=30, http1=False, http2=True
    ) as http:
        client = HttpClient(http)
        await client.initialize()
        session_id = await opened(client, served)
        assert (await http.get("/health")).http_version == "HTTP/2"
        # All of it on one connection: the stream, and what is posted beside it.
        async with client.stream(Acp_Session_Id=session_id) as stream:
            prompt = {"sessionId": session_id, "prompt": text("quick: over two")}
            assert (await client.post("session/prompt", prompt)).status_code == 202
            await until(stream, "You said: quick: over two")
            await until(stream, "end_turn")
    async with acphold.connect(served.url, token=served.token()) as agent:
        loaded = await agent.load_session(session_id, cwd=served.folder)
        assert "over two" in str(loaded.state.timeline)


class _Socket:
    """A WebSocket as one stream of an HTTP/2 connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._frames = Connection(ConnectionType.CLIENT)
        self.head: dict[str, str] = {}

    async def connect(self, authority: str, token: str) -> None:
        self._http.initiate_connection()
        self._flush()
        head = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/acp"),
            (":authority", authority),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("authorization", f"Bearer {token}"),
        ]
        self._http.send_headers(1, head)
        self._flush()
        while not self.head:
            await self._take()

    async def ask(self, method: str, params: object) -> str:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._http.send_data(1, self._frames.send(TextMessage(json.dumps(message))))
        self._flush()
        while True:
            for event in self._frames.events():
                if isinstance(event, TextMessage):
                    return event.data
            await self._take()

    async def _take(self) -> None:
        data = await asyncio.wait_for(self._reader.read(65536), 30)
        assert data, "the connection has ended"
        for event in self._http.receive_data(data):
            if isinstance(event, ResponseReceived):
                self.head = {str(name): str(value) for name, value in event.headers or ()}
            elif isinstance(event, DataReceived):
                self._frames.receive_data(event.data)
                self._http.acknowledge_received_data(event.flow_controlled_length or 0, 1)
        self._flush()

    def _flush(self) -> None:
        self._writer.write(self._http.data_to_send())


@asynccontextmanager
async def _socket(served: Served, token: str) -> AsyncIterator[_Socket]:
    place = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        found = _Socket(reader, writer)
        await found.connect(place.netloc, token)
        yield found
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_websocket_is_a_stream_of_http2_and_nothing_in_it_is_packed(
    served: Served,
) -> None:
    async with _socket(served, served.token()) as socket:
        assert socket.head[":status"] == "200"
        assert socket.head["acp-connection-id"]
        assert "sec-websocket-extensions" not in socket.head
        assert "protocolVersion" in await socket.ask("initialize", {"protocolVersion": 1})
    async with _socket(served, "wrong") as socket:
        assert socket.head[":status"] == "401"


async def test_with_tls_the_two_sides_agree_on_what_both_speak(tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "localhost")
    trusting = ssl.create_default_context(cafile=authority.ca)
    with serving(tmp_path, "--http2", *authority.options) as served:
        spoken = []
        for http2 in (True, False):
            async with httpx2.AsyncClient(verify=trusting, http2=http2, timeout=30) as http:
                spoken.append((await http.get(f"{served.url}/health")).http_version)
    assert spoken == ["HTTP/2", "HTTP/1.1"]


def test_without_hypercorn_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"acphold\[http2\]"):
        server.Listening(http2=True).check()
    server.Listening().check()


@pytest.mark.slow
async def test_who_sends_a_body_too_slowly_is_let_go_and_another_is_served(served: Served) -> None:
    place = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(
        f"POST /acp HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {served.token()}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
    )
    async with asyncio.timeout(60):
        await reader.read()
    writer.close()
    async with acphold.connect(served.url, token=served.token()) as agent:
        assert await agent.new_session(cwd=served.folder)


async def test_the_end_waits_for_no_ping_of_a_websocket_that_is_closed() -> None:
    leaving = asyncio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await leaving.wait()
        await send({"type": "websocket.close", "code": GOING_AWAY})

    with socket.create_server(("127.0.0.1", 0)) as bound:
        async with (
            asyncio.timeout(60),
            http2.running(
                app,
                partial(server._accepting, bound=bound),
                Connections(bounds(1024)),
                certificate=None,
                key=None,
                limit=1 << 20,
                heartbeat=3600.0,
                last=3600.0,
            ),
            connect(f"ws://127.0.0.1:{bound.getsockname()[1]}/") as client,
        ):
            leaving.set()
            await client.wait_closed()
    assert client.close_code == GOING_AWAY
