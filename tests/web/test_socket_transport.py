"""Framing of WebSocket messages that bypass ASGI."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from acphold.web.connections import whole
from acphold.web.socket_transport import SocketTransport, in_frame, is_between_frames


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20])
def test_a_message_of_any_length_is_framed_as_the_library_frames_it(size: int) -> None:
    text = b"x" * size
    assert in_frame(text) == Frame(Opcode.TEXT, text).serialize(mask=False)


MOST = 65_534


@pytest.fixture
def transport() -> SocketTransport:
    """That of a WebSocket whose client has said nothing yet."""
    client, conn = ClientProtocol(parse_uri("ws://here/")), ServerProtocol(max_size=MOST)
    client.send_request(client.connect())
    conn.receive_data(b"".join(client.data_to_send()))
    (request,) = conn.events_received()
    conn.send_response(conn.accept(cast("Any", request)))
    queue = asyncio.Queue[dict[str, Any]]()
    paused = SimpleNamespace(pause_reading=lambda: None)
    config = SimpleNamespace(ws_max_size=MOST)
    protocol = SimpleNamespace(conn=conn, queue=queue, transport=paused, config=config)
    vars(protocol).update(frames=[], close_sent=False, read_paused=False)
    return SocketTransport(cast("Any", protocol), whole)


def frame(kind: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(kind, data, fin=fin).serialize(mask=True)


@pytest.mark.parametrize("size", [2, 125, 126, 127, 128, MOST])
async def test_a_read_that_is_a_whole_text_message_is_taken_as_it_was_sent(
    size: int, transport: SocketTransport
) -> None:
    assert transport.take_frame(frame(Opcode.TEXT, b"x" * size))
    assert transport._protocol.queue.get_nowait() == {
        "type": "websocket.receive",
        "bytes": b"x" * size + b"\n",
    }


LINE = b'{"a":1}'
TEXT = frame(Opcode.TEXT, LINE)


@pytest.mark.parametrize(
    "data",
    [
        *(TEXT[:-1], TEXT + TEXT, TEXT + b"\x81"),
        frame(Opcode.TEXT, LINE, fin=False),
        *(frame(kind, LINE) for kind in (Opcode.BINARY, Opcode.CONT, Opcode.PING)),
        Frame(Opcode.TEXT, LINE).serialize(mask=False),
        b"\x81\xff" + b"x" * 131,
        *(frame(Opcode.TEXT, b"x" * size) for size in (MOST + 1, 65_536)),
    ],
    ids=range(11),  # masks are random
)
async def test_any_other_read_is_left_to_the_library(
    data: bytes, transport: SocketTransport
) -> None:
    assert not transport.take_frame(data)


def leave(transport: SocketTransport, data: bytes) -> None:
    """Have the library read this."""
    assert not transport.take_frame(data)
    transport._protocol.conn.receive_data(data)


@pytest.mark.parametrize("before", [0, 1, 50])
async def test_what_only_looks_like_a_frame_is_the_rest_of_one(
    before: int, transport: SocketTransport
) -> None:
    begin = b"\x81" + bytes([0x80 + before + len(TEXT)]) + bytes(4)  # a mask that changes nothing
    long = begin + b"x" * before + TEXT
    assert transport.take_frame(TEXT)
    leave(transport, long[: -len(TEXT)])
    leave(transport, long[-len(TEXT) :])
    assert transport.take_frame(TEXT)


async def test_a_message_between_the_pieces_of_another_and_behind_the_end_is_not_taken(
    transport: SocketTransport,
) -> None:
    transport._protocol.frames = [b"begun"]
    assert not transport.take_frame(TEXT)
    transport._protocol.frames = []
    assert transport.take_frame(TEXT)
    leave(transport, frame(Opcode.CLOSE, b""))
    assert not transport.take_frame(TEXT)


def test_a_library_that_parses_in_another_way_reads_everything_itself() -> None:
    for other in (SimpleNamespace(), SimpleNamespace(parser=iter(()))):
        assert not is_between_frames(cast("ServerProtocol", other))
