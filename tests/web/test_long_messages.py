"""A long message is handed on in pieces, and one that is too long is refused, with its id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import acphold
from acphold.web import bounds
from acphold.web.connections import whole
from acphold.web.socket_transport import SocketTransport
from tests.web.conftest import Served

pytestmark = pytest.mark.slow

PIECE = bounds.MESSAGE_PIECE_BYTES


class Protocol:
    """A source of messages; nothing is sent to it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.receive = self.queue.get


async def test_a_long_message_is_handed_on_in_pieces_between_which_others_have_their_turn() -> None:
    protocol = Protocol()
    transport = SocketTransport(protocol, whole)  # type: ignore[arg-type]
    said = json.dumps({"text": "x" * (10 * PIECE)}, indent=1).encode()
    for message in (said, b"short", b"y" * PIECE, b"z" * (PIECE - 1)):
        transport.take(message)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    came, pieces = b"", 0
    while came.count(b"\n") < 4:
        async with asyncio.timeout(10):
            piece = await transport.receive()
        assert len(piece) <= PIECE + 1
        assert turns >= pieces
        pieces += len(piece) == PIECE
        came += piece
    beside.cancel()
    assert pieces >= 10
    first, *rest = came.split(b"\n")
    is_same = json.loads(first) == json.loads(said)
    assert is_same  # not to be shown piece by piece
    assert [len(each) for each in rest] == [5, PIECE, PIECE - 1, 0]


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_prompt_that_is_too_long_for_the_network_is_refused_and_the_next_is_taken(
    served: Served, transport: str
) -> None:
    url = f"{served.url}?transport={transport}"
    async with asyncio.timeout(60), acphold.connect(url, token=served.token()) as agent:
        session = await agent.new_session(cwd=served.folder)
        with pytest.raises(acphold.AcpError, match=str(bounds.MESSAGE_BYTES)):
            await session.prompt("quick: " + "x" * bounds.MESSAGE_BYTES)
        assert "on" in (await session.prompt("quick: go on")).text
