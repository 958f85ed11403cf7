"""The bridge's traffic: messages from an agent to a server over HTTP, and back.

Needs the SDK. It knows one thing about MCP: a server over HTTP wants the protocol version, and from
2026-07-28 on the method and the name too, in headers (MCP, transports, "Protocol Version Header").
"""

from __future__ import annotations

import asyncio
import logging

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata
from mcp_types import (
    CONNECTION_CLOSED,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc import MAX_MESSAGE, Transport
from acp_wire.schema import McpServerHttp, McpServerSse
from acp_wire.tasks import beside, first
from acphold.mcp_servers import bounds
from acphold.mcp_servers.faults import FaultRedaction
from acphold.mcp_servers.messages import FORGOTTEN, encode_message, fault_mark, messages, refuse
from acphold.mcp_servers.streams import Reading, Writing, root_cause, url_wire

log = logging.getLogger(__name__)


async def bridge(server: McpServerHttp | McpServerSse, client: Transport) -> int:
    """Pass messages on until the client ends (0), or the server is lost (1); closes `client`."""
    wire = url_wire(server, asyncio.Event(), bounds.CONNECT_SECONDS)
    passing = _Passing(client)
    lost = "the connection was closed"
    try:
        async with wire.open() as (read, write):
            if await passing.run(read, write, wire.over):
                return 0
    except Exception as exc:  # the transports raise all kinds of groups
        lost = root_cause(exc)
    finally:
        reason = FaultRedaction(server)(await wire.fault(lost))
        await passing.finish(reason)
    log.error("%s", reason)
    return 1


class _Passing:
    """The client's side of a bridge, and its pending requests."""

    def __init__(self, client: Transport) -> None:
        self._client = client
        self._waiting: set[RequestId] = set()
        self._introduction: RequestId | None = None
        self._version: str | None = None

    async def run(self, read: Reading, write: Writing, over: asyncio.Event) -> bool:
        """Pass on in both directions; return True if the client ended, False if the server did."""
        async with (
            beside(self._to_server(write), "bridge to the server") as up,
            beside(self._to_client(read), "bridge to the client") as down,
            beside(over.wait(), "bridge is over") as ending,
        ):
            await first(up, down, ending)
            for task in (up, down):
                if task.done():
                    task.result()
            return up.done()

    async def _to_server(self, write: Writing) -> None:
        async for message in messages(self._client, MAX_MESSAGE):
            inner = message.message
            if isinstance(inner, JSONRPCRequest):
                self._waiting.add(inner.id)
                if inner.method == "initialize":
                    self._introduction = inner.id
            if isinstance(inner, JSONRPCRequest | JSONRPCNotification):
                # The headers that the server wants with it.
                params = inner.params or {}
                meta = params.get("_meta")
                version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
                headers: dict[str, str] = {}
                if isinstance(version, str):
                    headers[MCP_PROTOCOL_VERSION_HEADER] = version
                    headers[MCP_METHOD_HEADER] = inner.method
                    name = params.get(NAME_BEARING_METHODS.get(inner.method, ""))
                    if isinstance(name, str):
                        headers[MCP_NAME_HEADER] = encode_header_value(name)
                elif self._version:
                    headers[MCP_PROTOCOL_VERSION_HEADER] = self._version
                message.metadata = ClientMessageMetadata(headers=headers or None)
            await write.send(message)

    async def _to_client(self, read: Reading) -> None:
        async for message in read:
            if isinstance(message, Exception):
                continue  # not a message: the transport drops it
            inner = message.message
            if isinstance(inner, JSONRPCResponse | JSONRPCError) and inner.id is not None:
                self._waiting.discard(inner.id)
            if isinstance(inner, JSONRPCResponse) and inner.id == self._introduction:
                version = inner.result.get("protocolVersion")
                self._version = version if isinstance(version, str) else None
            self._client.send(encode_message(message) + b"\n")
            try:
                await self._client.drain()
            except ConnectionLostError:
                return
            if isinstance(inner, JSONRPCError) and fault_mark(inner.error.data) == FORGOTTEN:
                return  # the client began the session, and only it can begin another

    async def finish(self, reason: str) -> None:
        """Answer pending requests with an error, and close the client's side."""
        for request in self._waiting:
            refuse(self._client, request, CONNECTION_CLOSED, reason)
        await self._client.aclose()
