"""A bridge for agents that only support MCP over stdio: it connects them to an HTTP or SSE server.

The address and the headers are passed in the environment, never in the arguments, which everybody
on the machine can read. Messages are passed on unchanged; the bridge itself only answers those that
do not reach the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acp_wire import schema
from acp_wire.errors import InvalidParamsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

URL = "ACPHOLD_MCP_URL"
TRANSPORT = "ACPHOLD_MCP_TRANSPORT"
HEADERS = "ACPHOLD_MCP_HEADERS"
"""Environment variables of the bridge. The headers are a JSON array of `[name, value]` pairs, or
an object; the transport is `http`, which is the default, or `sse`."""


def bridge_server(
    server: schema.McpServerHttp | schema.McpServerSse, command: Sequence[str]
) -> bytes:
    """Return an `mcpServers` stdio entry (JSON) for an agent that cannot reach `server` itself.

    `command` calls `run_bridge`.
    """
    headers = [[header.name, header.value] for header in server.headers]
    transport = "sse" if isinstance(server, schema.McpServerSse) else "http"
    env = {URL: server.url, TRANSPORT: transport, HEADERS: schema.encode(headers).decode()}
    return schema.encode(
        schema.McpServerStdio(
            name=server.name,
            command=command[0],
            args=tuple(command[1:]),
            env=tuple(schema.EnvVariable(name=name, value=value) for name, value in env.items()),
        )
    )


def server_from_env(env: Mapping[str, str]) -> schema.McpServerHttp | schema.McpServerSse:
    """Return the server for a bridge with this environment; raises InvalidParamsError."""
    url, transport = env.get(URL, ""), env.get(TRANSPORT) or "http"
    kinds: dict[str, type[schema.McpServerHttp] | type[schema.McpServerSse]] = {
        "http": schema.McpServerHttp,
        "sse": schema.McpServerSse,
    }
    if not url:
        raise InvalidParamsError(f"{URL} is not set; set it to the address of the MCP server", URL)
    if transport not in kinds:
        raise InvalidParamsError(f"{TRANSPORT} is neither `http` nor `sse`", TRANSPORT)
    either = dict[str, str] | list[tuple[str, str]]
    try:
        found = msgspec.json.decode(env.get(HEADERS) or "[]", type=either)
    except msgspec.MsgspecError:
        raise InvalidParamsError(f"{HEADERS} is not a JSON object of strings", HEADERS) from None
    pairs = found.items() if isinstance(found, dict) else found
    headers = tuple(schema.HttpHeader(name=name, value=value) for name, value in pairs)
    return kinds[transport](name="bridged", url=url, headers=headers)


def run_bridge(env: Mapping[str, str]) -> int:
    """Serve on stdin and stdout until stdin ends; return the exit code.

    It is 0, or 1 if the server was lost. Raises InvalidParamsError if the environment names no
    server.
    """
    import asyncio
    import signal

    server = server_from_env(env)
    from acp_wire.transports.stdio import stdio_transport
    from acphold.mcp_servers.bridge_traffic import bridge

    async def serve() -> int:
        serving = asyncio.ensure_future(bridge(server, stdio_transport()))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        return 0 if serving.cancelled() else serving.result()

    return asyncio.run(serve())
