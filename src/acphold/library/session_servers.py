"""The MCP servers of a session, and how its turns use them.

MCP is imported only once a session names a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from acp_wire.schema import (
    CREATE_ELICITATION,
    BlobResourceContents,
    TextResourceContents,
    ToolKind,
    encode,
)
from acphold.errors import AcpError
from acphold.library.workspace import UNANSWERED, ClientSide
from acphold.mcp_servers.connections import McpListener
from acphold.mcp_servers.errors import McpError

if TYPE_CHECKING:
    from acphold.library.tools import Entering, RunningTool, StepKind
    from acphold.mcp_servers.connections import McpConnection, Servers
    from acphold.mcp_servers.offers import (
        CallResult,
        MadePrompt,
        OurSide,
        Progress,
        Prompt,
        Resource,
        Tool,
    )
    from acphold.mcp_servers.servers import Server

R = TypeVar("R")


class SessionServers(McpListener):
    """The servers that a client named for one session: connected at once, closed with it.

    `offer` takes the prompts of all of them whenever these change, `notice` a title, a text and a
    level for each server that cannot be used.
    """

    def __init__(
        self,
        client: ClientSide,
        servers: tuple[Server, ...],
        our_side: OurSide,
        *,
        offer: Callable[[tuple[Prompt, ...]], None],
        notice: Callable[[str, str, Literal["warning"]], None],
    ) -> None:
        from acphold.mcp_servers.connections import Servers

        self._client, self._offer, self._notice = client, offer, notice
        self._offering: asyncio.Task[None] | None = None
        forms = client.capabilities.elicitation
        if forms is not None and forms.form is not None:
            our_side = replace(our_side, elicitation=self._elicit)
        self.pool: Servers = Servers(servers, our_side, self)

    def start(self) -> None:
        """Connect to all of them; returns at once."""
        self.pool.start()
        self._offer_prompts()

    async def aclose(self) -> None:
        """End all of them, and the programs they started."""
        if self._offering is not None:
            self._offering.cancel()
        await self.pool.aclose()

    def report_failure(self, server: str, reason: str) -> None:
        self._notice(f"MCP server {server!r} is not available", reason, "warning")

    def report_change(self, server: str, what: str) -> None:
        if what == "prompts":
            self._offer_prompts()

    def _offer_prompts(self) -> None:
        if self._offering is not None:
            self._offering.cancel()

        async def offer() -> None:
            self._offer(await self.pool.prompts())

        self._offering = asyncio.create_task(offer(), name="mcp prompts")

    async def _elicit(self, server: str, params: dict[str, object]) -> dict[str, object]:
        """Pass a server's question on to the person; the message names the server."""
        asked = {
            "sessionId": self._client.session_id,
            "mode": params.get("mode", "form"),
            **{name: value for name, value in params.items() if name != "_meta"},
            "message": f"{server}: {params.get('message', '')}",
        }
        try:
            raw = await self._client.ask_raw(CREATE_ELICITATION.name, encode(asked))
        except UNANSWERED:
            return {"action": "cancel"}
        return msgspec.json.decode(raw, type=dict[str, object])


class ServersScope(Protocol):
    """The turn that uses the servers; `around` is entered for each step."""

    around: Entering

    def tool(self, title: str, **described: Any) -> RunningTool:
        """Make a tool call; see `Turn.tool`."""

    def waiting(self) -> AbstractContextManager[None]:
        """Let this task wait for a server in the block."""


class McpServers:
    """The session's MCP servers, as a turn uses them.

    Experimental: servers that the client provides itself, over ACP, follow a draft of the protocol.
    """

    def __init__(self, servers: SessionServers | None, scope: ServersScope) -> None:
        self._pool = None if servers is None else servers.pool
        self._scope = scope

    def __getitem__(self, name: str) -> TurnServer:
        """The server `name`, for calls that are not shown; McpError if the session has none."""
        return TurnServer(self._connection(name), self._scope)

    def __contains__(self, name: object) -> bool:
        return self._pool is not None and name in self._pool

    def __iter__(self) -> Iterator[str]:
        """The names of the servers."""
        return iter([connection.name for connection in self._pool or ()])

    def __len__(self) -> int:
        return len(self._pool or ())

    async def tools(self) -> tuple[Tool, ...]:
        """The tools of all working servers, each with its `server`, `name` and `input_schema`.

        Waits for servers that are still connecting, each up to its deadline.
        """
        return () if self._pool is None else await self._pool.tools()

    async def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of all working servers, which are slash commands, too."""
        return () if self._pool is None else await self._pool.prompts()

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        title: str | None = None,
        kind: ToolKind | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as in all of the API
    ) -> CallResult:
        """Call a tool and show it: arguments, progress, result. `turn.mcp.call("fs", "read", {…})`.

        Errors and `timeout` are as in `TurnServer.call`.
        """
        connection = self._connection(server)
        known: Tool | None = None
        with self._scope.waiting(), suppress(AcpError):  # then the call reports the error
            known = next((it for it in await connection.tools() if it.name == tool), None)
        if not title:
            title = (known and known.title) or f"{server}: {tool}"
        if not kind:
            hints: Mapping[str, Any] = (known and known.annotations) or {}
            kind = "read" if hints.get("readOnlyHint") is True else "other"
        given = dict(arguments or {})
        path = given.get("path")
        locations = [path] if isinstance(path, str) and path else []
        call = self._scope.tool(title, kind=kind, name=tool, input=given, locations=locations)

        async def progress(report: Progress) -> None:
            total = "" if report.total is None else f"/{report.total:g}"
            share = f"{report.done:g}{total}"
            await call.progress(f"{report.message} ({share})" if report.message else share)

        async with call:
            with self._scope.waiting():
                async with self._scope.around("mcp", f"{server}/{tool}", call) as step:
                    step.result = result = await connection.call(
                        tool, arguments, on_progress=progress, seconds=timeout
                    )
            await call.content(*result.content)
            await call.output(result.output)
            if result.failed:
                await call.fail()
        return result

    def _connection(self, name: str) -> McpConnection:
        if self._pool is None:
            raise McpError(name, "this session has no MCP servers")
        return self._pool[name]


class TurnServer:
    """One MCP server of the session, as a turn uses it: `turn.mcp["name"]`.

    Requests wait for that server alone, and are not shown as tool calls.
    """

    def __init__(self, connection: McpConnection, scope: ServersScope) -> None:
        self._connection = connection
        self._scope = scope

    def __repr__(self) -> str:
        return f"<TurnServer {self.name!r}{f': {self.error}' if self.error else ''}>"

    @property
    def name(self) -> str:
        """The client's name for it."""
        return self._connection.name

    @property
    def error(self) -> str | None:
        """The reason why it cannot be used, if so."""
        return self._connection.error

    async def tools(self) -> tuple[Tool, ...]:
        """The tools it has now; raises McpError."""
        with self._scope.waiting():
            return await self._connection.tools()

    async def resources(self) -> tuple[Resource, ...]:
        """The resources it has now; raises McpError."""
        with self._scope.waiting():
            return await self._connection.resources()

    async def prompts(self) -> tuple[Prompt, ...]:
        """The prompts it has now; raises McpError."""
        with self._scope.waiting():
            return await self._connection.prompts()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        on_progress: Callable[[Progress], Awaitable[None]] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as in all of the API
    ) -> CallResult:
        """Call a tool; an error that the tool or the server reports is a result that `failed`.

        `on_progress` is awaited for each report, in order. Cancelling tells the server to stop.
        Raises McpConnectError, McpLostError and McpAnswerError, also if no answer comes in
        `timeout` seconds, by default ten minutes without progress.
        """
        call = partial(
            self._connection.call, tool, arguments, on_progress=on_progress, seconds=timeout
        )
        return await self._step("mcp", tool, call)

    async def read_resource(
        self, uri: str
    ) -> tuple[TextResourceContents | BlobResourceContents, ...]:
        """Its contents; raises McpError."""
        read = partial(self._connection.read_resource, uri)
        return await self._step("mcp_resource", uri, read)

    async def get_prompt(
        self, prompt: str, arguments: Mapping[str, str] | None = None
    ) -> MadePrompt:
        """Make a prompt with these arguments; raises McpError."""
        make = partial(self._connection.get_prompt, prompt, arguments)
        return await self._step("mcp_prompt", prompt, make)

    async def _step(self, kind: StepKind, name: str, ask: Callable[[], Awaitable[R]]) -> R:
        with self._scope.waiting():
            async with self._scope.around(kind, f"{self.name}/{name}", None) as step:
                step.result = result = await ask()
        return result
