"""All MCP servers of a session: connected in parallel, listed together, closed together.

A failing server does not hold up the others; it is reported to the session, which goes on without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from acphold.errors import McpConnectError, McpError
from acphold.mcp.mcp_connection import McpConnection
from acphold.mcp.reconnection import Failed, Lost, Ready

if TYPE_CHECKING:
    from acphold.mcp.offers import OurSide, Prompt, Tool
    from acphold.mcp.servers import Server

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""Seconds after a failure until `tools` and `prompts` retry a server, without waiting for it."""

OnFailure = Callable[[str, str], None]
"""Called with the name of an unusable server and the reason, in words for the person."""

OnChange = Callable[[str, str], None]
"""Called with the name of a server, and the list it changed: `tools`, `resources` or `prompts`."""


class Servers:
    """The servers of one session, by name; they are connected to by `start`, or their first use.

    A session that is loaded with other servers gets another of these.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        ours: OurSide,
        *,
        on_failure: OnFailure | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        self._on_failure = on_failure
        self._connections = {
            server.name: McpConnection(
                server,
                ours,
                on_failure=partial(self._failed, server.name),
                on_change=None if on_change is None else partial(on_change, server.name),
            )
            for server in servers
        }
        self._opening: tuple[asyncio.Task[object], ...] = ()
        self._tried: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def __getitem__(self, name: str) -> McpConnection:
        """Return the connection to server `name`, in any state; raises McpError without one."""
        if name not in self._connections:
            known = ", ".join(map(repr, self._connections)) or "none"
            raise McpError(name, f"this session has no such server; it has: {known}")
        return self._connections[name]

    def __contains__(self, name: object) -> bool:
        return name in self._connections

    def __iter__(self) -> Iterator[McpConnection]:
        return iter(self._connections.values())

    def __len__(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        """Begin to connect to all servers, and request their tools; returns at once.

        Starting a program blocks for some milliseconds, so urgent answers should be sent first.
        """
        launching = asyncio.create_task(self._launch(), name="mcp start")
        # The connections cache the tools for the next caller.
        self._opening = (launching, asyncio.create_task(self.tools(), name="mcp tools"))

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of all usable servers, in the order of the servers.

        Waits for those still connecting for the first time, each up to its deadline. A failed one
        is left out, and retried in the background. Never raises.
        """
        return await self._from_all(McpConnection.tools)

    async def prompts(self) -> tuple[Prompt, ...]:
        """Return the prompts of all usable servers; waits and fails like `tools`."""
        return await self._from_all(McpConnection.prompts)

    async def aclose(self) -> None:
        """Close all connections in parallel; bounded, may be called again."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*(connection.aclose() for connection in self))

    async def _launch(self) -> None:
        launched = asyncio.Event()
        try:
            for connection in self:
                connection.start(launched)
                await asyncio.sleep(0)  # let other tasks run between two programs
        finally:
            launched.set()

    async def _from_all(
        self, ask: Callable[[McpConnection], Awaitable[tuple[T, ...]]]
    ) -> tuple[T, ...]:
        if self._opening:
            await asyncio.wait(self._opening[:1])

        async def from_one(connection: McpConnection) -> tuple[T, ...]:
            await connection.first_attempt()
            match connection.state:
                case Ready() | Lost():
                    try:
                        return await ask(connection)
                    except McpConnectError:
                        pass  # reported already
                    except McpError as exc:
                        log.warning("%s", exc)
                        self._tell(exc.server, exc.reason)
                case Failed() if time.monotonic() - self._tried[connection.name] > RETRY_SECONDS:
                    self._tried[connection.name] = time.monotonic()
                    connection.start()
            return ()

        found = await asyncio.gather(*map(from_one, self))
        return tuple(item for items in found for item in items)

    def _failed(self, name: str, reason: str) -> None:
        self._tried[name] = time.monotonic()
        self._tell(name, reason)

    def _tell(self, name: str, reason: str) -> None:
        if self._on_failure is not None and self._told.get(name) != reason:
            self._told[name] = reason
            self._on_failure(name, reason)
