"""TLS connections are counted and bounded before the handshake, and lose no byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect

import acphold
from tests.web.certificates import Authority, new_authority
from tests.web.conftest import Served, serving
from tests.web.test_gate import INITIALIZE, bearer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"), "localhost")


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("secured"), *authority.options) as served:
        yield served


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca)


def place(served: Served) -> tuple[str, int]:
    """Its address and port."""
    return "127.0.0.1", int(served.url.rpartition(":")[2])


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_turn_is_encrypted_over_both_transports(
    secured: Served, authority: Authority, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert secured.url.startswith("https:")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    url = f"{secured.url}?transport={transport}"
    async with acphold.connect(url, token=secured.token()) as agent:
        session = await agent.new_session(cwd=secured.folder)
        assert "hello" in (await session.prompt("quick: hello")).text


async def test_what_comes_with_the_last_word_of_the_handshake_is_answered(
    secured: Served, trusting: ssl.SSLContext
) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n"
    for _ in range(20):  # whether both come with one read is up to the kernel
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        wire = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection(*place(secured))
        async with asyncio.timeout(30):
            while True:
                try:
                    wire.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(1 << 16))
            wire.write(request % place(secured)[1])
            writer.write(outgoing.read())  # the end of the handshake, and the request behind it
            said = b""
            while b'"status":"ok"' not in said:
                try:
                    said += wire.read(1 << 16)
                except ssl.SSLWantReadError:
                    incoming.write(await reader.read(1 << 16))
        writer.close()


async def test_who_begins_no_handshake_and_who_breaks_one_off_harm_nobody(
    secured: Served, trusting: ssl.SSLContext
) -> None:
    begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for words in (b"GET /health HTTP/1.1\r\n\r\n", begun, b"\0" * 1000, b""):
        reader, writer = await asyncio.open_connection(*place(secured))
        writer.write(words)
        if words and words is not begun:
            async with asyncio.timeout(30):
                await reader.read()  # it ends, perhaps after an error message
        writer.transport.abort()
    url = f"wss://localhost:{place(secured)[1]}/acp"
    headers = bearer(secured.token())
    async with connect(url, additional_headers=headers, ssl=trusting, host="127.0.0.1") as socket:
        await socket.send(INITIALIZE)
        async with asyncio.timeout(30):
            assert '"protocolVersion":1' in str(await socket.recv())


@pytest.mark.slow
async def test_handshakes_that_never_end_by_the_thousand_keep_nobody_out(
    secured: Served, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    token = secured.token()
    waiting = []
    for _ in range(400):
        waiting.append(await asyncio.open_connection(*place(secured)))
        waiting[-1][1].write(b"\x16\x03\x01\x02\x00")
    async with asyncio.timeout(60), acphold.connect(secured.url, token=token) as agent:
        session = await agent.new_session(cwd=secured.folder)
        assert "hello" in (await session.prompt("quick: hello")).text
    async with asyncio.timeout(60):  # each has its time, and no more
        for reader, writer in waiting:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
