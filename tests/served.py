"""A client for tests in front of a hub in this process: only the agent is a program of its own.

Like `tests.editor.wrapped` with `acphold wrap`, in a third of the time. Tests that kill acphold, or
read its output, cannot use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acphold.agents.wrapped import START_TIMEOUT, ProcessAgent
from acphold.rpc import MAX_MESSAGE, Transport
from acphold.serve_options import ServeOptions
from acphold.server.service import Service, serve
from acphold.transports.streams import MemoryTransport, memory_pair
from tests.editor import DEADLINE, Talker, scripted_agent


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


@asynccontextmanager
async def wrapped(
    journal: str | Path,
    *,
    client: Mapping[str, Any] | None = None,
    cancel_grace: float = 10.0,
    **agent: Any,
) -> AsyncIterator[Guest]:
    """A client with these capabilities, introduced to a scripted agent behind a hub."""
    async with guest(scripted_agent(**agent), journal, cancel_grace=cancel_grace) as first:
        await first.initialize(**(client or {}))
        yield first


@asynccontextmanager
async def guest(
    agent: Sequence[str],
    journal: str | Path,
    *,
    cancel_grace: float = 10.0,
    start_timeout: float = START_TIMEOUT,
    limit: int = MAX_MESSAGE,
) -> AsyncIterator[Guest]:
    """A client in front of the program `agent`; at the end both have left."""
    here, there = memory_pair()
    service = Service(
        make_agent=lambda listener, _: ProcessAgent(
            agent, listener, start_timeout=start_timeout, limit=limit
        ),
        options=ServeOptions(journal=journal, cancel_grace=cancel_grace, max_message=limit),
    )
    serving = asyncio.create_task(serve(there, service, stop=asyncio.Event()))
    client = Guest(here, serving)
    reading = asyncio.create_task(client.read())
    try:
        yield client
    finally:
        await client.leave()
        reading.cancel()
        await asyncio.wait([reading])
