"""JSON-RPC messages: lines and the SDK's messages, and our side of an MCP client's connection.

A line that the SDK cannot read is repaired if possible. Otherwise its request id is found, so that
the call fails at once: the SDK's own transport drops such a line, so that its sender waits for
ever, and it reads lines of any length.

The bridge passes a client's messages on; `serve` has a server of the SDK answer them.

Needs the SDK: imported by servers, and otherwise only after `connections.load_sdk`.
"""

from __future__ import annotations

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import ValidationError

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc import Transport
from acp_wire.rpc.framing import LineBuffer, Oversize, find_problem
from acp_wire.schema.salvage import repair
from acp_wire.schema.splice import json_value
from acp_wire.tasks import beside
from acphold.mcp_servers import bounds

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


MAX_DEPTH = 199
"""Levels of nesting: as many as the SDK's transports read."""


MARK = "acphold/mcp-fault"
"""Member of a JSON-RPC error's `data` that marks our own errors."""

REFUSED, UNSENT, FORGOTTEN = "refused", "unsent", "forgotten"
"""Values of MARK.

Refused: this one request failed, and may have had effects. Unsent: there was no server to take it.
Forgotten: the server no longer knows our session. After the last two it can be sent again, to a new
session.
"""


class UnreadableError(ValueError):
    """A line is no message. `id` is that of the request it answers or makes, if it has one; `asks`
    is True for a request."""

    def __init__(self, reason: str, id_: RequestId | None, *, asks: bool) -> None:
        super().__init__(reason)
        self.id = id_
        self.asks = asks


def encode_message(message: SessionMessage) -> bytes:
    """Return a message as JSON on one line; ValueError for values JSON, or the SDK, cannot hold."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def decode_message(line: bytes | Oversize) -> SessionMessage:
    """Return the message in a line of JSON; raises UnreadableError."""
    if isinstance(line, Oversize):
        raise _unreadable(line)
    # Not with the SDK's reader: it takes 13 s and 1.7 GB for a message of 15 MB of brackets.
    if problem := find_problem(line, MAX_DEPTH, bounds.MESSAGE_PARTS):
        raise _broken(line, problem)
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError) as exc:
        if line.lstrip()[:1] != b"{":
            raise _broken(line, "it is not a JSON object") from None
        try:  # the standard library accepts NaN as well
            value = json.loads(repair(line))
        except ValueError:
            raise _broken(line, f"it is not JSON: {exc}") from None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except ValidationError:
        raise _broken(line, "it is not a JSON-RPC message") from None


def failure(request: RequestId, reason: str) -> SessionMessage:
    """Return an answer of our own to a request, in place of the server's."""
    error = ErrorData(code=INTERNAL_ERROR, message=reason, data={MARK: REFUSED})
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error))


def fault_mark(data: object) -> object:
    """Return the value of MARK in the `data` of an error; None for one of the server's own."""
    return data.get(MARK) if isinstance(data, dict) else None


def readable(line: bytes) -> SessionMessage | UnreadableError:
    """Return the message in a line, or the reason why it is none."""
    try:
        return decode_message(line.removeprefix(BOM_UTF8))
    except UnreadableError as exc:
        return exc


def _broken(line: bytes, reason: str) -> UnreadableError:
    return _unreadable(Oversize(reason, line[: bounds.HEAD_BYTES], line[-bounds.TAIL_BYTES :]))


def _unreadable(line: Oversize) -> UnreadableError:
    known = line.members if line.head.lstrip()[:1] == b"{" else {}
    if not known.keys() & {"jsonrpc", "method", "result", "error"}:
        known = {}  # such as a JSON log: its `id` is not of a request
    raw = known.get("id", b"null")
    asked = json_value(raw, str) if raw.startswith(b'"') else json_value(raw, int)
    return UnreadableError(line.problem, asked, asks="method" in known)


async def messages(client: Transport, limit: int) -> AsyncIterator[SessionMessage]:
    """Yield the client's messages until it ends; refuse unreadable and too long lines."""
    buffer = LineBuffer(limit)
    while chunk := await client.receive():
        for line in buffer.feed(chunk):
            try:
                message = decode_message(line)
                if isinstance(message.message, JSONRPCNotification) and _has_id(line):
                    # The sender of an id waits for an answer, but the SDK takes this for a
                    # notification.
                    why = "an id has to be a string or an integer"
                    raise UnreadableError(why, None, asks=True)
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
    asked = json_value(line, _AskedId)  # None if it was repaired
    return asked is not None and asked.id is not UNSET


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
            async for message in messages(client, bounds.REQUEST_BYTES):
                if isinstance(message.message, JSONRPCRequest):
                    request = message.message.id
                    if len(waiting) >= bounds.PENDING_REQUESTS:
                        refuse(client, request, INTERNAL_ERROR, "too many pending requests")
                        continue
                    waiting.add(request)
                    answered.clear()
                await arriving.send(message)
            if waiting:  # otherwise the SDK would cancel them at once
                with suppress(TimeoutError):
                    await asyncio.wait_for(answered.wait(), bounds.FINISH_SECONDS)

    async def tell() -> None:
        async for message in leaving:
            client.send(encode_message(message) + b"\n")
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
