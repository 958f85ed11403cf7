"""The promises of every transport.

They send lines of JSON, so that a transport of messages can be checked as well as one of bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import pytest
from msgspec import Struct

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc import Transport
from acp_wire.tasks import beside
from acp_wire.transports import messages, streams

MakePair: TypeAlias = Callable[[], Awaitable[tuple[Transport, Transport]]]
"""Makes two transports that are connected with each other."""

Keep: TypeAlias = Callable[[Transport, Transport], Awaitable[None]]
"""Raises AssertionError, or hangs, if the two do not keep a promise."""

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE

SECONDS: Final = 60.0
"""The longest that a promise may take; one that hangs is broken."""


class Promise(Struct, frozen=True):
    """One promise of a transport; `name` identifies it."""

    name: str
    keep: Callable[[Transport, Transport], Awaitable[None]]

    async def check(self, make_pair: MakePair) -> None:
        """Check the promise; raises AssertionError if it is broken, TimeoutError if it hangs."""
        async with asyncio.timeout(SECONDS):
            left, right = await make_pair()
            try:
                await self.keep(left, right)
            finally:
                await left.aclose()
                await right.aclose()


_PROMISES: Final[list[Promise]] = []


def _promised(name: str) -> Callable[[Keep], Keep]:
    """Register the decorated function as the promise of this name."""

    def register(keep: Keep) -> Keep:
        _PROMISES.append(Promise(name, keep))
        return keep

    return register


def _line(size: int) -> bytes:
    """Return a message of exactly so many bytes, with its line end."""
    return b'"' + os.urandom(size)[: (size - 3) // 2].hex().encode().ljust(size - 3, b"x") + b'"\n'


def _lines(size: int) -> bytes:
    """Return messages of a KiB each, of so many bytes together."""
    return _line(KIBIBYTE) * (size // KIBIBYTE)


async def _received(transport: Transport, size: int) -> bytes:
    """Return exactly `size` bytes, however they are cut; fewer at the end."""
    data = bytearray()
    while len(data) < size and (chunk := await transport.receive()):
        data += chunk
    return bytes(data)


@_promised("what one sends the other receives in order")
async def in_order(left: Transport, right: Transport) -> None:
    lines = [_line(size) for size in (3, 4, 100, 5, 70_000, 12)]
    for line in lines:
        left.send(line)
    assert await _received(right, len(b"".join(lines))) == b"".join(lines)


@_promised("a message larger than any buffer arrives whole")
async def whole(left: Transport, right: Transport) -> None:
    message = _line(3 * MEBIBYTE)
    left.send(message)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(left.drain())
        assert await _received(right, len(message)) == message


@_promised("both directions carry at the same time")
async def both_ways(left: Transport, right: Transport) -> None:
    there, back = _lines(MEBIBYTE), _lines(MEBIBYTE)
    left.send(there)
    right.send(back)
    at_left, at_right = await asyncio.gather(_received(left, MEBIBYTE), _received(right, MEBIBYTE))
    assert (at_left, at_right) == (back, there)


@_promised("a reader that stops holds the sender until it reads on")
async def back_pressure(left: Transport, right: Transport) -> None:
    sent = _lines(8 * MEBIBYTE)
    left.send(sent)
    draining = asyncio.create_task(left.drain())
    done, _ = await asyncio.wait([draining], timeout=0.1)
    assert not done, "drain returned although nobody reads"
    assert left.buffered > MEBIBYTE, "`buffered` does not count data that nobody has read"
    assert await _received(right, len(sent)) == sent
    await draining


@_promised("what the other says is received however much waits for it")
async def reads_on(left: Transport, right: Transport) -> None:
    left.send(_lines(12 * MEBIBYTE))
    for _ in range(100):
        line = _line(20)
        right.send(line)
        assert await _received(left, len(line)) == line
    assert left.buffered > MEBIBYTE


@_promised("after the end receive answers nothing again and again")
async def ends(left: Transport, right: Transport) -> None:
    words = _line(20)
    left.send(words)
    await left.aclose()
    assert await _received(right, len(words)) == words
    assert [await right.receive() for _ in range(3)] == [b"", b"", b""]


@_promised("sending to who has gone is silent, and drain and receive tell")
async def gone(left: Transport, right: Transport) -> None:
    await right.aclose()
    with suppress(ConnectionLostError):
        while True:
            left.send(_line(KIBIBYTE))
            await left.drain()
            await asyncio.sleep(0)
    left.send(_line(KIBIBYTE))
    assert left.buffered == 0, "data for a closed reader is still buffered"
    while await left.receive():
        pass


@_promised("drain ends when the reader leaves in the middle")
async def gone_meanwhile(left: Transport, right: Transport) -> None:
    left.send(_lines(8 * MEBIBYTE))
    draining = asyncio.create_task(left.drain())
    await asyncio.sleep(0)
    await right.aclose()
    try:
        await draining
    except ConnectionLostError:
        return
    raise AssertionError("drain returned although the reader has left")


@_promised("closing waits for the reader to take what is queued")
async def flushes(left: Transport, right: Transport) -> None:
    sent = _lines(MEBIBYTE)
    left.send(sent)
    with pytest.MonkeyPatch.context() as patch:
        for module in (messages, streams):  # on a busy machine a reader takes longer than that
            patch.setattr(module, "FLUSH_SECONDS", SECONDS)
        _, received = await asyncio.gather(left.aclose(), _received(right, len(sent)))
    assert received == sent


@_promised("closing does not wait for a reader that never reads")
async def closes(left: Transport, right: Transport) -> None:
    left.send(_lines(8 * MEBIBYTE))  # nobody reads it
    await left.aclose()
    assert left.buffered == 0
    await left.aclose()


@_promised("closing ends our own receive")
async def ends_own(left: Transport, right: Transport) -> None:
    receiving = asyncio.create_task(left.receive())
    await asyncio.sleep(0)
    await left.aclose()
    assert await receiving == b""


@_promised("a cancelled receive loses nothing")
async def loses_nothing(left: Transport, right: Transport) -> None:
    kept = _line(20)
    receiving = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    left.send(kept)
    receiving.cancel()
    [done], _ = await asyncio.wait([receiving])
    had = b"" if done.cancelled() else done.result()
    assert had + await _received(right, len(kept) - len(had)) == kept


@_promised("a flood leaves room for other tasks")
async def leaves_room(left: Transport, right: Transport) -> None:
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with beside(bystander(), "bystander"):
        for _ in range(1000):
            left.send(_line(KIBIBYTE))
            await right.receive()
    assert turns >= 50, "other tasks did not run during a flood"


TRANSPORT_PROMISES: Final = tuple(_PROMISES)
"""All promises of a transport."""
