"""Every transport keeps all promises."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.websockets import WebSocket, WebSocketState
from websockets.asyncio import client, server

from acp_wire.rpc import Transport
from acp_wire.transports.messages import over_websocket
from acp_wire.transports.pipes import PipeTransport
from acp_wire.transports.streams import StreamTransport, memory_pair
from tests.transports.promises import TRANSPORT_PROMISES, MakePair, Promise

pytestmark = pytest.mark.slow

Pair = tuple[Transport, Transport]


async def memory() -> Pair:
    return memory_pair()


async def pipes() -> Pair:
    there, back = os.pipe(), os.pipe()
    return PipeTransport(back[0], there[1]), PipeTransport(there[0], back[1])


async def sockets() -> Pair:
    left, right = (end.detach() for end in socket.socketpair())
    return PipeTransport(left, os.dup(left)), PipeTransport(right, os.dup(right))


async def streams() -> Pair:
    left, right = [
        StreamTransport(*await asyncio.open_connection(sock=end)) for end in socket.socketpair()
    ]
    return left, right


async def tcp() -> Pair:
    came: asyncio.Future[Transport] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set_result(StreamTransport(reader, writer))

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    near = StreamTransport(*await asyncio.open_connection(host, port))
    far = await came
    listening.close()
    return near, far


async def websockets() -> Pair:
    came: asyncio.Future[Transport] = asyncio.get_running_loop().create_future()

    async def take(connection: server.ServerConnection) -> None:
        came.set_result(over_websocket(connection))
        await connection.wait_closed()

    listening = await server.serve(
        take, "127.0.0.1", 0, max_size=None, close_timeout=1, compression=None
    )
    host, port = next(iter(listening.sockets)).getsockname()
    url = f"ws://{host}:{port}"
    near = over_websocket(
        await client.connect(url, max_size=None, close_timeout=1, compression=None)
    )
    far = await came
    listening.close(close_connections=False)
    return near, far


class _Wire:
    """One direction of a WebSocket, played as by an ASGI server."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque()
        self._changed = asyncio.Condition()
        self._is_over = False

    async def put(self, text: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_over or len(self._messages) < 16)
            if self._is_over:
                raise OSError("the client has gone")
            self._messages.append(text)
            self._changed.notify_all()

    async def take(self) -> str | None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_over or bool(self._messages))
            self._changed.notify_all()
            return self._messages.popleft() if self._messages else None

    async def end(self) -> None:
        async with self._changed:
            self._is_over = True
            self._changed.notify_all()


def _starlette_end(inward: _Wire, outward: _Wire) -> Transport:
    async def receive() -> dict[str, Any]:
        if (text := await inward.take()) is None:
            return {"type": "websocket.disconnect", "code": 1000}
        return {"type": "websocket.receive", "text": text}

    async def send(message: Any) -> None:
        if message["type"] == "websocket.close":
            await inward.end()
            await outward.end()
        else:
            await outward.put(message["text"])

    made = WebSocket({"type": "websocket"}, receive, send)
    made.client_state = made.application_state = WebSocketState.CONNECTED
    return over_websocket(made)


async def starlette() -> Pair:
    there, back = _Wire(), _Wire()
    return _starlette_end(back, there), _starlette_end(there, back)


@pytest.mark.parametrize("promise", TRANSPORT_PROMISES, ids=lambda promise: promise.name)
@pytest.mark.parametrize(
    "make",
    [memory, pipes, sockets, streams, tcp, websockets, starlette],
    ids=lambda it: it.__name__,
)
async def test_our_transports_keep_what_a_transport_promises(
    make: MakePair, promise: Promise
) -> None:
    await promise.check(make)


@pytest.mark.parametrize("make", [memory, pipes, sockets], ids=lambda it: it.__name__)
@given(chunks=st.lists(st.binary(max_size=300), max_size=20))
def test_bytes_arrive_in_order_wherever_they_are_cut(make: MakePair, chunks: list[bytes]) -> None:
    async def talk() -> bytes:
        left, right = await make()
        for chunk in chunks:
            left.send(chunk)
        await left.aclose()
        data = b""
        while chunk := await right.receive():
            data += chunk
        await right.aclose()
        return data

    assert asyncio.run(talk()) == b"".join(chunks)
