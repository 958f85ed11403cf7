"""The message streams that the SDK needs, over each kind of transport, and their HTTP client.

Left alone, the SDK's transports lose the status and WWW-Authenticate of a refusal, let one failed
request take the whole connection down, follow redirects for long, and read answers of any size.
Here each failure becomes a JSON-RPC error in plain words, which ends the one request it belongs to.

Needs the SDK: imported only after `connections.load_sdk`.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

import anyio
import httpx2
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from acp_wire.errors import ConnectionLostError
from acp_wire.rpc import MAX_MESSAGE
from acp_wire.schema import McpServerHttp, McpServerSse
from acp_wire.tasks import end, timeout
from acp_wire.transports.http_client import take_unpacked
from acphold.mcp_servers import bounds
from acphold.mcp_servers.faults import FaultError, FaultRedaction, LostError
from acphold.mcp_servers.messages import (
    FORGOTTEN,
    MARK,
    REFUSED,
    UNSENT,
    UnreadableError,
    decode_message,
    encode_message,
    failure,
    readable,
)
from acphold.mcp_servers.servers import McpServerAcp
from acphold.mcp_servers.transports import Channel, InnerError, StdioServer

LONGEST_SEGMENT = 24
"""Longest part of a path that is shown, in characters; a longer one may be a key."""


class GuardedClient(httpx2.AsyncClient):
    """Sends to the address of one server, with its headers, and to no other.

    `on_listening` is called when a stream for the server's own messages has begun.
    """

    def __init__(
        self,
        server: McpServerHttp | McpServerSse,
        *,
        connect: float,
        on_listening: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            # As bytes: it accepts only ASCII strings.
            headers=[(header.name.encode(), header.value.encode()) for header in server.headers],
            # Any time may pass between two bytes of an answer: a working tool is silent.
            timeout=httpx2.Timeout(connect, read=None, write=bounds.WRITE_SECONDS, pool=None),
        )
        take_unpacked(self)
        self._redact = FaultRedaction(server)
        self._on_listening = on_listening
        # With SSE the answers come on the event stream, and the body of a POST does not matter.
        self._answers = isinstance(server, McpServerHttp)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: object
    ) -> httpx2.Response:
        """Return the answer to `request`, or one that we made up; never raises."""
        asked = None  # the id of the request it carries
        if request.method == "POST":
            ours = msgspec.json.decode(request.content, type=_Ours)
            asked = None if ours.method is None else ours.id
        wait = bounds.NOTICE_SECONDS if request.method == "POST" and asked is None else None
        try:
            async with timeout(wait):
                return await self._send_safely(request, asked)
        except TimeoutError:
            return self._failure(request, f"it accepted no message for {wait:g} s", REFUSED)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as exc:
            return self._failure(request, f"cannot connect: {self._why(exc)}", UNSENT)
        except httpx2.HTTPError as exc:
            return self._failure(request, f"no answer: {self._why(exc)}", REFUSED)

    async def _send_safely(
        self, request: httpx2.Request, asked: RequestId | None
    ) -> httpx2.Response:
        """Return the answer if the SDK can use it; otherwise one of ours."""
        sent = request
        for _ in range(bounds.REDIRECTS + 1):
            response = await super().send(sent, stream=True, follow_redirects=False)
            if (follow := response.next_request) is None:
                break
            await response.aclose()
            if not _same_place(sent, follow):  # our headers may not go there
                reason = f"it redirects to {safe_url(follow.url)}; use that address if it is right"
                return self._failure(sent, reason, REFUSED)
            sent = follow
        else:
            return self._failure(sent, "it redirects endlessly", REFUSED)

        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "GET" and kind == "text/event-stream" and self._on_listening:
            self._on_listening()
        if response.is_success and kind != "application/json":
            return response

        body = bytearray()  # only the beginning of an error
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > (MAX_MESSAGE if response.is_success else bounds.ERROR_BODY_BYTES):
                    break
        finally:
            await response.aclose()
        if response.is_success and len(body) > MAX_MESSAGE:
            reason = f"it answered with more than {MAX_MESSAGE // 1024} KiB"
            return self._failure(request, reason, REFUSED)
        whole = _rebuilt(response, bytes(body))
        if not response.is_success:
            return self._refusal(request, whole, response.reason_phrase)
        if asked is None or not self._answers:
            return whole
        try:
            answer = decode_message(whole.content)
        except UnreadableError as exc:
            return self._failure(request, f"its answer cannot be read: {exc}", REFUSED)
        if not isinstance(answer.message, JSONRPCResponse | JSONRPCError):
            return self._failure(request, "it answered with another kind of message", REFUSED)
        answer.message.id = asked  # whatever it says: the call must not wait for ever
        return _rebuilt(response, encode_message(answer))

    def _refusal(
        self, request: httpx2.Request, response: httpx2.Response, phrase: str
    ) -> httpx2.Response:
        """Return the server's own JSON-RPC error, or one of ours with its status and `phrase`."""
        status, code = response.status_code, None  # the code of a JSON-RPC error, if it is one
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            code = msgspec.json.decode(response.content, type=_ErrorAnswer).error.code
        if "mcp-session-id" in request.headers:
            # The specification says 404; the TypeScript examples answer 400 with these words.
            is_gone = status == 404 and code != METHOD_NOT_FOUND
            if is_gone or (status == 400 and b"session id" in response.content.lower()):
                return self._failure(request, "it has forgotten the session", FORGOTTEN)
        if code is not None:
            return response
        words = f"it answered {status} {phrase}".rstrip()
        if challenge := response.headers.get("www-authenticate"):
            words += f" (WWW-Authenticate: {self._redact.one_line(challenge)})"
        return self._failure(request, words, REFUSED)

    def _failure(self, request: httpx2.Request, reason: str, mark: str) -> httpx2.Response:
        message = self._redact(f"{safe_url(request.url)}: {reason}")
        error = {"code": CONNECTION_CLOSED, "message": message, "data": {MARK: mark}}
        return httpx2.Response(
            502,
            headers={"content-type": "application/json"},
            content=msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error}),
            request=request,
            extensions={MARK: message},
        )

    def _why(self, error: BaseException) -> str:
        """Return the root cause of `error`, in words."""
        chain = [error]
        while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < 20:
            chain.append(cause)
        for link in reversed(chain):
            match link:
                case socket.gaierror():
                    return "unknown host"
                case ssl.SSLError():
                    return f"TLS: {link.reason or link}"
                case OSError(errno=int(number)):
                    return os.strerror(number).lower()
        if isinstance(error, httpx2.TimeoutException):
            return "it took too long"
        return self._redact.one_line(str(error)) or type(error).__name__


def safe_url(url: httpx2.URL) -> str:
    """Return `url` without the parts that may hold keys."""
    segments = [part if len(part) <= LONGEST_SEGMENT else "…" for part in url.path.split("/")]
    port = "" if url.port is None else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{'/'.join(segments)}"


def _same_place(sent: httpx2.Request, follow: httpx2.Request) -> bool:
    """Return True if `follow` is the same request to the same server, or to its HTTPS side."""
    old, new = sent.url, follow.url
    upgrade = (old.scheme, new.scheme) == ("http", "https") and old.port is new.port is None
    same_origin = old.host == new.host and (
        upgrade or (old.scheme, old.port) == (new.scheme, new.port)
    )
    strange_user = bool(new.userinfo) and new.userinfo != old.userinfo
    return same_origin and follow.method == sent.method and not strange_user


class _Ours(msgspec.Struct):
    """A message of ours: without a method an answer, without an id a notification."""

    id: int | str | None = None
    method: str | None = None


class _ErrorBody(msgspec.Struct):
    code: int
    message: str


class _ErrorAnswer(msgspec.Struct):
    jsonrpc: str
    error: _ErrorBody


def _rebuilt(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """Return the same answer with its body read and decoded."""
    gone = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in gone]
    return httpx2.Response(
        response.status_code, headers=headers, content=body, request=response.request
    )


Reading = MemoryObjectReceiveStream[SessionMessage | Exception]
Writing = MemoryObjectSendStream[SessionMessage]


class Wire:
    """A connection below MCP: `async with wire.open() as (read, write)`.

    `over` is set when it is no longer usable; `fault` then returns the reason. `on_gap` is called
    when earlier messages of the server may have been lost. Each transport is a subclass with
    `_connection`, `_read` and `_send`.
    """

    def __init__(self, over: asyncio.Event) -> None:
        self.over = over
        self.on_gap: Callable[[], None] = lambda: None
        self._fault: str | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Reading, Writing]]:
        """Open both streams, for the block; none of this waits for the server.

        Writing never waits either: the SDK starts the clock of a call only once its message is
        taken, and cancels it with another message, so both would wait for the server.
        """
        arriving, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, leaving = anyio.create_memory_object_stream[SessionMessage](math.inf)
        self._arriving, self._leaving = arriving, leaving

        async def fill() -> None:
            async with arriving:
                with suppress(anyio.BrokenResourceError):  # nobody reads any more
                    await self._read()

        async def empty() -> None:
            try:
                async for message in leaving:
                    try:
                        await self._send(message, encode_message(message))
                    except ValueError as exc:  # too deep, or half of a surrogate pair
                        if isinstance(message.message, JSONRPCRequest):
                            why = f"the request cannot be sent: {exc}"
                            await arriving.send(failure(message.message.id, why))
            except TimeoutError:
                self._break(f"it accepted no message for {bounds.TAKE_SECONDS:g} s")
            except (FaultError, anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
                self._break(str(exc) or "the connection was closed")

        async with self._connection():
            # Plain tasks: they belong to no cancel scope, and can be ended from anywhere.
            tasks = [asyncio.create_task(fill()), asyncio.create_task(empty())]
            try:
                yield reading, writing
            finally:
                for stream in (arriving, reading, writing, leaving):
                    stream.close()
                with anyio.CancelScope(shield=True):
                    await end(*tasks)

    async def fault(self, otherwise: str) -> str:
        """Return the reason why it is over, in words, or else `otherwise`."""
        return self._fault or otherwise

    def _connection(self) -> AbstractAsyncContextManager[object]:
        """Return a context that has to be open meanwhile."""
        return nullcontext()

    async def _read(self) -> None:
        """Deliver the server's messages, until it is over."""
        raise NotImplementedError

    async def _send(self, message: SessionMessage, line: bytes) -> None:
        """Send `message`, whose JSON is `line`; raises FaultError if the connection is over."""
        raise NotImplementedError

    def _break(self, fault: str) -> None:
        self._fault = self._fault or fault
        self.over.set()

    async def _arrive(self, found: SessionMessage | UnreadableError) -> None:
        """Deliver a message; an unreadable answer fails its call."""
        if self._leaving.statistics().current_buffer_used > bounds.UNSENT_MESSAGES:
            self._break(
                f"it asks without reading: {bounds.UNSENT_MESSAGES} answers are waiting for it"
            )
        if isinstance(found, SessionMessage):
            await self._arriving.send(found)
        elif found.id is not None and not found.asks:
            await self._arriving.send(failure(found.id, f"its answer cannot be read: {found}"))


class StdioWire(Wire):
    """Lines on the stdin and stdout of a program that was started."""

    def __init__(self, server: StdioServer, over: asyncio.Event) -> None:
        super().__init__(over)
        self._server = server

    async def fault(self, otherwise: str) -> str:
        return await self._server.fault(await super().fault(otherwise))

    async def _read(self) -> None:
        try:
            async for line in self._server.lines():
                found = readable(line)
                if isinstance(found, UnreadableError):
                    self._server.note_noise(line)
                    await asyncio.sleep(0)  # a flood must not stop everybody else
                await self._arrive(found)
        except FaultError as exc:
            self._break(str(exc))
        self._break("it closed its stdout")

    async def _send(self, message: SessionMessage, line: bytes) -> None:
        with suppress(ConnectionLostError):  # the reader knows the reason
            async with timeout(bounds.TAKE_SECONDS):
                await self._server.send(line)


class HttpWire(Wire):
    """Streamable HTTP, by the SDK's transport; each request stands for itself."""

    def __init__(self, server: McpServerHttp, over: asyncio.Event, connect: float) -> None:
        super().__init__(over)
        self._server = server
        self._connect = connect
        self._listened = False

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[None]:
        async with (
            GuardedClient(
                self._server, connect=self._connect, on_listening=self._listening
            ) as client,
            streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=bounds.EVENT_BYTES
            ) as (self._reading, self._writing),
        ):
            yield

    async def _read(self) -> None:
        async for item in self._reading:
            if isinstance(item, SessionMessage):  # otherwise not a message
                await self._arrive(item)
        self._break("the connection was closed")

    async def _send(self, message: SessionMessage, line: bytes) -> None:
        # Decoded again: the transport would fail on a value that pydantic allows and JSON does not
        # (NaN).
        sent = decode_message(line)
        sent.metadata = message.metadata
        async with timeout(bounds.TAKE_SECONDS):
            await self._writing.send(sent)

    def _listening(self) -> None:
        if not self._listened:  # only once: some servers end this stream over and over
            self._listened = True
            self.on_gap()


class SseWire(Wire):
    """HTTP with server-sent events: one GET for all incoming messages, a POST for each outgoing
    one.

    The SDK's own is not used: it does not report a failed POST or a stream that never names its
    address, so that a call waits for ever, and it reads no event over 1 MiB.
    """

    def __init__(self, server: McpServerSse, over: asyncio.Event, connect: float) -> None:
        super().__init__(over)
        self._server = server
        self._client = GuardedClient(server, connect=connect)
        self._address: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()

    def _connection(self) -> AbstractAsyncContextManager[object]:
        return self._client

    async def _read(self) -> None:
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        get = self._client.build_request("GET", self._server.url, headers=headers)
        response = await self._client.send(get, stream=True)
        try:
            if not response.is_success:
                return self._break(_error(response).message)
            async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE):
                if event.event == "endpoint":
                    stream = response.request.url
                    address = stream.join(event.data.strip())
                    origin = (stream.scheme, stream.host, stream.port)
                    if (address.scheme, address.host, address.port) != origin:
                        self._break(
                            f"it wants messages sent to another server: {safe_url(address)}"
                        )
                    elif not self._address.done():
                        self._address.set_result(address)
                elif event.event == "message" and event.data:
                    await self._arrive(readable(event.data.encode()))
        except httpx2.HTTPError as exc:  # including SSEError
            self._break(f"its event stream broke: {exc}")
        finally:
            await response.aclose()
        self._break("it closed its event stream")

    async def _send(self, message: SessionMessage, line: bytes) -> None:
        address = await asyncio.shield(self._address)  # limited by the deadline of connecting
        headers = {"content-type": "application/json"}
        post = self._client.build_request("POST", address, content=line, headers=headers)
        async with timeout(bounds.TAKE_SECONDS):  # its answer comes on the event stream
            response = await self._client.send(post, stream=True)
            await response.aclose()
        if response.is_success:
            return
        error = _error(response)
        if isinstance(message.message, JSONRPCRequest):
            answer = JSONRPCError(jsonrpc="2.0", id=message.message.id, error=error)
            await self._arriving.send(SessionMessage(answer))
        if MARK in response.extensions:  # not an answer to this message: the server is gone
            raise FaultError(error.message)


class AcpWire(Wire):
    """Each request is one of ACP, in its own task; if the client fails one, the connection ends.

    The draft has no message for a notification to the server, nor for a request from it. So only
    `notifications/cancelled` has an effect: it cancels the request over ACP.
    """

    def __init__(self, server: McpServerAcp, channel: Channel, over: asyncio.Event) -> None:
        super().__init__(over)
        self._server = server
        self._channel = channel
        self._asking: dict[object, asyncio.Task[None]] = {}
        # Incoming messages in order: a report stays before the answer it belongs to.
        self._incoming: asyncio.Queue[SessionMessage] = asyncio.Queue()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await end(*self._asking.values())

    async def _read(self) -> None:
        while True:
            await self._arrive(await self._incoming.get())

    async def _send(self, message: SessionMessage, line: bytes) -> None:
        match message.message:
            case JSONRPCRequest() as request:
                task = asyncio.create_task(self._ask(request), name=f"mcp {request.method}")
                self._asking[request.id] = task
            case JSONRPCNotification(method="notifications/cancelled", params=dict() as params):
                if (asked := self._asking.get(params.get("requestId"))) is not None:
                    asked.cancel()

    async def _ask(self, request: JSONRPCRequest) -> None:
        try:
            outcome = await self._channel.request(
                self._server.server_id, request.method, request.params, self._hear
            )
        except LostError as exc:
            self._break(str(exc))
        except FaultError as exc:
            self._incoming.put_nowait(failure(request.id, str(exc)))
        else:
            answer: JSONRPCResponse | JSONRPCError
            if isinstance(outcome, InnerError):
                error = ErrorData(code=outcome.code, message=outcome.message, data=outcome.data)
                answer = JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
            else:
                answer = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=outcome)
            self._incoming.put_nowait(SessionMessage(answer))
        finally:
            del self._asking[request.id]

    def _hear(self, method: str, params: dict[str, object] | None) -> None:
        notification = JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        self._incoming.put_nowait(SessionMessage(notification))


def url_wire(server: McpServerHttp | McpServerSse, over: asyncio.Event, connect: float) -> Wire:
    """Return the wire to a server with an address; `connect` in seconds."""
    kind = SseWire if isinstance(server, McpServerSse) else HttpWire
    return kind(server, over, connect)  # type: ignore[arg-type]  # each gets its own kind


def root_cause(error: BaseException) -> str:
    """Return the innermost error of the transports' exception groups, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _error(response: httpx2.Response) -> ErrorData:
    """Return the JSON-RPC error that the guarded client makes of every failed answer."""
    return ErrorData(**msgspec.json.decode(response.content)["error"])
