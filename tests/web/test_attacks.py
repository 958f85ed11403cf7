"""Who reaches the port and means harm is refused, or bounded; and a second client beside it is not
harmed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import acphold
from acphold.web.attempts import OF_ALL, OF_ONE, Attempts
from acphold.web.connections import bounds
from tests.web.conftest import Served, serving
from tests.web.test_gate import INITIALIZE, bearer, socket_url

JSON = "application/json"


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server that withstands all of them."""
    with serving(tmp_path_factory.mktemp("fortress")) as served:
        yield served


@pytest.fixture(scope="module")
def token(fortress: Served) -> str:
    return fortress.token()


@pytest.fixture(autouse=True)
def unharmed(fortress: Served, token: str) -> Iterator[None]:
    """Behind each attack somebody else has a turn."""

    async def have_a_turn() -> None:
        async with asyncio.timeout(30), acphold.connect(fortress.url, token=token) as agent:
            session = await agent.new_session(cwd=fortress.folder)
            assert "hello" in (await session.prompt("quick: hello")).text

    yield
    asyncio.run(have_a_turn())


async def said(served: Served, request: bytes, *, then: bytes = b"") -> bytes:
    """All that is answered to these bytes, until the server ends the connection."""
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request + then)
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def host(served: Served) -> bytes:
    return served.url.removeprefix("http://").encode()


# -- pages of others ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
async def test_a_form_of_another_page_does_nothing_with_the_cookie_of_its_victim(
    fortress: Served, token: str, kind: str
) -> None:
    headers = {"Cookie": f"acphold={token}", "Content-Type": kind}
    async with httpx2.AsyncClient(base_url=fortress.url) as http:
        for path in ("/acp", "/pair"):
            # Browsers name the page; one that did not would still need leave for JSON.
            named = {**headers, "Origin": "http://evil.example"}
            assert (await http.post(path, content=INITIALIZE, headers=named)).status_code == 403
            answer = await http.post(path, content=INITIALIZE, headers=headers)
            assert answer.status_code == 415
            assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_another_port_of_this_host_has_no_use_of_the_cookie(
    fortress: Served, token: str
) -> None:
    cookie = {"Cookie": f"acphold={token}", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(base_url=fortress.url) as http:
        for site, status in (("same-site", 401), ("cross-site", 401), ("same-origin", 400)):
            answer = await http.get("/acp", headers={**cookie, "Sec-Fetch-Site": site})
            assert answer.status_code == status
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        assert (await http.options("/acp", headers=asked)).status_code == 403


async def test_a_websocket_of_another_page_is_refused_whatever_its_origin_looks_like(
    fortress: Served, token: str
) -> None:
    own = fortress.url
    for origin in (
        "null",
        "http://evil.example",
        f"{own}.evil.example",
        f"http://evil.example#{own}",
        own.replace("http:", "https:"),
        own[:-1],
        f"http://x@{own.removeprefix('http://')}",
        "",
    ):
        assert await status(fortress, {"Cookie": f"acphold={token}", "Origin": origin}) == 403


async def status(served: Served, headers: Mapping[str, str]) -> int:
    """With what a WebSocket is answered."""
    try:
        async with connect(socket_url(served), additional_headers=headers):
            return 101
    except InvalidStatus as exc:
        return exc.response.status_code


async def test_a_name_that_is_not_ours_is_refused_however_it_is_sent(fortress: Served) -> None:
    port = fortress.url.rpartition(":")[2]
    for name in (
        f"evil.example:{port}",
        "localhost",
        f"localhost:{port}0",
        f"localhost.:{port}",
        f"localhost:{port}@evil.example",
        f"127.1:{port}",
        "",
    ):
        request = f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        assert b" 421 " in (await said(fortress, request.encode())), name
    absolute = b"GET http://%b/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert b" 421 " in await said(fortress, absolute % host(fortress))
    twice = b"GET /health HTTP/1.1\r\nHost: %b\r\nHost: evil.example\r\n\r\n"
    assert b" 400 " in await said(fortress, twice % host(fortress))


# -- guesses --------------------------------------------------------------------------------


async def test_wrong_tokens_are_limited_and_the_right_one_still_opens(
    fortress: Served, token: str
) -> None:
    guessed = [token[:-6] + f"{number:06}" for number in range(OF_ALL + 1)]
    async with httpx2.AsyncClient(base_url=fortress.url) as http:
        told = [(await http.get("/acp", headers=bearer(guess))).status_code for guess in guessed]
        assert told == [401] * OF_ALL + [429]
        headers = {**bearer(token), "Accept": "text/event-stream"}
        assert (await http.get("/acp", headers=headers)).status_code == 400


def test_one_address_that_guesses_does_not_keep_another_from_trying() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    for _ in range(OF_ONE):
        assert not attempts.are_too_many("192.0.2.1")
        attempts.add("192.0.2.1")
    assert attempts.are_too_many("192.0.2.1")
    assert not attempts.are_too_many("192.0.2.2")
    assert not attempts.are_too_many("")  # of whom many may come from one address
    now = 60.0
    assert not attempts.are_too_many("192.0.2.1")


# -- two that read one request differently ----------------------------------------------------

SMUGGLED = b"GET /health HTTP/1.1\r\nHost: %(host)b\r\n\r\n"
AMBIGUOUS = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "a list of lengths": b"Content-Length: 0, 5\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nabcde",
    "a length with a space": b"Content-Length: 1 0\r\n\r\n",
    "a length in hex": b"Content-Length: 0x5\r\n\r\nabcde",
    "a space before a colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab for a coding": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "another coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "the coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "a bare LF": b"X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare LF at the end": b"Content-Length: 0\n\n",
    "a bare CR": b"X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a header that goes on": b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a coding that goes on": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a zero byte": b"X: y\0z\r\n\r\n",
    "a line that is no header": b"chunked\r\n\r\n",
    "a chunk with a bare LF": b"Transfer-Encoding: chunked\r\n\r\n0\n\n",
    "a chunk with a sign": b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
    "a chunk with 0x": b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "a chunk that ends late": b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\n\r\n\r\n",
    "a chunk with a bare CR": b"Transfer-Encoding: chunked\r\n\r\n0\r\r\n\r\n",
}


@pytest.mark.parametrize("how", AMBIGUOUS)
async def test_a_request_that_a_proxy_could_read_otherwise_hides_no_second_one(
    fortress: Served, how: str
) -> None:
    first = b"POST /pair HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
    second = b"GET /health HTTP/1.1\r\nHost: %b\r\n\r\n"
    answers = await said(
        fortress, first % host(fortress) + AMBIGUOUS[how], then=second % host(fortress)
    )
    assert answers.count(b"HTTP/1.1 ") == 1, answers
    assert re.match(rb"HTTP/1.1 (400|501) ", answers), answers
    assert b'"status":"ok"' not in answers


async def test_chunks_belong_to_a_version_that_has_them(fortress: Served) -> None:
    request = b"POST /pair HTTP/1.0\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert b" 400 " in await said(fortress, request % host(fortress))


# -- too much -------------------------------------------------------------------------------


async def test_headers_without_end_and_by_the_thousand_are_refused(fortress: Served) -> None:
    begun = b"GET /health HTTP/1.1\r\nHost: %b\r\n" % host(fortress)
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    for more in (
        b"X: " + b"y" * 100_000,
        b"X: y\r\n" * 100_000,
        b"X: y\r\n" * 2000 + upgrade + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ):
        try:
            answer = await said(fortress, begun + more)
        except ConnectionResetError:  # it did not even want to read them
            continue
        assert re.match(rb"HTTP/1.1 4", answer), answer


async def test_json_of_any_depth_is_an_error_of_its_own_connection(
    fortress: Served, token: str
) -> None:
    deep = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + "[" * 200_000
    async with connect(socket_url(fortress), additional_headers=bearer(token)) as socket:
        await socket.send(deep)
        assert "error" in json.loads(await socket.recv())
        await socket.send(INITIALIZE)
        assert json.loads(await socket.recv())["id"] == 1
    async with httpx2.AsyncClient(base_url=fortress.url, headers=bearer(token)) as http:
        kind = {"Content-Type": JSON}
        for path, content in (("/acp", deep), ("/pair", deep[:4000])):
            assert (await http.post(path, content=content, headers=kind)).status_code == 400


async def test_nothing_is_compressed_so_nothing_can_be_a_bomb(fortress: Served, token: str) -> None:
    async with connect(
        socket_url(fortress), additional_headers=bearer(token), compression="deflate"
    ) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
    async with httpx2.AsyncClient(base_url=fortress.url, headers=bearer(token)) as http:
        kind = {"Content-Type": JSON, "Content-Encoding": "gzip"}
        packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
        assert (await http.post("/acp", content=packed, headers=kind)).status_code in (400, 415)


async def test_a_frame_that_is_longer_than_a_message_may_be_ends_its_connection(
    fortress: Served, token: str
) -> None:
    async with raw_socket(fortress, token) as (reader, writer):
        writer.write(b"\x81\xff" + (65 << 20).to_bytes(8, "big") + b"\0\0\0\0")
        async with asyncio.timeout(30):
            closed = await reader.read()
    assert (closed[0], int.from_bytes(closed[2:4], "big")) == (0x88, 1009)


@asynccontextmanager
async def raw_socket(
    served: Served, token: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket of which each byte is ours."""
    name, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(name, int(port), limit=1 << 16)
    try:
        writer.write(
            b"GET /acp HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % (host(served), token.encode())
        )
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        yield reader, writer
    finally:
        writer.transport.abort()


def test_what_one_process_may_open_is_shared_between_them_and_what_they_need() -> None:
    for descriptors in (256, 1024, 4096, 1 << 20):
        found = bounds(descriptors)
        assert found.unknown + found.known <= max(descriptors - 256, 32)
        assert found.unknown >= 8
        assert found.of_token < found.known
