"""The promises of every transport, for authors of one: run them on yours.

    @pytest.mark.parametrize("promise", acphold.testing.TRANSPORT_PROMISES, ids=lambda it: it.name)
    async def test_my_transport(promise: acphold.testing.Promise) -> None:
        await promise.check(make_pair)

`make_pair` returns two connected transports. They carry lines of JSON, so that a transport of
messages can be checked as well as one of bytes; it should not compress them, as they are much
alike.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import starmap
from typing import Final, TypeAlias

from msgspec import Struct

from acphold.errors import ConnectionLostError
from acphold.rpc import Transport

MakePair: TypeAlias = Callable[[], Awaitable[tuple[Transport, Transport]]]
"""Makes two transports that are connected with each other."""

SECONDS: Final = 60.0
"""Longest time for any promise, in seconds; one that hangs is broken."""

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE


class Promise(Struct, frozen=True):
    """One promise of a transport; `name` identifies it."""

    name: str
    keep: Callable[[Transport, Transport], Awaitable[None]]

    async def check(self, make_pair: MakePair) -> None:
        """Check the promise; raises AssertionError if it is broken, TimeoutError if it hangs."""
        async with asyncio.timeout(SECONDS), _pair(make_pair) as (left, right):
            await self.keep(left, right)


@asynccontextmanager
async def _pair(make_pair: MakePair) -> AsyncIterator[tuple[Transport, Transport]]:
    left, right = await make_pair()
    try:
        yield left, right
    finally:
        await left.aclose()
        await right.aclose()


def _line(size: int) -> bytes:
    """Return a message of exactly so many bytes, with its line end."""
    return b'"' + os.urandom(size)[: (size - 3) // 2].hex().encode().ljust(size - 3, b"x") + b'"\n'


def _lines(size: int) -> bytes:
    """Return messages of a KiB each, of so many bytes together."""
    return _line(KIBIBYTE) * (size // KIBIBYTE)


async def _received(transport: Transport, size: int) -> bytes:
    """Return exactly `size` bytes, however they are cut; fewer at the end."""
    data = b""
    while len(data) < size and (chunk := await transport.receive()):
        data += chunk
    return data


async def _told(transport: Transport) -> None:
    """Send until an error says that the other side has gone."""
    try:
        while True:
            transport.send(_line(KIBIBYTE))
            await transport.drain()
            await asyncio.sleep(0)
    except ConnectionLostError:
        pass


async def _in_order(left: Transport, right: Transport) -> None:
    lines = [_line(size) for size in (3, 4, 100, 5, 70_000, 12)]
    for line in lines:
        left.send(line)
    assert await _received(right, len(b"".join(lines))) == b"".join(lines)


async def _whole(left: Transport, right: Transport) -> None:
    message = _line(3 * MEBIBYTE)
    left.send(message)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(left.drain())
        assert await _received(right, len(message)) == message


async def _both_ways(left: Transport, right: Transport) -> None:
    there, back = _lines(MEBIBYTE), _lines(MEBIBYTE)
    left.send(there)
    right.send(back)
    at_left, at_right = await asyncio.gather(_received(left, MEBIBYTE), _received(right, MEBIBYTE))
    assert (at_left, at_right) == (back, there)


async def _back_pressure(left: Transport, right: Transport) -> None:
    sent = _lines(8 * MEBIBYTE)
    left.send(sent)
    draining = asyncio.create_task(left.drain())
    done, _ = await asyncio.wait([draining], timeout=0.1)
    assert not done, "drain returned though nobody reads"
    assert left.buffered > MEBIBYTE, "what nobody reads is not said to be buffered"
    assert await _received(right, len(sent)) == sent
    await draining


async def _reads_on(left: Transport, right: Transport) -> None:
    left.send(_lines(12 * MEBIBYTE))
    for _ in range(100):
        line = _line(20)
        right.send(line)
        assert await _received(left, len(line)) == line
    assert left.buffered > MEBIBYTE


async def _ends(left: Transport, right: Transport) -> None:
    words = _line(20)
    left.send(words)
    await left.aclose()
    assert await _received(right, len(words)) == words
    assert [await right.receive() for _ in range(3)] == [b"", b"", b""]


async def _gone(left: Transport, right: Transport) -> None:
    await right.aclose()
    await _told(left)
    left.send(_line(KIBIBYTE))
    assert left.buffered == 0, "what is for nobody is kept"
    while await left.receive():
        pass


async def _gone_meanwhile(left: Transport, right: Transport) -> None:
    left.send(_lines(8 * MEBIBYTE))
    draining = asyncio.create_task(left.drain())
    await asyncio.sleep(0)
    await right.aclose()
    try:
        await draining
    except ConnectionLostError:
        return
    raise AssertionError("drain returned though the reader has left")


async def _flushes(left: Transport, right: Transport) -> None:
    sent = _lines(MEBIBYTE)
    left.send(sent)
    _, received = await asyncio.gather(left.aclose(), _received(right, len(sent)))
    assert received == sent


async def _closes(left: Transport, right: Transport) -> None:
    left.send(_lines(8 * MEBIBYTE))  # nobody reads it
    await left.aclose()
    assert left.buffered == 0
    await left.aclose()


async def _ends_own(left: Transport, right: Transport) -> None:
    receiving = asyncio.create_task(left.receive())
    await asyncio.sleep(0)
    await left.aclose()
    assert await receiving == b""


async def _loses_nothing(left: Transport, right: Transport) -> None:
    kept = _line(20)
    receiving = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    left.send(kept)
    receiving.cancel()
    [done], _ = await asyncio.wait([receiving])
    had = b"" if done.cancelled() else done.result()
    assert had + await _received(right, len(kept) - len(had)) == kept


async def _leaves_room(left: Transport, right: Transport) -> None:
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(bystander())
    try:
        for _ in range(1000):
            left.send(_line(KIBIBYTE))
            await right.receive()
    finally:
        other.cancel()
    assert turns >= 50, "a flood leaves no room for other tasks"


_PROMISED: Final = (
    ("what one sends the other receives in order", _in_order),
    ("a message larger than any buffer arrives whole", _whole),
    ("both directions carry at the same time", _both_ways),
    ("a reader that stops holds the sender until it reads on", _back_pressure),
    ("what the other says is received however much waits for it", _reads_on),
    ("after the end receive answers nothing again and again", _ends),
    ("sending to who has gone is silent, and drain and receive tell", _gone),
    ("drain ends when the reader leaves in the middle", _gone_meanwhile),
    ("closing waits for the reader to take what is queued", _flushes),
    ("closing does not wait for a reader that never reads", _closes),
    ("closing ends our own receive", _ends_own),
    ("a cancelled receive loses nothing", _loses_nothing),
    ("a flood leaves room for other tasks", _leaves_room),
)
TRANSPORT_PROMISES: Final = tuple(starmap(Promise, _PROMISED))
"""All promises of a transport."""
