"""Transports to MCP servers without the SDK: a program on stdio, and the client over ACP.

The SDK's own stdio transport is not used: it holds an endless line in memory, leaves the children
of a server that exits politely, reports neither how the program ended nor its stderr, and hangs if
its task is cancelled twice.

The way over ACP is UNSTABLE: from a draft in which a request is `mcp/message` to the client, with
the client's `serverId` and our `requestId`, and the server's messages meanwhile are notifications
of the same name and ids. Source: ACP v1, unstable schema, MessageMcpRequest, MessageMcpResponse and
MessageMcpNotification.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acp_wire.errors import AcpError, AgentStartError, ConnectionLostError, MethodNotFoundError
from acp_wire.processes.program import launch
from acp_wire.rpc import MAX_MESSAGE
from acp_wire.rpc.framing import LineBuffer, Oversize
from acp_wire.schema.splice import json_value
from acp_wire.tasks import timeout
from acphold.mcp_servers import bounds
from acphold.mcp_servers.faults import FaultError, FaultRedaction, LostError
from acphold.mcp_servers.servers import MCP_MESSAGE

if TYPE_CHECKING:
    from acp_wire.schema import McpServerStdio
    from acp_wire.surroundings import Surroundings
    from acp_wire.transports.child import ChildProcess


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

    def __init__(self, server: McpServerStdio, cwd: str, surroundings: Surroundings) -> None:
        self._server = server
        self._cwd = cwd
        self._surroundings = surroundings
        self._redact = FaultRedaction(server)
        self._child: ChildProcess | None = None
        self._noise = 0
        self._first_noise = ""
        self._silenced = False

    def start(self) -> None:
        """Start it, in a process group of its own and guarded; raises FaultError."""
        from acp_wire.transports.child import ChildProcess

        server = self._server
        ours = self._surroundings.env
        env = {name: ours[name] for name in INHERITED if name in ours}
        env |= {variable.name: variable.value for variable in server.env}
        if any("\0" in text for text in (server.command, *server.args, *env, *env.values())):
            raise FaultError("its command, args or env contain a NUL character")
        try:
            command = [server.command, *server.args]
            launched = launch(command, self._surroundings, env=env, cwd=self._cwd)
        except AgentStartError as exc:
            raise FaultError(self._redact(str(exc))) from None
        # Its stderr is only kept for error messages: a log would store secrets in it.
        self._child = ChildProcess(launched, relay_to=())

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of its stdout, until it ends; raises FaultError."""
        transport = self._running.transport
        buffer = LineBuffer(MAX_MESSAGE)
        incomplete = 0  # bytes of an incomplete line
        while chunk := await transport.receive():
            last = chunk.rfind(b"\n")
            incomplete = incomplete + len(chunk) if last < 0 else len(chunk) - last - 1
            for line in buffer.feed(chunk):
                if isinstance(line, Oversize):
                    raise self._too_long()
                yield line
            if incomplete > MAX_MESSAGE:
                raise self._too_long()
        self._silenced = True

    async def send(self, line: bytes) -> None:
        """Write a line to its stdin, waiting while it does not read; raises ConnectionLostError."""
        transport = self._running.transport
        transport.send(line + b"\n")
        await transport.drain()

    def note_noise(self, line: bytes) -> None:
        """Note a line of its stdout that is no message: a banner, a stray print."""
        self._first_noise = self._first_noise or line[:1000].decode(errors="replace")
        self._noise += 1

    async def fault(self, otherwise: str) -> str:
        """Return the reason why the connection is over, as far as known, or else `otherwise`."""
        if self._child is None:
            return otherwise
        with suppress(TimeoutError):
            async with timeout(bounds.EXIT_SECONDS if self._silenced else 0):
                return f"it ended with {await self._child.wait()}{self._last_words()}"
        if self._noise:
            first = self._redact.one_line(self._first_noise)
            otherwise += f"; it wrote {self._noise} lines to stdout that are not MCP, "
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
        return FaultError(f"it wrote a line of more than {MAX_MESSAGE // 1024} KiB to stdout")

    def _last_words(self) -> str:
        words = "" if self._child is None else self._child.last_words()
        return f"; last on stderr: {self._redact.one_line(words)!r}" if words else ""


Ask = Callable[[str, bytes], Awaitable[bytes]]
"""Sends an ACP request to the client; params and result are JSON bytes; raises AcpError."""

Hear = Callable[[str, dict[str, object] | None], None]
"""Called with the method and params of a server's message during one request."""


class InnerError(Struct):
    """A server's MCP error, unchanged."""

    code: int
    message: str
    data: object = None


class Channel:
    """The way to all servers of one client; every request on it has its own id."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._ids = itertools.count(1)
        self._active: dict[tuple[str, str], Hear] = {}

    async def request(
        self, server_id: str, method: str, params: dict[str, object] | None, hear: Hear
    ) -> dict[str, object] | InnerError:
        """Return the server's answer; `hear` gets its earlier messages, in order.

        Cancelling it cancels the request at the client. Raises LostError if the client cannot pass
        it on, FaultError if the answer is not MCP.
        """
        request_id = str(next(self._ids))
        message = _McpMessage(server_id, request_id, method, params)
        self._active[server_id, request_id] = hear
        try:
            raw = await self._ask(MCP_MESSAGE, msgspec.json.encode(message))
        except AcpError as exc:
            words = f"does not pass `{MCP_MESSAGE}` on: {exc}"
            if exc.code == MethodNotFoundError.code:
                words = f"does not know `{MCP_MESSAGE}`"
            raise LostError(f"its client {words}") from None
        finally:
            del self._active[server_id, request_id]
        try:
            answer = msgspec.json.decode(raw, type=_AcpAnswer)
            if answer.result is not UNSET:  # preferred if both are present
                return msgspec.json.decode(answer.result, type=dict[str, object])
            if answer.error is not UNSET:
                return msgspec.json.decode(answer.error, type=InnerError)
        except msgspec.MsgspecError as exc:
            raise FaultError(f"its answer is not MCP: {exc}") from None
        raise FaultError(f"its client answered `{MCP_MESSAGE}` with neither `result` nor `error`")

    def hear(self, params: bytes) -> bool:
        """Take an `mcp/message` notification; return True if a request is waiting for it."""
        if (message := json_value(params or b"{}", _McpMessage)) is None:
            return False
        hear = self._active.get((message.server_id, message.request_id))
        if hear is None:
            return False  # it came after the answer, or matches no request of ours
        hear(message.method, message.params)
        return True


class _McpMessage(Struct, rename="camel", omit_defaults=True):
    server_id: str
    request_id: str
    method: str
    params: dict[str, object] | None = None


class _AcpAnswer(Struct):
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET
