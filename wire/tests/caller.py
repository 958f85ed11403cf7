"""A client for tests at one end of a transport in this process."""

from __future__ import annotations

import asyncio

from acp_wire.rpc import Transport
from acp_wire.transports.streams import MemoryTransport
from tests.talker import DEADLINE, Talker


class Caller(Talker):
    """A client at one end of a transport; it takes nothing from there while `reads` is not set."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.reads.set()
        self._transport = transport
        self._pieces: list[bytes] = []
        self._lines: list[bytes] = []

    def send_line(self, line: bytes) -> None:
        self._transport.send(line + b"\n")

    async def read_line(self) -> bytes:
        while not self._lines:
            await self.reads.wait()
            chunk = await self._transport.receive()
            if not chunk:
                return b""
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._lines.append(b"".join([*self._pieces, line, b"\n"]))
                self._pieces.clear()
            self._pieces.append(rest)
        return self._lines.pop(0)

    async def leave(self) -> None:
        """Go, as a program that ends."""
        await self._transport.aclose()


class Guest(Caller):
    """One client, and the task that serves it."""

    def __init__(self, transport: MemoryTransport, serving: asyncio.Task[None]) -> None:
        super().__init__(transport)
        self._serving = serving

    async def leave(self) -> None:
        """Go, as an editor that quits, and wait until all is closed."""
        await super().leave()
        await asyncio.wait_for(asyncio.shield(self._serving), DEADLINE)
