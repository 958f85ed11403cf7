"""Sending messages over a connection that carries messages."""

from __future__ import annotations

import asyncio

from acp_wire.errors import ConnectionLostError
from acp_wire.transports.messages import MessageTransport


class Taking:
    """A connection that accepts messages at once while it has `room`."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.room = asyncio.Event()
        self.fault: Exception | None = None
        self.is_closed = False

    async def receive(self) -> str | None:
        return None

    async def send(self, text: str) -> None:
        await self.room.wait()
        if self.fault is not None:
            raise self.fault
        self.taken.append(text)

    async def aclose(self) -> None:
        self.is_closed = True


async def test_a_message_goes_out_in_the_step_that_sends_it() -> None:
    connection = Taking()
    connection.room.set()
    transport = MessageTransport(connection)
    transport.send(b"1\n2\n3")
    transport.send(b"4\n")
    assert (connection.taken, transport.buffered) == (["1", "2", "34"], 0)
    await transport.aclose()
    assert connection.is_closed


async def test_what_is_sent_while_a_connection_takes_nothing_follows_in_order() -> None:
    connection = Taking()
    transport = MessageTransport(connection)
    for number in range(3):
        transport.send(b"%d\n" % number)
    assert (connection.taken, transport.buffered) == ([], 6)
    connection.room.set()
    async with asyncio.timeout(10):
        await transport.aclose()
    assert connection.taken == ["0", "1", "2"]


async def test_a_connection_that_fails_is_given_up_and_who_sends_goes_on() -> None:
    for fault in (ConnectionLostError("gone"), ValueError("of somebody else's")):
        connection = Taking()
        connection.room.set()
        connection.fault = fault
        transport = MessageTransport(connection)
        transport.send(b"1\n")
        connection.fault = None
        transport.send(b"2\n")
        assert (connection.taken, transport.buffered) == ([], 0)
        await transport.aclose()
        assert connection.is_closed
