"""A network that fails: what stands between a client and a server, and cuts, stalls, or lets no one
through."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.web.conftest import AGENT, Served, serving


def own_port() -> int:
    """A port of this machine on which nobody listens until the caller does, or a program of its.

    The kernel gives it to nobody else: to the end of this process it is bound, in a way that does
    not keep a server from listening on it, and once more after it has ended.
    """
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    port: int = bound.getsockname()[1]
    if sys.platform == "linux":
        bound.detach()
    else:  # there it would keep it
        bound.close()
    return port


class Way(Protocol):
    """A connection from one machine to others, which can fail."""

    def cut(self) -> None:
        """Fail for an instant."""

    def go_down(self) -> None:
        """Fail."""

    def stall(self) -> None:
        """Carry nothing, and say nothing."""

    def come_up(self) -> None:
        """Be whole again."""


class Network:
    """Forwards connections to `port` of this machine, as well as it is told to."""

    def __init__(self) -> None:
        self.port = 0
        """Port for clients."""
        self.to = 0
        """Port of the server."""
        self.passes = asyncio.Event()
        self.passes.set()
        self.connections = 0
        self.upgrades = 0
        """Number of requests for a WebSocket."""
        self.refusal: bytes | None = None
        """Answer to a request for a WebSocket, as of a proxy without them; None allows them."""
        self.tunnels = False
        """True if clients must ask for a tunnel with CONNECT, as from a proxy."""
        self.tunnel_refusal: bytes | None = None
        self._is_up = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """End all connections at once, in the middle of whatever is on its way."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def go_down(self) -> None:
        """Cut all, and let nobody through any more."""
        self._is_up = False
        self.cut()

    def come_up(self) -> None:
        """Let clients through again, and carry on."""
        self._is_up = True
        self.passes.set()

    def stall(self) -> None:
        """Carry nothing, and end nothing."""
        self.passes.clear()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if not self._is_up:
            writer.transport.abort()
            return
        self.connections += 1
        head = b""
        if self.tunnels:
            asked = await reader.readuntil(b"\r\n\r\n")
            is_good = asked.startswith(b"CONNECT ") and self.tunnel_refusal is None
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if is_good else self.tunnel_refusal or b"")
            if not is_good:
                writer.close()
                return
        if self.refusal is not None:
            with suppress(asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
            if b"\r\nupgrade: websocket\r\n" in head.lower():
                self.upgrades += 1
                writer.write(self.refusal)
                writer.close()
                return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:  # the server is being started
            writer.transport.abort()
            return
        back.write(head)
        self._writers |= {writer, back}
        pumps = [
            asyncio.create_task(self._carry(reader, back)),
            asyncio.create_task(self._carry(there, writer)),
        ]
        self._tasks |= {*pumps}
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, back):
            each.transport.abort()
        await asyncio.wait(pumps)
        self._writers -= {writer, back}
        self._tasks -= {*pumps}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                await self.passes.wait()
                writer.write(data)
                await writer.drain()

    async def aclose(self) -> None:
        """End all."""
        self.passes.set()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    """One for the block; `to` has to be set before the first connection."""
    made = Network()
    server = await asyncio.start_server(made.attend, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.aclose()


@contextmanager
def served_through(
    network: Network, folder: Path, altered: str = "", agent: tuple[str, ...] = AGENT
) -> Iterator[Served]:
    """A server whose address leads through a network."""
    network.to = own_port()
    url = f"http://localhost:{network.port}"
    where = ("--url", url, "--listen", f"127.0.0.1:{network.to}")
    with serving(folder, *where, altered=altered, agent=agent) as served:
        yield served
