"""The work of a bridge: JSON-RPC messages from a transport to a server over HTTP, and back.

Needs the SDK. Of MCP it knows one thing: a server over HTTP wants the protocol version, and from
2026-07-28 on the method and the name too, in headers (MCP, transports, "Protocol Version Header").
"""

from __future__ import annotations

import asyncio
import logging
import signal

import msgspec
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from holdfast.errors import ConnectionLostError
from holdfast.mcp.connection import DEADLINE
from holdfast.mcp.program import MAX_LINE
from holdfast.mcp.redaction import Redaction
from holdfast.mcp.streams import Reading, Writing, decoded, encoded, wire_to
from holdfast.rpc import Transport
from holdfast.rpc.framing import LineBuffer, Oversize
from holdfast.schema import McpServerHttp, McpServerSse

log = logging.getLogger(__name__)


async def bridge(server: McpServerHttp | McpServerSse, client: Transport) -> int:
    """Pass messages on until the client ends (0), or the server is lost (1); closes `client`."""
    wire = wire_to(server, None, asyncio.Event(), DEADLINE)
    passing = _Passing(client)
    lost = "the connection was closed"
    try:
        async with wire.open() as (read, write):
            if await passing.run(read, write):
                return 0
    except* Exception as group:
        lost = str(group.exceptions[0])
    finally:
        reason = Redaction(server)(await wire.fault(lost))
        ...
    return 1
