"""Transports in memory, and over a pair of asyncio streams.

The one in memory is for agents that run beside their client in one process, and for tests; the
other for a connection of asyncio, as in the callback of `asyncio.start_server`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from acp_wire.errors import ConnectionLostError
from acp_wire.tasks import timeout
from acp_wire.transports.pipes import FLUSH_SECONDS, LOW_WATER, READ_SIZE

CAPACITY = 64 * 1024
"""Bytes on the way in one direction before the rest waits at the sender, as in a Linux pipe."""


def memory_pair(capacity: int = CAPACITY) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two connected transports; each direction holds `capacity` bytes, the rest is
    `buffered`."""
    there, back = _Pipe(capacity), _Pipe(capacity)
    return MemoryTransport(back, there), MemoryTransport(there, back)


class MemoryTransport:
    """One end of a `memory_pair`; keeps the same contract as a transport over pipes."""

    def __init__(self, source: _Pipe, sink: _Pipe) -> None:
        self._source = source
        self._sink = sink

    async def receive(self) -> bytes:
        """Return the next bytes, at most READ_SIZE; b"" once the other side has closed, and ever
        after."""
        await asyncio.sleep(0)  # a flood from one peer must not starve the others
        return await self._source.take(READ_SIZE)

    def send(self, data: bytes) -> None:
        """Hand over `data`; dropped once the other side has closed."""
        self._sink.put(data)

    @property
    def buffered(self) -> int:
        """Bytes beyond the capacity that wait for the other side to receive."""
        return self._sink.excess

    async def drain(self) -> None:
        """Wait until less than LOW_WATER is buffered; ConnectionLostError if it is closed."""
        await self._sink.excess_below(LOW_WATER)
        if self._sink.closed:
            raise ConnectionLostError("the other side has closed the connection")

    async def aclose(self) -> None:
        """Wait at most FLUSH_SECONDS for the buffered bytes, then close; may be called again."""
        try:
            with suppress(TimeoutError):
                async with timeout(FLUSH_SECONDS):
                    await self._sink.excess_below(1)
        finally:
            self._sink.close(self._sink.capacity)
            self._source.close(0)


class _Pipe:
    """One direction: bytes, a limit, and the two ways it ends (writer gone, reader gone)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held = bytearray()
        self._changed = asyncio.Event()
        self.closed = False

    @property
    def excess(self) -> int:
        return max(0, len(self._held) - self.capacity)

    def put(self, data: bytes) -> None:
        if not self.closed:
            self._held += data
            self._changed.set()

    async def take(self, limit: int) -> bytes:
        while not self._held:
            if self.closed:
                return b""
            await self._change()
        size = min(limit, self.capacity)
        data = bytes(self._held[:size])
        del self._held[:size]
        self._changed.set()
        return data

    async def excess_below(self, limit: int) -> None:
        while self.excess >= limit:
            await self._change()

    def close(self, kept: int) -> None:
        """Note that nothing more is written; only the first `kept` bytes can still be taken."""
        del self._held[kept:]
        self.closed = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class StreamTransport:
    """The transport over two asyncio streams; it owns both, and closes them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._closing: asyncio.Task[None] | None = None

    async def receive(self) -> bytes:
        """Return the next bytes, at most READ_SIZE; b"" once the other side has ended, and ever
        after."""
        await asyncio.sleep(0)  # a flood from one peer must not starve the others
        if self._closing is not None:
            return b""
        try:
            return await self._reader.read(READ_SIZE)
        except OSError:  # reset, or given up by the network
            return b""

    def send(self, data: bytes) -> None:
        """Queue `data`; dropped once the other side has gone."""
        if not self._writer.is_closing():
            self._writer.write(data)

    @property
    def buffered(self) -> int:
        """Bytes that the operating system has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError if the other side has gone."""
        try:
            await self._writer.drain()
        except OSError as exc:
            raise ConnectionLostError(f"the other side has gone: {exc}") from exc
        if self._writer.is_closing():
            raise ConnectionLostError("the connection is closed")

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then close both streams; may be called again."""
        if self._closing is None:
            self._writer.close()

            async def close() -> None:
                with suppress(OSError):  # it went without taking everything
                    await self._writer.wait_closed()

            # In a task: cancelling a direct wait for it would end every later one, too.
            self._closing = asyncio.create_task(close(), name="close streams")
        try:
            await asyncio.wait([self._closing], timeout=FLUSH_SECONDS)
        finally:
            if not self._closing.done():  # the other side does not read: the rest is lost
                self._writer.transport.abort()
        await asyncio.wait([self._closing])
