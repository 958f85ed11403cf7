"""The way of a message over HTTP: in the step that has it, and no more often than it has to."""

from __future__ import annotations

import asyncio

import pytest

from acphold.rpc.transport import OfferingTransport
from acphold.web.streams import EventStream, HttpTransport, read

LINE = b'{"method":"x"}\n'


async def test_a_position_alone_is_said_with_what_follows_and_else_in_a_moment() -> None:
    stream = EventStream(lambda: None)
    events = stream.open()

    async def next_() -> bytes:
        async with asyncio.timeout(10):
            return await anext(events)

    reading = asyncio.create_task(next_())
    await asyncio.sleep(0)
    stream.add(b"id: 1\n\n", may_wait=True)
    stream.add(b"id: 2\ndata: x\n\n")
    assert await reading == b"id: 1\n\nid: 2\ndata: x\n\n"
    reading = asyncio.create_task(next_())
    await asyncio.sleep(0)
    stream.add(b"id: 3\n\n", may_wait=True)
    assert await reading == b"id: 3\n\n"


async def test_what_is_posted_is_taken_in_that_step_by_who_waits_for_it() -> None:
    transport = HttpTransport("token")
    assert isinstance(transport, OfferingTransport)
    taken: list[bytes] = []

    def take(line: bytes) -> bool:
        taken.append(line)
        return len(taken) == 1

    transport.offer_to(take)
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    for _ in range(2):
        await transport.post(LINE, read(LINE))
    assert taken == [LINE, LINE]
    async with asyncio.timeout(10):
        assert await receiving == LINE  # the second, which was refused
        transport.end()
        assert await transport.receive() == b""
    assert not transport.is_read


async def test_what_fails_in_that_step_is_told_to_who_receives() -> None:
    transport = HttpTransport("token")

    def take(_: bytes) -> bool:
        raise ValueError("it fails")

    transport.offer_to(take)
    receiving = asyncio.create_task(transport.receive())
    await asyncio.sleep(0)
    await transport.post(LINE, read(LINE))
    with pytest.raises(ValueError, match="it fails"):
        async with asyncio.timeout(10):
            await receiving
