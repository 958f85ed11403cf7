"""The rules of the remote transport, and the checker's end of Streamable HTTP.

That end does not use our transports: they tolerate, and hide, the faults that are looked for here.
These rules are about statuses and streams; the other rules are about the messages, over any
transport. A server may have WebSockets alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules
from acp_check.dialogue import BARE
from acp_check.record import Json, WireLine, line
from acp_check.stage import Stage
from acp_check.subject import ServerSubject
from acp_check.verdicts import NotAdvertised, NotObservable, Reach, RuleSource, Violation
from acp_wire.tasks import end, timeout
from acp_wire.transports.route import Route

if TYPE_CHECKING:
    import httpx2
    from websockets.asyncio.client import ClientConnection


RULES = Rules(only=Reach.SERVER)

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
        try:
            return await self._ask(method, headers, body)
        except ConnectionCut:  # the server may close a connection that was kept for the next one
            return await self._ask(method, headers, body)

    async def _ask(self, method: str, headers: dict[str, str] | None, body: bytes) -> HttpAnswer:
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
            why = f"the request was not answered ({type(error).__name__}: {error})"
            is_cut = isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError)
            raise (ConnectionCut if is_cut else Violation)(why, asked) from None

    async def initialize(self) -> None:
        """Begin the connection; raises NotAdvertised if the server only has WebSockets."""
        try:
            self.hello = await self.ask("POST", body=message_of("initialize", INITIALIZE))
        except ConnectionCut as cut:
            raise NotAdvertised(f"the server lacks HTTP: {cut.why}", *cut.lines) from None
        if self.hello.status in NO_HTTP:
            raise NotAdvertised(f"the server lacks HTTP: it answers {self.hello.status}")
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
                raise Violation(
                    f"the request for a stream was answered with {answer.status_code} {kind}", asked
                )
            yield answer


class StreamEvent(Struct, frozen=True):
    """A message, and the session of the stream on which it arrived; "" is the connection's."""

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
            raise Violation(f"the stream could not be opened: {type(error).__name__}") from None
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
                    message = line(len(self.events), 0.0, "agent", "\n".join(data).encode())
                    self.events.append(StreamEvent(stream, message))
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
            async with timeout(self.http.seconds):
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
        """Wait for the answer to a request, on any stream; None if none arrives in time."""
        await self.until(lambda: self.answers(id))
        return next(iter(self.answers(id)), None)

    def of(self, session_id: str, method: str) -> list[StreamEvent]:
        """Return the messages of this method about a session."""
        messages = (it for it in self.events if it.line.method == method)
        return [it for it in messages if it.session_id == session_id]

    async def aclose(self) -> None:
        await end(*self._reading)
        await self._stack.aclose()


def _new_route(stage: Stage) -> Route:
    assert isinstance(stage.subject, ServerSubject)
    return stage.subject.new_route()


@asynccontextmanager
async def http_of(stage: Stage) -> AsyncIterator[Http]:
    """Connect for the block; raises NotAdvertised if the server has no HTTP."""
    from acp_wire.transports.http_client import http_client

    route = _new_route(stage)
    async with http_client(route, http2=True) as client:
        http = Http(route, client, stage.settings.timeout)
        await http.initialize()
        try:
            yield http
        finally:
            with suppress(Violation):
                await http.ask("DELETE", http.connection)


async def _require_connection(stage: Stage) -> None:
    """Raise NotObservable if no connection can be begun, which other rules of HTTP need."""
    async with http_of(stage) as http:
        if not http.connection:
            raise NotObservable("the server opened no connection", *http.hello.lines)


@asynccontextmanager
async def connection(stage: Stage) -> AsyncIterator[Http]:
    """Begin a connection for the block; raises NotObservable if none can be begun."""
    await stage.need(_require_connection)
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


# -- the rules ------------------------------------------------------------------------------

RFD = "RFD: Streamable HTTP & WebSocket Transport"
ROUTING = RuleSource(RFD, "Unified Endpoint Routing")
VALIDATION = RuleSource(RFD, "Content Negotiation and Validation")
FLOW = RuleSource(RFD, "Streamable HTTP Message Flow")
UPGRADE = RuleSource(RFD, "Connection Establishment (GET with Upgrade)")
MESSAGING = RuleSource(RFD, "Bidirectional Messaging")


@RULES.case("http.initialize", MUST, FLOW)
async def initialize(stage: Stage) -> None:
    """`initialize` gets 200, the answer as JSON, and `Acp-Connection-Id`."""
    async with http_of(stage) as http:
        found = http.hello
        found.expect(200)
        if not found.headers.get("content-type", "").startswith("application/json"):
            raise Violation("the answer is not application/json", *found.lines)
        if not http.connection:
            raise Violation(f"the header {CONNECTION_ID} is missing", *found.lines)
        answer = line(1, 0.0, "agent", found.body)
        if answer.message.get("id") != 1 or "result" not in answer.message:
            raise Violation("the body is not the answer to `initialize`", *found.lines)


@RULES.case("http.accepted", MUST, FLOW)
async def other_messages(stage: Stage) -> None:
    """Any other message gets 202 and an empty body, and its answer on the connection's stream."""
    async with connection(stage) as http, listening(http) as streams:
        id, found = await http.post("check/no_such_method", {})
        found.expect(202)
        if found.body.strip():
            raise Violation("the answer to the POST is not empty", *found.lines)
        if await streams.answer(id) is None:
            raise Violation("the answer to the request does not arrive on any stream", *found.lines)


@RULES.case("http.connection-ids", MUST, FLOW)
async def connection_ids(stage: Stage) -> None:
    """Each connection has a unique `Acp-Connection-Id`."""
    async with connection(stage) as http, http_of(stage) as other:
        if http.connection == other.connection:
            raise Violation("two connections share an id", *http.hello.lines, *other.hello.lines)


@RULES.case("http.own-answers", MUST, FLOW)
async def own_answers(stage: Stage) -> None:
    """Each connection gets its own answers, whatever ids other connections use."""
    async with connection(stage) as http, http_of(stage) as other:
        if http.connection == other.connection:
            raise NotObservable("two connections have the same id")
        async with listening(http) as streams, listening(other) as others:
            for one in (http, other):
                await one.post("check/no_such_method", {})
            id, found = await other.post("check/no_such_method", {})
            if await others.answer(id) is None or await streams.answer(id - 1) is None:
                raise NotObservable("requests are not answered", *found.lines)
            if streams.answers(id) or len(streams.answers(id - 1)) > 1:
                raise Violation("an answer arrived on another connection's stream", *found.lines)


@RULES.case("http.http2", SHOULD, ROUTING)
async def http2(stage: Stage) -> None:
    """The server, or a proxy in front of it, supports HTTP/2."""
    async with connection(stage) as http:
        if http.hello.version != "HTTP/2":
            raise NotObservable(f"it uses {http.hello.version} here; a proxy may use HTTP/2")


@RULES.case("http.media-types", EXPECTED, VALIDATION)
async def media_types(stage: Stage) -> None:
    """`application/json` can have a charset, and `text/event-stream` can be one type of several."""
    async with connection(stage) as http:
        sent = {**http.connection, "Content-Type": "application/json; charset=utf-8"}
        (await http.ask("POST", sent, UNKNOWN)).expect(202)
        sent = {**http.connection, "Accept": "application/json, text/event-stream"}
        (await http.ask("GET", sent)).expect(200)


@RULES.case("http.not-json", EXPECTED, VALIDATION)
async def not_json(stage: Stage) -> None:
    """A body that is not JSON gets 400, or an error on the stream."""
    async with connection(stage) as http:
        (await http.ask("POST", http.connection, b"{check")).expect(400, 422, 202)


@RULES.case("http.unknown-session", SHOULD, ROUTING)
async def unknown_session(stage: Stage) -> None:
    """A GET with an unknown `Acp-Session-Id` gets 404."""
    async with connection(stage) as http:
        sent = EVENTS | http.connection | {SESSION_ID: "check-no-such-session"}
        (await http.ask("GET", sent)).expect(404)


@RULES.case("http.content-type", MUST, VALIDATION)
async def content_type(stage: Stage) -> None:
    """A POST that is not `application/json` gets 415."""
    async with connection(stage) as http:
        sent = {**http.connection, "Content-Type": "text/plain"}
        (await http.ask("POST", sent, UNKNOWN)).expect(415)


@RULES.case("http.accept", MUST, VALIDATION)
async def accept(stage: Stage) -> None:
    """A GET that does not accept `text/event-stream` gets 406."""
    async with connection(stage) as http:
        sent = {**http.connection, "Accept": "application/json"}
        (await http.ask("GET", sent)).expect(406)


@RULES.case("http.no-connection", MUST, ROUTING)
async def no_connection(stage: Stage) -> None:
    """A request without `Acp-Connection-Id` gets 400."""
    async with connection(stage) as http:
        (await http.ask("POST", body=UNKNOWN)).expect(400)
        (await http.ask("GET", EVENTS)).expect(400)
        (await http.ask("DELETE")).expect(400)


@RULES.case("http.unknown-connection", MUST, ROUTING)
async def unknown_connection(stage: Stage) -> None:
    """A request with an unknown `Acp-Connection-Id` gets 404."""
    async with connection(stage) as http:
        (await http.ask("POST", NOBODY, UNKNOWN)).expect(404)
        (await http.ask("GET", {**NOBODY, **EVENTS})).expect(404)


@RULES.case("http.batch", MUST, VALIDATION)
async def batch(stage: Stage) -> None:
    """An array of messages gets 501."""
    async with connection(stage) as http:
        several = b"[%b]" % message_of("check/no_such_method", {}, id=2)
        (await http.ask("POST", http.connection, several)).expect(501)


@RULES.case("http.delete", MUST, FLOW)
async def delete(stage: Stage) -> None:
    """DELETE gets 202 and ends the connection with its stream, and no other."""
    async with connection(stage) as http, http_of(stage) as other:
        async with listening(http) as streams:
            (await http.ask("DELETE", http.connection)).expect(202)
            if not await streams.until(lambda: "" in streams.ended):
                raise Violation("the connection's stream does not end")
        (await http.ask("POST", http.connection, UNKNOWN)).expect(404)
        if other.connection != http.connection:
            (await other.ask("POST", other.connection, UNKNOWN)).expect(202)


# -- WebSocket ------------------------------------------------------------------------------


@asynccontextmanager
async def _socket(stage: Stage) -> AsyncIterator[ClientConnection]:
    from websockets.asyncio import client
    from websockets.exceptions import WebSocketException

    route = _new_route(stage)
    try:
        async with client.connect(
            route.socket_url,
            additional_headers=route.headers(),
            ssl=route.context(),
            open_timeout=stage.settings.timeout,
        ) as found:
            yield found
    except (OSError, WebSocketException) as error:
        raise Violation(f"the WebSocket was refused or lost: {error}") from None


def _id_of(socket: ClientConnection) -> str | None:
    assert socket.response is not None
    return socket.response.headers.get(CONNECTION_ID)


@RULES.case("websocket.connection-id", MUST, UPGRADE)
async def connection_id(stage: Stage) -> None:
    """The answer to the upgrade has `Acp-Connection-Id`."""
    async with _socket(stage) as socket:
        if not _id_of(socket):
            raise Violation(f"the header {CONNECTION_ID} is missing")


@RULES.case("websocket.connection-ids", MUST, UPGRADE)
async def socket_ids(stage: Stage) -> None:
    """Each WebSocket has a unique connection id."""
    async with _socket(stage) as socket, _socket(stage) as other:
        ids = [_id_of(it) for it in (socket, other)]
        if None in ids:
            raise NotObservable(f"the header {CONNECTION_ID} is missing")
        if ids[0] == ids[1]:
            raise Violation(f"two WebSockets have the id {ids[0]!r}")


@RULES.case("websocket.text", MUST, MESSAGING)
async def text_frames(stage: Stage) -> None:
    """Each message is one text frame."""
    async with _socket(stage) as socket:
        for id, method, params in (
            (1, "initialize", INITIALIZE),
            (2, "session/new", stage.params()),
            (3, "check/no_such_method", {}),
        ):
            await socket.send(message_of(method, params, id).decode())
            try:
                async with timeout(stage.settings.timeout):
                    while (await _frame(socket)).get("id") != id:
                        pass
            except TimeoutError:
                raise NotObservable(f"{method} was not answered") from None


async def _frame(socket: ClientConnection) -> Json:
    """Return the next message; raises Violation if the frame is none."""
    said = await socket.recv()
    message = line(1, 0.0, "agent", _bytes(said))
    if not isinstance(said, str):
        raise Violation("the message is in a binary frame", message)
    if message.problem:
        raise Violation(f"the frame is not a message: {message.problem}", message)
    return message.message


@RULES.case("websocket.binary", MUST, MESSAGING)
async def binary(stage: Stage) -> None:
    """Binary frames are ignored."""
    async with _socket(stage) as socket:
        await socket.send(b"\x00check")
        await socket.send(message_of("initialize", INITIALIZE, IN_BINARY))
        asked = message_of("initialize", INITIALIZE)
        await socket.send(asked.decode())
        loop, is_answered = asyncio.get_running_loop(), False
        try:
            async with timeout(stage.settings.timeout) as wait:
                while True:
                    message = line(1, 0.0, "agent", _bytes(await socket.recv()))
                    answered = message.message.get("id")
                    if answered == IN_BINARY:
                        raise Violation("a request in a binary frame was answered", message)
                    if answered == 1:
                        is_answered = True
                        wait.reschedule(loop.time() + bounds.OVERTAKEN_SECONDS)
        except TimeoutError:
            if not is_answered:
                why = "`initialize`, sent after the binary frames, was not answered"
                raise Violation(why, line(0, 0.0, "client", asked)) from None


IN_BINARY: Final = "in a binary frame"
"""The id of a request that nobody should read."""


def _bytes(said: str | bytes) -> bytes:
    return said.encode() if isinstance(said, str) else said
