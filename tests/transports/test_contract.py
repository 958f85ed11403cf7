"""What every transport promises, checked on each kind: memory, pipes and sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.errors import ConnectionLostError
from acphold.rpc.transport import Transport
from acphold.transports.memory import memory_pair
from acphold.transports.pipes import PipeTransport

Pair = tuple[Transport, Transport]
MEBIBYTE = 1024 * 1024


def pipe_pair() -> Pair:
    there, back = os.pipe(), os.pipe()
    return PipeTransport(back[0], there[1]), PipeTransport(there[0], back[1])


def socket_pair() -> Pair:
    left, right = (end.detach() for end in socket.socketpair())
    return PipeTransport(left, os.dup(left)), PipeTransport(right, os.dup(right))


PAIRS: list[Callable[[], Pair]] = [memory_pair, pipe_pair, socket_pair]
every_kind = pytest.mark.parametrize("make", PAIRS)


async def received(transport: Transport, size: int) -> bytes:
    """Exactly `size` bytes, however they are cut; fewer at the end."""
    data = b""
    while len(data) < size and (chunk := await transport.receive()):
        data += chunk
    return data


@every_kind
@given(chunks=st.lists(st.binary(max_size=300), max_size=20))
def test_what_one_sends_the_other_receives_in_order(
    make: Callable[[], Pair], chunks: list[bytes]
) -> None:
    async def talk() -> bytes:
        left, right = make()
        for chunk in chunks:
            left.send(chunk)
        await left.aclose()
        data = await received(right, MEBIBYTE)
        await right.aclose()
        return data

    assert asyncio.run(talk()) == b"".join(chunks)


@every_kind
async def test_a_message_larger_than_any_buffer_arrives_whole(make: Callable[[], Pair]) -> None:
    left, right = make()
    message = os.urandom(3 * MEBIBYTE)
    left.send(message)
    assert left.buffered > 0
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(left.drain())
        assert await received(right, len(message)) == message
    await left.aclose()
    await right.aclose()


@every_kind
async def test_both_directions_carry_at_the_same_time(make: Callable[[], Pair]) -> None:
    left, right = make()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        left.send(b"a" * MEBIBYTE)
        right.send(b"b" * MEBIBYTE)
        at_left = tasks.create_task(received(left, MEBIBYTE))
        at_right = tasks.create_task(received(right, MEBIBYTE))
    assert at_left.result() == b"b" * MEBIBYTE
    assert at_right.result() == b"a" * MEBIBYTE
    await left.aclose()
    await right.aclose()


@every_kind
async def test_a_reader_that_stops_holds_the_sender_until_it_reads_on(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    left.send(b"x" * 2 * MEBIBYTE)
    draining = asyncio.create_task(left.drain())
    await asyncio.wait([draining], timeout=0.05)
    assert not draining.done()
    assert left.buffered > MEBIBYTE
    async with asyncio.timeout(10):
        await received(right, 2 * MEBIBYTE)
        await draining
    assert left.buffered == 0
    await left.aclose()
    await right.aclose()


@every_kind
async def test_what_the_other_side_says_is_received_however_much_waits_for_it(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    left.send(b"x" * 20 * MEBIBYTE)
    async with asyncio.timeout(10):
        for number in range(100):
            right.send(b"%d\n" % number)
            assert await received(left, len(b"%d\n" % number)) == b"%d\n" % number
    assert left.buffered > 19 * MEBIBYTE
    await right.aclose()
    await left.aclose()


@every_kind
async def test_after_the_end_receive_answers_nothing_again_and_again(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    left.send(b"last words")
    await left.aclose()
    assert await right.receive() == b"last words"
    assert [await right.receive() for _ in range(3)] == [b"", b"", b""]
    await right.aclose()
    assert await right.receive() == b""


@every_kind
async def test_sending_to_who_has_gone_is_silent_and_drain_tells(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    await right.aclose()
    left.send(b"hello?")
    left.send(b"x" * MEBIBYTE)
    assert left.buffered == 0
    with pytest.raises(ConnectionLostError):
        await left.drain()
    assert await left.receive() == b""
    await left.aclose()


@every_kind
async def test_drain_ends_when_the_reader_leaves_in_the_middle(make: Callable[[], Pair]) -> None:
    left, right = make()
    left.send(b"x" * MEBIBYTE)
    draining = asyncio.create_task(left.drain())
    await asyncio.sleep(0)
    await right.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLostError):
            await draining
    await left.aclose()


@every_kind
async def test_closing_waits_for_the_reader_to_take_what_is_queued(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    left.send(b"x" * MEBIBYTE)
    closing = asyncio.create_task(left.aclose())
    async with asyncio.timeout(5):
        assert len(await received(right, 2 * MEBIBYTE)) == MEBIBYTE
        await closing
    await right.aclose()


@every_kind
async def test_closing_does_not_wait_for_a_reader_that_never_reads(
    make: Callable[[], Pair],
) -> None:
    left, right = make()
    left.send(b"x" * MEBIBYTE)
    await left.aclose()
    assert left.buffered == 0
    await left.aclose()
    await right.aclose()


@every_kind
async def test_closing_ends_our_own_receive(make: Callable[[], Pair]) -> None:
    left, right = make()
    receiving = asyncio.create_task(left.receive())
    await asyncio.sleep(0)
    await left.aclose()
    async with asyncio.timeout(5):
        assert await receiving == b""
    await right.aclose()


@every_kind
async def test_a_cancelled_receive_loses_nothing(make: Callable[[], Pair]) -> None:
    left, right = make()
    receiving = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    left.send(b"kept")
    receiving.cancel()
    await asyncio.wait([receiving])
    async with asyncio.timeout(5):
        assert await right.receive() == b"kept"
    await left.aclose()
    await right.aclose()


@every_kind
async def test_a_flood_leaves_room_for_other_tasks(make: Callable[[], Pair]) -> None:
    left, right = make()
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.timeout(10):
        other = asyncio.create_task(bystander())
        for _ in range(1000):
            left.send(b"x" * 1000)
            await right.receive()
        other.cancel()
    assert turns >= 50
    await left.aclose()
    await right.aclose()
