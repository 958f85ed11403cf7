"""Our side of a connection to an MCP client: reads its lines and answers it.

The bridge passes its messages on; `serve` has a server of the SDK answer them. The SDK's own
transport drops a line that it cannot read, so that its sender waits for ever, and reads lines of
any length.

Needs the SDK: imported only by servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from msgspec import UNSET, Raw, Struct, UnsetType

from acphold.errors import ConnectionLostError
from acphold.mcp.messages import UnreadableError, decoded, encoded
from acphold.rpc import Transport
from acphold.rpc.framing import LineBuffer, Oversize
from acphold.tasks import beside

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

MAX_REQUEST: Final = 1 << 20
"""Bytes of a message to a server of ours: arguments of its tools are short."""

MAX_WAITING: Final = 1000
"""Most pending requests."""

FINISH_SECONDS: Final = 1.0
"""Seconds for answering the requests of a client that has ended."""


async def messages(client: Transport, limit: int) -> AsyncIterator[SessionMessage]:
    """Yield the client's messages until it ends; refuse unreadable and too long lines."""
    buffer = LineBuffer(limit)
    while chunk := await client.receive():
        for line in buffer.feed(chunk):
            try:
                message = decoded(line)
                if isinstance(message.message, JSONRPCNotification) and _has_id(line):
                    # The sender of an id waits for an answer, but the SDK takes this for a
                    # notification.
                    raise UnreadableError("an id is a text or an integer", b"", None, asks=True)
            except UnreadableError as exc:
                refuse(client, exc.id if exc.asks else None, PARSE_ERROR, str(exc))
                with suppress(ConnectionLostError):  # then it is about to end
                    await client.drain()
            else:
                yield message


class _AskedId(Struct):
    id: Raw | UnsetType = UNSET


def _has_id(line: bytes | Oversize) -> bool:
    """Return True if a message has an id of any kind."""
    if isinstance(line, Oversize):
        return False
    try:
        return msgspec.json.decode(line, type=_AskedId).id is not UNSET
    except msgspec.MsgspecError:  # it was repaired
        return False


def refuse(client: Transport, request: RequestId | None, code: int, reason: str) -> None:
    """Answer a request with an error; `request` is None if it had no id."""
    error = {"code": code, "message": reason}
    client.send(msgspec.json.encode({"jsonrpc": "2.0", "id": request, "error": error}) + b"\n")


async def serve(server: Server[Any], client: Transport) -> None:
    """Have `server` answer the client's requests until it ends; closes `client`."""
    arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    waiting: set[RequestId] = set()
    answered = asyncio.Event()

    async def hear() -> None:
        async with arriving:
            async for message in messages(client, MAX_REQUEST):
                if isinstance(message.message, JSONRPCRequest):
                    request = message.message.id
                    if len(waiting) >= MAX_WAITING:
                        refuse(client, request, INTERNAL_ERROR, "too many requests wait")
                        continue
                    waiting.add(request)
                    answered.clear()
                await arriving.send(message)
            if waiting:  # otherwise the SDK would cancel them at once
                with suppress(TimeoutError):
                    await asyncio.wait_for(answered.wait(), FINISH_SECONDS)

    async def tell() -> None:
        async for message in leaving:
            client.send(encoded(message) + b"\n")
            if isinstance(message.message, JSONRPCResponse | JSONRPCError):
                waiting.discard(message.message.id)
                if not waiting:
                    answered.set()
            with suppress(ConnectionLostError):
                await client.drain()

    try:
        async with beside(hear(), "mcp requests"), beside(tell(), "mcp answers"):
            await server.run(read, write, server.create_initialization_options())
    finally:
        for stream in (arriving, read, write, leaving):
            stream.close()
        await client.aclose()
