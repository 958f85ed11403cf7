"""HTTP as our own server speaks it, with any application behind it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from acphold.web import bounds
from acphold.web.connections import STATE, Connections, Receive, Scope, Send, limits_for
from acphold.web.protocols import HttpProtocol
from acphold.web.server import _running


async def test_an_answer_behind_which_others_are_asked_for_ends_when_its_client_goes() -> None:
    streaming, over = asyncio.Event(), asyncio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        going = asyncio.create_task(gone())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not going.done():
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            streaming.set()
            await asyncio.wait([going], timeout=0.01)
        over.set()

    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        async with (
            asyncio.timeout(30),
            _running(app, bound, None, Connections(limits_for(1024)), 1 << 20),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
            await streaming.wait()
            writer.transport.abort()
            await over.wait()


GET = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(("requests", "at_once"), [([GET] * 300, 1), ([POST, *[GET] * 299], 10)])
async def test_requests_sent_behind_an_unanswered_one_are_neither_read_nor_kept_before_it_is(
    monkeypatch: pytest.MonkeyPatch, requests: list[bytes], at_once: int
) -> None:
    may_answer = asyncio.Event()
    read: list[bytes] = []
    on_url = HttpProtocol.on_url

    def noted(protocol: HttpProtocol, url: bytes) -> None:
        read.append(url)
        on_url(protocol, url)

    monkeypatch.setattr(HttpProtocol, "on_url", noted)
    monkeypatch.setattr(bounds, "STRANGERS_REQUESTS", 1e6)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            await may_answer.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        connections = Connections(limits_for(1024))
        async with (
            asyncio.timeout(60),
            _running(app, bound, None, connections, 1 << 20),
            AsyncExitStack() as opened,
        ):
            strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(11)]
            for _, writer in strangers:
                opened.push_async_callback(writer.wait_closed)
                opened.callback(writer.close)
            reader, writer = strangers.pop()
            for _, stranger in strangers:
                stranger.write(b"".join(requests))
                await stranger.drain()
            writer.write(b"GET /user HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert read.count(b"/wait") <= at_once * len(strangers)
            may_answer.set()
            for answers, _ in strangers:
                for _ in requests:
                    assert (await answers.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert read.count(b"/wait") == len(requests) * len(strangers)


async def test_so_many_requests_of_strangers_are_read_a_second_and_a_user_waits_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STRANGERS_REQUESTS", 50.0)
    monkeypatch.setattr(bounds, "STRANGERS_AT_ONCE", 20)
    read = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal read
        if scope["path"] == "/user":
            connections.count_for(scope["state"][STATE], "token")
        else:
            read += 1
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        connections = Connections(limits_for(1024))
        async with (
            asyncio.timeout(60),
            _running(app, bound, None, connections, 1 << 20),
            AsyncExitStack() as opened,
        ):
            began = loop.time()
            strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _, each in (*strangers, (reader, writer)):
                opened.push_async_callback(each.wait_closed)
                opened.callback(each.close)
            for _, stranger in strangers:
                stranger.write(GET * 300)
                await stranger.drain()
            for _ in range(500):
                writer.write(b"GET /user HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"no")
            served = loop.time()
            assert read <= 20 + 50 * (served - began) + len(strangers)
            answers, _ = strangers[0]
            for _ in range(4):  # they are answered in turn
                await answers.readuntil(b"no")
