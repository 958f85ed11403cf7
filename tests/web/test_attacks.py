"""Attacks on the port are refused or bounded, and do no harm to a second client."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import product

import httpx2
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import acphold
from acphold.web import bounds
from acphold.web.connections import limits_for
from acphold.web.gate import Attempts, cookie_name
from tests.web.conftest import Served
from tests.web.http2_flood import flood
from tests.web.in_process import Site
from tests.web.test_gate import INITIALIZE, bearer, socket_url

JSON = "application/json"


@pytest.fixture(scope="module")
def token(shared: Served) -> str:
    return shared.token()


@pytest.fixture(autouse=True)
def unharmed(shared: Served, token: str) -> Iterator[None]:
    """Behind each attack somebody else has a turn."""
    yield
    asyncio.run(have_a_turn(shared, token))


async def have_a_turn(served: Served, token: str) -> None:
    """Act as an honest client."""
    async with asyncio.timeout(60), acphold.connect(served.url, token=token) as agent:
        session = await agent.new_session(cwd=served.folder)
        assert "hello" in (await session.prompt("quick: hello")).text


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


async def test_a_form_of_another_page_does_nothing_with_the_cookie_of_its_victim(
    shared: Served, token: str
) -> None:
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    then_of = {"/acp": 401, "/pair": 415, "/browser": 415}
    async with httpx2.AsyncClient(base_url=shared.url) as http:
        for kind, (path, then) in product((*kinds, ""), then_of.items()):
            headers = {"Cookie": cookie_of(shared, token), "Content-Type": kind}
            # Browsers name the page; one that did not would still need leave for JSON.
            named = {**headers, "Origin": "http://evil.example"}
            assert (await http.post(path, content=INITIALIZE, headers=named)).status_code == 403
            assert (await http.get("/health", headers=named)).status_code == 403
            answer = await http.post(path, content=INITIALIZE, headers=headers)
            assert answer.status_code == then
            assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_another_port_of_this_host_has_no_use_of_the_cookie(
    shared: Served, token: str
) -> None:
    cookie = {"Cookie": cookie_of(shared, token), "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(base_url=shared.url) as http:
        for site in ("same-site", "cross-site", "same-origin"):
            answer = await http.get("/acp", headers={**cookie, "Sec-Fetch-Site": site})
            assert answer.status_code == 401
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        assert (await http.options("/acp", headers=asked)).status_code == 403


async def test_a_websocket_of_another_page_is_refused_whatever_its_origin_looks_like(
    shared: Served, token: str
) -> None:
    own = shared.url
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
        has = {"Cookie": cookie_of(shared, token), **bearer(token)}
        assert await status(shared, {**has, "Origin": origin}) == 403


def cookie_of(served: Served, value: str) -> str:
    """A cookie that a browser would send."""
    return f"{cookie_name(served.url)}={value}"


async def status(served: Served, headers: Mapping[str, str]) -> int:
    """The status of the answer to a WebSocket request."""
    try:
        async with connect(socket_url(served), additional_headers=headers):
            return 101
    except InvalidStatus as exc:
        return exc.response.status_code


async def test_a_name_that_is_not_ours_is_refused_however_it_is_sent(shared: Served) -> None:
    port = shared.url.rpartition(":")[2]
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
        assert b" 421 " in (await said(shared, request.encode())), name
    absolute = b"GET http://%b/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert b" 400 " in await said(shared, absolute % host(shared))
    twice = b"GET /health HTTP/1.1\r\nHost: %b\r\nHost: evil.example\r\n\r\n"
    assert b" 400 " in await said(shared, twice % host(shared))


# -- guesses --------------------------------------------------------------------------------


async def test_wrong_tokens_are_limited_and_the_right_one_still_opens(web: Site) -> None:
    guessed = [web.token[:-6] + f"{number:06}" for number in range(bounds.GUESSES_OF_ALL + 1)]
    told = [(await web.get("/acp", guess)).status for guess in guessed]
    assert told == [401] * bounds.GUESSES_OF_ALL + [429]
    assert (await web.get("/acp", accept="text/event-stream")).status == 400


def test_one_address_that_guesses_does_not_keep_another_from_trying() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    for _ in range(bounds.GUESSES_OF_ONE):
        assert not attempts.are_too_many("192.0.2.1")
        attempts.add("192.0.2.1")
    assert attempts.are_too_many("192.0.2.1")
    assert not attempts.are_too_many("192.0.2.2")
    assert not attempts.are_too_many("")  # unknown addresses, which may be many clients
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


async def test_a_request_that_a_proxy_could_read_otherwise_hides_no_second_one(
    shared: Served,
) -> None:
    first = b"POST /pair HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
    second = b"GET /health HTTP/1.1\r\nHost: %b\r\n\r\n"
    for how, rest in AMBIGUOUS.items():
        answers = await said(shared, first % host(shared) + rest, then=second % host(shared))
        assert answers.count(b"HTTP/1.1 ") == 1, (how, answers)
        assert re.match(rb"HTTP/1.1 (400|501) ", answers), (how, answers)
        assert b'"status":"ok"' not in answers


async def test_chunks_belong_to_a_version_that_has_them(shared: Served) -> None:
    request = b"POST /pair HTTP/1.0\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert b" 400 " in await said(shared, request % host(shared))


# -- too much -------------------------------------------------------------------------------


async def test_headers_without_end_and_by_the_thousand_are_refused(shared: Served) -> None:
    begun = b"GET /health HTTP/1.1\r\nHost: %b\r\n" % host(shared)
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    for more in (
        b"X: " + b"y" * 100_000,
        b"X: y\r\n" * 100_000,
        b"X: y\r\n" * 2000 + upgrade + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ):
        try:
            answer = await said(shared, begun + more)
        except ConnectionResetError:  # it did not even want to read them
            continue
        assert re.match(rb"HTTP/1.1 4", answer), answer


async def test_json_of_any_depth_is_an_error_of_its_own_connection(
    shared: Served, token: str
) -> None:
    deep = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + "[" * 200_000
    async with connect(socket_url(shared), additional_headers=bearer(token)) as socket:
        await socket.send(deep)
        assert "error" in json.loads(await socket.recv())
        await socket.send(INITIALIZE)
        assert json.loads(await socket.recv())["id"] == 1
    async with httpx2.AsyncClient(base_url=shared.url, headers=bearer(token)) as http:
        kind = {"Content-Type": JSON}
        for path, content in (("/acp", deep), ("/pair", deep[:4000])):
            assert (await http.post(path, content=content, headers=kind)).status_code == 400


async def test_nothing_is_compressed_so_nothing_can_be_a_bomb(shared: Served, token: str) -> None:
    async with connect(
        socket_url(shared), additional_headers=bearer(token), compression="deflate"
    ) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
    async with httpx2.AsyncClient(base_url=shared.url, headers=bearer(token)) as http:
        kind = {"Content-Type": JSON, "Content-Encoding": "gzip"}
        packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
        assert (await http.post("/acp", content=packed, headers=kind)).status_code in (400, 415)


async def test_a_frame_that_is_longer_than_a_message_may_be_ends_its_connection(
    shared: Served, token: str
) -> None:
    async with raw_socket(shared, token) as (reader, writer):
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
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_a_stranger_who_begins_with_http2_is_sent_away_by_the_hundred(
    shared: Served,
) -> None:
    """345 kB that ask for the page, of which nothing is read."""
    server = psutil.Process(shared.process.pid)
    before = server.memory_info().rss
    words, sent = flood(host(shared).decode(), "http"), 0
    async with asyncio.timeout(60):
        while sent < 345_000:
            with suppress(ConnectionError):  # it does not even want to read the rest
                assert re.match(rb"HTTP/1.1 400 ", await said(shared, words))
            sent += len(words)
    assert server.memory_info().rss - before < 32 << 20


# -- for a long time, and by the thousand -----------------------------------------------------


@pytest.mark.slow
async def test_who_dribbles_a_request_has_its_time_and_no_more(shared: Served, token: str) -> None:
    post = b"POST /acp HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n" % host(shared)
    mine = post + b"Authorization: Bearer %b\r\n" % token.encode()
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    slow = (
        (b"", b""),
        (b"GET /health HTTP/1.1\r\n", b"X: y\r\n"),
        (b"GET /acp HTTP/1.1\r\n" + upgrade, b"X"),
        (mine + b"Content-Length: 1000000\r\n\r\n", b" "),
        (mine + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (post + b"Content-Length: 1000000\r\n\r\n", b" "),  # without a token: nobody wants it
    )
    async with asyncio.timeout(120), asyncio.TaskGroup() as dribbling:
        for begun, drop in slow:
            dribbling.create_task(dribble(shared, begun, drop))
        dribbling.create_task(have_a_turn(shared, token))


async def dribble(served: Served, begun: bytes, drop: bytes) -> None:
    """Send so, until the server has enough of it."""
    name, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    ended = asyncio.create_task(reader.read())
    try:
        writer.write(begun)
        while not ended.done():
            writer.write(drop)
            await asyncio.wait({ended}, timeout=0.5)
        with suppress(ConnectionError):
            await ended
    finally:
        writer.transport.abort()


FLOOD = """
import resource, socket, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
open_ = []
for number in range(min(10_000, most - 100)):
    if number == 2000:
        print("many", flush=True)
    open_.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    open_[-1].send(sys.argv[2].encode())
print("all", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["GET ", ""])
async def test_ten_thousand_connections_of_nobody_keep_nobody_out(
    shared: Served, token: str, words: str
) -> None:
    port = shared.url.rpartition(":")[2]
    flood = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FLOOD, port, words), stdin=PIPE, stdout=PIPE
    )
    assert flood.stdout is not None
    try:
        async with asyncio.timeout(120):
            assert await flood.stdout.readline() == b"many\n"
            await have_a_turn(shared, token)
            assert await flood.stdout.readline() == b"all\n"
            await have_a_turn(shared, token)
    finally:
        flood.kill()
        await flood.communicate()
    found = limits_for(1 << 20)
    assert psutil.Process(shared.process.pid).num_fds() < found.unknown + found.known + 256


@pytest.mark.slow
async def test_the_connections_of_one_token_are_so_many_and_leave_room_for_others(
    shared: Served, token: str
) -> None:
    greedy = shared.token("--name", "greedy")
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # which the server may have
    of_token = limits_for(limit).of_token
    async with AsyncExitStack() as stack:
        for _ in range(of_token):
            await stack.enter_async_context(raw_socket(shared, greedy))
        assert await status(shared, bearer(greedy)) == 429
        await have_a_turn(shared, token)
    async with asyncio.timeout(30):  # their ends are noticed
        while await status(shared, bearer(greedy)) != 101:
            pass


@pytest.mark.slow
@pytest.mark.timeout(240)  # 650,000 messages, of which most are answered
async def test_who_reads_nothing_is_sent_away_with_little_kept_for_it(
    shared: Served, token: str
) -> None:
    async with acphold.connect(shared.url, token=token) as agent:
        session = await agent.new_session(cwd=shared.folder)
        for _ in range(16):
            await session.prompt("quick: " + "x" * (1 << 20))
        # A short list takes long to make, and thousands of it fit into what a kernel keeps.
        (long := shared.folder.joinpath(*["long" * 60] * 12)).mkdir(parents=True)
        for _ in range(40):
            await (await agent.new_session(cwd=long)).prompt("quick: listed")
    opened = {"sessionId": session.id, "cwd": str(shared.folder), "mcpServers": []}
    load = {"jsonrpc": "2.0", "id": 2, "method": "session/load", "params": opened}
    list_ = {"jsonrpc": "2.0", "id": 3, "method": "session/list", "params": {}}
    floods: dict[str, list[str | None]] = {
        "a long replay": [INITIALIZE, json.dumps(load)],
        "pings": [INITIALIZE, *[None] * 500_000],
        "requests": [INITIALIZE, *[json.dumps(list_)] * 50_000],
        "what is no request": [*["{}"] * 100_000],
    }
    both = [psutil.Process(shared.process.pid), shared.daemon]
    before = sum(it.memory_info().rss for it in both)
    async with asyncio.timeout(180), asyncio.TaskGroup() as deaf:
        for messages in floods.values():
            frames = b"".join(
                b"\x89\xfd" + b"\0" * 129 if it is None else frame(it) for it in messages
            )
            deaf.create_task(send_and_read_nothing(shared, token, frames))
        deaf.create_task(have_a_turn(shared, token))
    assert sum(it.memory_info().rss for it in both) - before < 200 << 20


def frame(text: str) -> bytes:
    """A text message as clients send one."""
    data = text.encode()
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + data


async def send_and_read_nothing(served: Served, token: str, frames: bytes) -> None:
    """Until the server has had enough of it."""
    async with raw_socket(served, token) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frames)
        while not writer.transport.is_closing():
            writer.write(b"\x89\x80\0\0\0\0")
            await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_messages_that_never_end_cost_their_own_connections_alone(
    shared: Served, token: str
) -> None:
    begun = b"\x81\xff" + (60 << 20).to_bytes(8, "big") + b"\0\0\0\0" + bytes(55 << 20)
    server = psutil.Process(shared.process.pid)
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        writers = [
            (await stack.enter_async_context(raw_socket(shared, token)))[1] for _ in range(6)
        ]
        for writer in writers:
            writer.write(begun)
        while not any(writer.transport.is_closing() for writer in writers):
            await asyncio.sleep(0.1)
            assert server.memory_info().rss < 700 << 20
        await have_a_turn(shared, token)


def test_what_one_process_may_open_is_shared_between_them_and_what_they_need() -> None:
    for descriptors in (256, 1024, 4096, 1 << 20):
        found = limits_for(descriptors)
        assert found.unknown + 3 * found.known <= max(descriptors - 256, 32)
        assert found.unknown >= 8
        assert found.of_token < found.known
