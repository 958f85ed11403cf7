"""The checker's end of Streamable HTTP: requests with their statuses, streams with their messages.

It is no transport: those forgive, and hide what is looked at here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from acphold.conformance.host import BARE
from acphold.conformance.record import Json, WireLine, line
from acphold.conformance.stage import Stage
from acphold.conformance.subject import ServerSubject
from acphold.conformance.verdicts import NotAdvertised, NotObservable, Violation
from acphold.tasks import end
from acphold.transports.route import Route

if TYPE_CHECKING:  # of an extra: what needs it imports it late
    import httpx2

CONNECTION_ID = "Acp-Connection-Id"
SESSION_ID = "Acp-Session-Id"
EVENTS = {"Accept": "text/event-stream"}
NOBODY = {CONNECTION_ID: "00000000-0000-0000-0000-000000000000"}
INITIALIZE: Json = {"protocolVersion": 1, "clientCapabilities": BARE}

NO_HTTP = (404, 405, 426, 501)
"""Answers to a POST from a server that only has WebSockets."""


def message_of(method: str | None, params: Json, id: object = 1) -> bytes:
    """Return a message: without an `id` a notification, without a method a response."""
    message: Json = {"jsonrpc": "2.0"}
    if id is not None:
        message["id"] = id
    message |= {"result": params} if method is None else {"method": method, "params": params}
    return msgspec.json.encode(message)


UNKNOWN = message_of("check/no_such_method", {})
"""A request that no agent knows."""


class HttpAnswer(Struct, frozen=True):
    """A request in words, and its answer."""

    asked: WireLine
    status: int
    headers: httpx2.Headers
    body: bytes
    version: str

    def expect(self, *statuses: int) -> None:
        """Raise Violation unless the status is one of these."""
        if self.status not in statuses:
            wanted = " or ".join(map(str, statuses))
            raise Violation(f"the status is {self.status}, not {wanted}", *self.lines)

    @property
    def lines(self) -> tuple[WireLine, WireLine]:
        said = f"{self.status} ".encode() + self.body[:200]
        return self.asked, line(1, 0.0, "agent", said)


class ConnectionCut(Violation):
    """The server has closed the connection in place of an answer."""


class Http:
    """An HTTP connection to the server; `hello` is its `initialize` and the answer."""

    hello: HttpAnswer

    def __init__(self, route: Route, client: httpx2.AsyncClient, seconds: float) -> None:
        self.url = route.http_url
        self.client = client
        self.seconds = seconds
        self.connection: dict[str, str] = {}
        self._last_id = 1

    async def ask(
        self, method: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> HttpAnswer:
        """Send one request; a POST is JSON unless a header says otherwise."""
        import httpx2

        sent = {"Content-Type": "application/json"} if method == "POST" else {}
        sent |= headers or {}
        asked = line(0, 0.0, "client", f"{method} {sent} ".encode() + body[:200])
        try:
            # A stream that should not have been opened does not end, so it is not read.
            async with self.client.stream(
                method, self.url, headers=sent, content=body or None
            ) as answer:
                is_events = answer.headers.get("content-type", "").startswith(EVENTS["Accept"])
                said = b"" if is_events else await answer.aread()
                return HttpAnswer(
                    asked, answer.status_code, answer.headers, said, answer.http_version
                )
        except httpx2.HTTPError as error:
            why = f"it was not answered ({type(error).__name__}: {error})"
            is_cut = isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError)
            raise (ConnectionCut if is_cut else Violation)(why, asked) from None

    async def initialize(self) -> None:
        """Begin the connection; raises NotAdvertised if the server only has WebSockets."""
        try:
            self.hello = await self.ask("POST", body=message_of("initialize", INITIALIZE))
        except ConnectionCut as cut:
            raise NotAdvertised(f"the server has no HTTP: {cut.why}", *cut.lines) from None
        if self.hello.status in NO_HTTP:
            raise NotAdvertised(f"the server has no HTTP: it answers {self.hello.status}")
        if (id := self.hello.headers.get(CONNECTION_ID)) is not None:
            self.connection = {CONNECTION_ID: id}

    def head(self, session_id: str = "") -> dict[str, str]:
        """Return the headers of a request about a session, or about the connection."""
        return self.connection | ({SESSION_ID: session_id} if session_id else {})

    def next_id(self) -> int:
        """Return an id that no request of this connection has had."""
        self._last_id += 1
        return self._last_id

    async def post(self, method: str, params: Json, session_id: str = "") -> tuple[int, HttpAnswer]:
        """Post a request; return its id, and the answer to the POST."""
        id = self.next_id()
        return id, await self.ask("POST", self.head(session_id), message_of(method, params, id))

    @asynccontextmanager
    async def stream(self, session_id: str = "") -> AsyncIterator[httpx2.Response]:
        """Open a stream of events."""
        import httpx2

        sent = EVENTS | self.head(session_id)
        asked = line(0, 0.0, "client", f"GET {sent}".encode())
        # Servers send a sign of life every 15 seconds.
        quiet = httpx2.Timeout(self.seconds, read=max(self.seconds, 60.0))
        async with self.client.stream("GET", self.url, headers=sent, timeout=quiet) as answer:
            kind = answer.headers.get("content-type", "")
            if answer.status_code != 200 or not kind.startswith(EVENTS["Accept"]):
                raise Violation(f"a stream was answered with {answer.status_code} {kind}", asked)
            yield answer


class StreamEvent(Struct, frozen=True):
    """A message, and the session whose stream it came on; "" is the connection's."""

    stream: str
    line: WireLine

    @property
    def message(self) -> Json:
        return self.line.message

    @property
    def session_id(self) -> str | None:
        """The session that it is about, if it names one."""
        return self.line.session_id


class Streams:
    """The streams of one connection, which are read while others speak: `events` in order."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.events: list[StreamEvent] = []
        self.ended: set[str] = set()
        self._news = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def open(self, session_id: str = "") -> None:
        """Open the stream of a session, or of the connection; raises Violation if it is refused."""
        import httpx2

        try:
            answer = await self._stack.enter_async_context(self.http.stream(session_id))
        except httpx2.HTTPError as error:
            raise Violation(f"a stream was not opened: {type(error).__name__}") from None
        reading = self._read(session_id, answer)
        self._reading.append(asyncio.create_task(reading, name="read a stream"))

    async def _read(self, stream: str, answer: httpx2.Response) -> None:
        import httpx2

        data: list[str] = []
        try:
            async for text in answer.aiter_lines():
                name, _, value = text.partition(":")
                if name == "data":
                    data.append(value.removeprefix(" "))
                elif not text and data:
                    told = line(len(self.events), 0.0, "agent", "\n".join(data).encode())
                    self.events.append(StreamEvent(stream, told))
                    data.clear()
                    self._news.set()
        except httpx2.HTTPError:
            pass  # a connection that is cut off has ended, too
        finally:
            self.ended.add(stream)
            self._news.set()

    async def until(self, found: Callable[[], object]) -> bool:
        """Wait until `found()` is true; return False if that does not come in time."""
        try:
            async with asyncio.timeout(self.http.seconds):
                while not found():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def answers(self, id: int) -> list[StreamEvent]:
        """Return the answers to a request."""
        return [it for it in self.events if it.line.is_response and it.message.get("id") == id]

    async def answer(self, id: int) -> StreamEvent | None:
        """Wait for the answer to a request, on any stream; None if none comes in time."""
        await self.until(lambda: self.answers(id))
        return next(iter(self.answers(id)), None)

    def of(self, session_id: str, method: str) -> list[StreamEvent]:
        """Return the messages of this method about a session."""
        told = (it for it in self.events if it.line.method == method)
        return [it for it in told if it.session_id == session_id]

    async def aclose(self) -> None:
        await end(*self._reading)
        await self._stack.aclose()


@asynccontextmanager
async def http_of(stage: Stage) -> AsyncIterator[Http]:
    """Connect for the block; raises NotAdvertised if the server has no HTTP."""
    subject = stage.subject
    assert isinstance(subject, ServerSubject)
    from acphold.transports.http_client import http_client

    route = subject.new_route()
    async with http_client(route, http2=True) as client:
        http = Http(route, client, stage.settings.timeout)
        await http.initialize()
        try:
            yield http
        finally:
            with suppress(Violation):
                await http.ask("DELETE", http.connection)


async def _connected(stage: Stage) -> None:
    """Raise NotObservable if no connection can be begun, which other rules of HTTP need."""
    async with http_of(stage) as http:
        if not http.connection:
            raise NotObservable("no connection was begun", *http.hello.lines)


@asynccontextmanager
async def connection(stage: Stage) -> AsyncIterator[Http]:
    """Begin a connection for the block; raises NotObservable if none can be begun."""
    await stage.given(_connected)
    async with http_of(stage) as http:
        yield http


@asynccontextmanager
async def listening(http: Http) -> AsyncIterator[Streams]:
    """Open the stream of the connection for the block, and close all at its end."""
    streams = Streams(http)
    try:
        await streams.open()
        yield streams
    finally:
        await streams.aclose()
