"""The two streams of messages that the SDK wants of a connection, over each kind of transport.

Needs the SDK: imported only after `loading.load_sdk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, assert_never

import anyio
import httpx2
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from acphold.errors import ConnectionLostError
from acphold.mcp.faults import FaultError
from acphold.mcp.guarding import MARK, GuardedClient, shown
from acphold.mcp.program import MAX_LINE, Program
from acphold.mcp.servers import McpServerAcp, Server
from acphold.schema import McpServerHttp, McpServerSse, McpServerStdio

if TYPE_CHECKING:
    from acphold.mcp.channel import Channel

Reading = MemoryObjectReceiveStream[SessionMessage | Exception]
Arriving = MemoryObjectSendStream[SessionMessage | Exception]
Writing = MemoryObjectSendStream[SessionMessage]
Leaving = MemoryObjectReceiveStream[SessionMessage]

POST_SECONDS = 30.0
"""How long an SSE server may take to accept a message; its answer comes on the event stream."""


def encoded(message: SessionMessage) -> bytes:
    """The JSON of a message, on one line."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def decoded(line: bytes | str) -> SessionMessage:
    """The message in a line of JSON; raises ValueError."""
    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))


class Wire:
    """A connection below MCP: `async with wire.open() as (read, write)`.

    `over` is set when it is of no more use, and `fault` is the reason then. `on_gap` is called
    when what the server said of its own until now may have been lost.
    """

    def __init__(self, over: asyncio.Event) -> None:
        self.over = over
        self.on_gap: Callable[[], None] = _nothing
        self._fault: str | None = None

    def open(self) -> AbstractAsyncContextManager[tuple[Reading, Writing]]:
        """Both streams, for the block; nothing of it waits for the server."""
        raise NotImplementedError

    async def fault(self, otherwise: str) -> str:
        """Why it is over, in words, else `otherwise`."""
        return self._fault or otherwise

    def heard(self) -> None:
        """Take note that the server speaks MCP."""

    def _break(self, fault: str) -> None:
        self._fault = self._fault or fault
        self.over.set()


class ProgramWire(Wire):
    """Lines on the stdin and stdout of a program that was started."""

    def __init__(self, program: Program, over: asyncio.Event) -> None:
        super().__init__(over)
        self._program = program

    def open(self) -> AbstractAsyncContextManager[tuple[Reading, Writing]]:
        return pumped(self._read, self._write)

    async def fault(self, otherwise: str) -> str:
        return await self._program.fault(await super().fault(otherwise))

    def heard(self) -> None:
        self._program.heard()

    async def _read(self, arriving: Arriving) -> None:
        fault = "it closed its stdout"
        try:
            async for line in self._program.lines():
                try:
                    message = decoded(line)
                except ValueError:
                    self._program.heard_noise(line)
                else:
                    await arriving.send(message)
        except FaultError as exc:
            fault = str(exc)
        self._break(fault)

    async def _write(self, leaving: Leaving) -> None:
        with suppress(ConnectionLostError):  # the reader knows more
            async for message in leaving:
                await self._program.send(encoded(message))


class HttpWire(Wire):
    """Streamable HTTP, by the SDK's transport; each request stands for itself."""

    def __init__(self, server: McpServerHttp, over: asyncio.Event, connect: float) -> None:
        super().__init__(over)
        self._server = server
        self._connect = connect
        self._listened = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Reading, Writing]]:
        async with (
            GuardedClient(
                self._server, connect=self._connect, on_listening=self._listening
            ) as client,
            streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=MAX_LINE
            ) as (read, write),
        ):
            yield read, write  # type: ignore[misc]  # of the SDK's own kind, which is as good

    def _listening(self) -> None:
        if not self._listened:  # only once: some servers end this stream again and again
            self._listened = True
            self.on_gap()


class SseWire(Wire):
    """HTTP with server-sent events: one GET for all that comes, a POST for each message that goes.

    Why not the SDK's own: it says nothing when a POST fails or the stream never names its address,
    so that a call waits for ever, and it takes no event of more than 1 MiB.
    """

    def __init__(self, server: McpServerSse, over: asyncio.Event, connect: float) -> None:
        super().__init__(over)
        self._server = server
        self._connect = connect
        self._address: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Reading, Writing]]:
        async with GuardedClient(self._server, connect=self._connect) as client:
            self._client = client
            async with pumped(self._read, self._write) as streams:
                yield streams

    async def _read(self, arriving: Arriving) -> None:
        self._arriving = arriving
        try:
            await self._listen(arriving)
        except httpx2.HTTPError as exc:  # SSEError among them
            self._break(f"its event stream broke: {exc}")
        self._break("it ended its event stream")

    async def _listen(self, arriving: Arriving) -> None:
        get = self._client.build_request(
            "GET",
            self._server.url,
            headers={"accept": "text/event-stream", "cache-control": "no-store"},
        )
        response = await self._client.send(get, stream=True)
        try:
            if not response.is_success:
                return self._break(msgspec.json.decode(response.content)["error"]["message"])
            async for event in httpx2.EventSource(response, max_event_size=MAX_LINE):
                if event.event == "endpoint":
                    self._learn_address(response.request.url, event.data)
                elif event.event == "message" and event.data:
                    with suppress(ValueError):
                        await arriving.send(decoded(event.data))
        finally:
            await response.aclose()

    def _learn_address(self, stream: httpx2.URL, data: str) -> None:
        address = stream.join(data.strip())
        origin = (stream.scheme, stream.host, stream.port)
        if (address.scheme, address.host, address.port) != origin:
            self._break(f"it wants messages at another server: {shown(address)}")
        elif not self._address.done():
            self._address.set_result(address)

    async def _write(self, leaving: Leaving) -> None:
        async for message in leaving:
            response = await self._post(await asyncio.shield(self._address), message)
            if response is None:
                return self._break(f"it took no message for {POST_SECONDS:.0f} s")
            if not response.is_success:
                await self._report(response, message)

    async def _post(self, address: httpx2.URL, message: SessionMessage) -> httpx2.Response | None:
        headers = {"content-type": "application/json"}
        post = self._client.build_request(
            "POST", address, content=encoded(message), headers=headers
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(POST_SECONDS):
                response = await self._client.send(post, stream=True)
                await response.aclose()
                return response
        return None

    async def _report(self, response: httpx2.Response, message: SessionMessage) -> None:
        """Give the error that came for a message to whoever waits for its answer."""
        error = ErrorData(**msgspec.json.decode(response.content)["error"])
        if isinstance(message.message, JSONRPCRequest):
            answer = JSONRPCError(jsonrpc="2.0", id=message.message.id, error=error)
            await self._arriving.send(SessionMessage(answer))
        if MARK in response.extensions:  # not the server's word about this message: it is gone
            self._break(error.message)


@asynccontextmanager
async def pumped(
    read: Callable[[Arriving], Coroutine[object, object, None]],
    write: Callable[[Leaving], Coroutine[object, object, None]],
) -> AsyncIterator[tuple[Reading, Writing]]:
    """Streams for the block, filled by `read` and emptied by `write`, each in a task.

    Plain tasks: they belong to no cancel scope, so that they can be ended from wherever we are.
    """
    arriving, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, leaving = anyio.create_memory_object_stream[SessionMessage](0)

    async def reader() -> None:
        async with arriving:
            with suppress(anyio.BrokenResourceError):  # nobody reads any more
                await read(arriving)

    async def writer() -> None:
        async with leaving:
            await write(leaving)

    tasks = [asyncio.create_task(reader()), asyncio.create_task(writer())]
    try:
        yield reading, writing
    finally:
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)
        for stream in (arriving, reading, writing, leaving):
            stream.close()


def _nothing() -> None:
    pass


def wire_to(
    server: Server,
    program: Program | None,
    over: asyncio.Event,
    connect: float,
    channel: Channel | None = None,
) -> Wire:
    """The wire to `server`, whose `program` runs already if it is one; `connect` in seconds.

    `channel` leads to the client, for a server that it provides itself.
    """
    match server:
        case McpServerAcp():
            from acphold.mcp.over_acp import AcpWire  # which needs what is here

            assert channel is not None
            return AcpWire(server, channel, over)
        case McpServerHttp():
            return HttpWire(server, over, connect)
        case McpServerSse():
            return SseWire(server, over, connect)
        case McpServerStdio():
            assert program is not None
            return ProgramWire(program, over)
        case _:
            assert_never(server)


def root_cause(error: BaseException) -> str:
    """What is at the bottom of the groups in which the transports raise, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
