"""The MCP servers of a session, as a turn uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from acphold.errors import AcpholdError, McpError

if TYPE_CHECKING:
    from acphold.library.turn_scope import TurnScope
    from acphold.mcp import CallResult, Connection, Progress, Prompt, Tool
    from acphold.schema import ToolCallLocation, ToolKind


class TurnServers:
    """The session's MCP servers, as a turn uses them."""

    def __init__(self, scope: TurnScope) -> None:
        self._scope = scope
        servers = scope.opened.servers
        self._pool = None if servers is None else servers.pool

    def __getitem__(self, name: str) -> Connection:
        """The connection to server `name`: `call`, `tools`, `resources`, `read_resource`, …

        What is asked of it waits for that server alone, and no tool call is shown. Its `error`
        says why it cannot be used. McpError if the session has no such server.
        """
        if self._pool is None:
            raise McpError(name, "this session has no MCP servers")
        return self._pool[name]

    def __contains__(self, name: object) -> bool:
        return self._pool is not None and name in self._pool

    def __iter__(self) -> Iterator[str]:
        """The names of the servers."""
        return iter([connection.name for connection in self._pool or ()])

    def __len__(self) -> int:
        return len(self._pool or ())

    async def tools(self) -> tuple[Tool, ...]:
        """The tools of all servers that work, each with its `server`, `name` and `input_schema`.

        Waits for those that are still connecting, each up to its deadline.
        """
        return () if self._pool is None else await self._pool.tools()

    async def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of all servers that work; people see them as slash commands."""
        return () if self._pool is None else await self._pool.prompts()

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        title: str | None = None,
        kind: ToolKind | None = None,
        seconds: float | None = None,
    ) -> CallResult:
        """Call a tool and show it: arguments, progress, result. `turn.mcp.call("fs", "read", {…})`.

        What the tool says against it is a result that `failed`. Raises McpError when the server
        cannot be used, goes away, or gives no answer in `seconds`; cancelling tells it to stop.
        """
        connection = self[server]
        with self._scope.waiting():
            known = await _known(connection, tool)
        call = self._scope.tool(
            title or (known and known.title) or f"{server}: {tool}",
            kind=kind or _kind(known),
            name=tool,
            input=dict(arguments or {}),
            locations=_locations(arguments),
        )

        async def progress(report: Progress) -> None:
            await call.progress(_words(report))

        async with call:
            with self._scope.waiting():
                result = await connection.call(
                    tool, arguments, on_progress=progress, seconds=seconds
                )
            await call.content(*result.content)
            await call.output(result.output)
            if result.failed:
                await call.fail()
        return result


async def _known(connection: Connection, name: str) -> Tool | None:
    """What the server says of a tool; None if it cannot: the call will tell what is wrong."""
    try:
        tools = await connection.tools()
    except AcpholdError:
        return None
    return next((tool for tool in tools if tool.name == name), None)


def _kind(tool: Tool | None) -> ToolKind:
    hints: Mapping[str, Any] = (tool and tool.annotations) or {}
    return "read" if hints.get("readOnlyHint") is True else "other"


def _locations(arguments: Mapping[str, object] | None) -> list[ToolCallLocation | str]:
    path = (arguments or {}).get("path")
    return [path] if isinstance(path, str) and path else []


def _words(report: Progress) -> str:
    share = f"{report.done:g}" if report.total is None else f"{report.done:g}/{report.total:g}"
    return share if not report.message else f"{report.message} ({share})"
