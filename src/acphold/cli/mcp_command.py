"""`acphold mcp`: an MCP server on stdio, with which agents search past sessions."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from acphold.cli import recall
from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.journals import opened_if_any, path_of
from acphold.errors import AcpholdError
from acphold.extras import require
from acphold.journal import Journal
from acphold.processes.own_program import own_command
from acphold.schema import McpServerStdio
from acphold.version import __version__

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


def parser() -> Parser:
    """The arguments of `mcp`."""
    made = Parser(mcp, "mcp")
    made.add_cwd()
    made.add_journal()
    return made


async def mcp(*, cwd: str | None, journal: str | None) -> int:
    """An MCP server that lets agents search past sessions.

    Its tools are `search` and `read`: what `acphold search` finds, and what was said around it.
    They only read the journal. Name this command where your agent's settings list MCP servers, or
    give `--recall` to `acphold wrap`, which adds it to each session.
    """
    require("mcp", "mcp")
    if sys.stdin.isatty():
        print(
            "acphold mcp: this is an MCP server and waits for an agent on stdin; name `acphold "
            "mcp` where your agent's settings list MCP servers",
            file=sys.stderr,
        )
    from acphold.mcp.client_side import serve
    from acphold.transports.stdio import stdio_transport

    serving = asyncio.ensure_future(serve(made_server(path_of(journal), cwd), stdio_transport()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()
    return Exit.OK


def recall_server(journal: str, cwd: str | None) -> McpServerStdio:
    """Return this command as an entry of `mcpServers`, for the journal at this path or URL."""
    bounds = () if cwd is None else ("--cwd", cwd)
    program, *words = own_command("mcp", "--journal", path_of(journal), *bounds)
    return McpServerStdio(name="acphold", command=program, args=tuple(words), env=())


ToolAnswer = Callable[[Journal, Any, str | None], Awaitable[str]]
"""Answers a call of a tool: takes the journal, the arguments, and the folder that bounds it."""


class _McpTool(NamedTuple):
    """One tool: its description, its arguments, and the function that answers."""

    description: str
    schema: dict[str, Any]
    request: type[msgspec.Struct]
    answer: ToolAnswer


TOOLS = {
    "search": _McpTool(
        recall.SEARCH_DESCRIPTION, recall.SEARCH_SCHEMA, recall.SearchRequest, recall.search_answer
    ),
    "read": _McpTool(
        recall.READ_DESCRIPTION, recall.READ_SCHEMA, recall.ReadRequest, recall.read_answer
    ),
}


def made_server(journal: str, cwd: str | None) -> Server[Any]:
    """Return the server for the journal at a path, bounded to a folder."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    one_at_a_time = asyncio.Lock()  # each call opens a connection to the journal

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=tool.description, input_schema=tool.schema)
                for name, tool in TOOLS.items()
            ]
        )

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            async with one_at_a_time:
                if (tool := TOOLS.get(params.name)) is None:
                    raise UsageError(f"no tool {params.name!r}; there are {', '.join(TOOLS)}")
                request = msgspec.convert(params.arguments or {}, tool.request)
                async with opened_if_any(journal) as found:
                    if found is None:
                        raise UsageError("there are no sessions yet")
                    text = await tool.answer(found, request, cwd)
            failed = False
        except (UsageError, AcpholdError, msgspec.ValidationError) as error:
            text, failed = str(error), True
        content = types.TextContent(type="text", text=text.encode(errors="replace").decode())
        return types.CallToolResult(content=[content], is_error=failed)

    return Server("acphold", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)
