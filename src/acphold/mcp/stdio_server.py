"""An MCP server that is a program: started, connected line by line, ended with all its children.

The SDK's own stdio transport is not used: it holds an endless line in memory, leaves the children
of a server that exits politely, reports neither how the program ended nor its stderr, and hangs if
its task is cancelled twice.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from acphold.errors import AgentStartError, ConnectionLostError
from acphold.mcp.faults import FaultError, FaultRedaction
from acphold.rpc import MAX_MESSAGE
from acphold.rpc.framing import LineBuffer, Oversize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acphold.schema import McpServerStdio
    from acphold.transports.child import ChildProcess

EXIT_SECONDS = 0.5
"""Seconds that a program may end after its stdout."""

INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    "ACPHOLD_GUARD",  # the mark of whoever guards us: its sweep must find the server too
)
"""The variables a server inherits; others, such as the agent's keys, are not for it."""


class StdioServer:
    """One run of the program of `server`, in `cwd`; `start` it, and always `aclose` it."""

    def __init__(self, server: McpServerStdio, cwd: str, *, limit: int = MAX_MESSAGE) -> None:
        self._server = server
        self._cwd = cwd
        self._limit = limit
        self._redact = FaultRedaction(server)
        self._child: ChildProcess | None = None
        self._noise = 0
        self._first_noise = ""
        self._silenced = False

    def start(self) -> None:
        """Start it, in a process group of its own and guarded; raises FaultError."""
        from acphold.processes.program import launch
        from acphold.transports.child import ChildProcess

        server = self._server
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {variable.name: variable.value for variable in server.env}
        if any("\0" in text for text in (server.command, *server.args, *env, *env.values())):
            raise FaultError("its command, args or env hold a NUL character")
        try:
            launched = launch([server.command, *server.args], env=env, cwd=self._cwd)
        except AgentStartError as exc:
            raise FaultError(self._redact(str(exc))) from None
        # Its stderr is only kept for error messages: a log would store secrets in it.
        self._child = ChildProcess(launched, relay_fd=None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of its stdout, until it ends; raises FaultError."""
        transport = self._running.transport
        buffer = LineBuffer(self._limit)
        begun = 0  # bytes of an incomplete line
        while chunk := await transport.receive():
            last = chunk.rfind(b"\n")
            begun = begun + len(chunk) if last < 0 else len(chunk) - last - 1
            for line in buffer.feed(chunk):
                if isinstance(line, Oversize):
                    raise self._too_long()
                yield line
            if begun > self._limit:
                raise self._too_long()
        self._silenced = True

    async def send(self, line: bytes) -> None:
        """Write a line to its stdin, waiting while it does not read; raises ConnectionLostError."""
        transport = self._running.transport
        transport.send(line + b"\n")
        await transport.drain()

    def heard_noise(self, line: bytes) -> None:
        """Note a line of its stdout that is no message: a banner, a stray print."""
        self._first_noise = self._first_noise or line[:1000].decode(errors="replace")
        self._noise += line.count(b"\n") + 1

    async def fault(self, otherwise: str) -> str:
        """Return the reason why the connection is over, as far as known, or else `otherwise`."""
        if self._child is None:
            return otherwise
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS if self._silenced else 0):
                return f"it ended with {await self._child.wait()}{self._last_words()}"
        if self._noise:
            first = self._redact.one_line(self._first_noise)
            otherwise += f"; it wrote {self._noise} lines to stdout that are no MCP, "
            otherwise += f"the first: {first!r}"
        return f"{otherwise}{self._last_words()}"

    async def aclose(self) -> None:
        """End it and all its children; bounded, and continues when this is cancelled."""
        if self._child is not None:
            await self._child.aclose()

    @property
    def _running(self) -> ChildProcess:
        if self._child is None:
            raise ConnectionLostError("the program was not started")
        return self._child

    def _too_long(self) -> FaultError:
        return FaultError(f"it wrote a line of more than {self._limit // 1024} KiB to stdout")

    def _last_words(self) -> str:
        words = "" if self._child is None else self._child.last_words()
        return f"; last on stderr: {self._redact.one_line(words)!r}" if words else ""
