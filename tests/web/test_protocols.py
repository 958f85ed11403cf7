"""HTTP as our own server speaks it, with any application behind it."""

from __future__ import annotations

import asyncio
import socket

from acphold.web.connections import Connections, Receive, Scope, Send, limits_for
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
