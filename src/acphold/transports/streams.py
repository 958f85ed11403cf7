"""The transport over a pair of asyncio streams: from `asyncio.open_connection`, or from the
callback of `asyncio.start_server`."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from acphold.errors import ConnectionLostError
from acphold.transports.pipes import FLUSH_SECONDS, READ_SIZE


class StreamTransport:
    """See the module; it owns both streams, and closes them."""

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
            # In a task: cancelling a direct wait for it would end every later one, too.
            self._closing = asyncio.create_task(self._closed(), name="close streams")
        try:
            await asyncio.wait([self._closing], timeout=FLUSH_SECONDS)
        finally:
            if not self._closing.done():  # the other side does not read: the rest is lost
                self._writer.transport.abort()
        await asyncio.wait([self._closing])

    async def _closed(self) -> None:
        with suppress(OSError):  # it went without taking everything
            await self._writer.wait_closed()
