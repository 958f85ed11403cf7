"""The rules of the remote transport: a WebSocket, and Streamable HTTP, at one address.

A server may have only the first. These rules are about statuses and streams; the other rules are
about the messages, over any transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx2
import msgspec
from msgspec import Struct
from websockets.asyncio import client as websocket
from websockets.exceptions import WebSocketException

from acphold.conformance.catalogue import MUST, Rules
from acphold.conformance.errands import GREET
from acphold.conformance.host import BARE
from acphold.conformance.record import Json, Line, line
from acphold.conformance.rules.prompt_turns import plain_turn
from acphold.conformance.stage import Stage
from acphold.conformance.subject import ServerSubject
from acphold.conformance.verdicts import NotAdvertised, NotObservable, Reach, Source, Violation
from acphold.transports.urls import endpoint_of

RULES = Rules()

RFD = "RFD: Streamable HTTP & WebSocket Transport"
ROUTING = Source(RFD, "Unified Endpoint Routing")
VALIDATION = Source(RFD, "Content Negotiation and Validation")
FLOW = Source(RFD, "Streamable HTTP Message Flow")
UPGRADE = Source(RFD, "Connection Establishment (GET with Upgrade)")
MESSAGING = Source(RFD, "Bidirectional Messaging")

CONNECTION_ID = "Acp-Connection-Id"
SESSION_ID = "Acp-Session-Id"
EVENTS = {"Accept": "text/event-stream"}
NOBODY = {CONNECTION_ID: "00000000-0000-0000-0000-000000000000"}
INITIALIZE: Json = {"protocolVersion": 1, "clientCapabilities": BARE}

NO_HTTP = (404, 405, 426, 501)
"""Answers to a POST from a server that only has WebSockets."""


def _message(method: str, params: Json, id: int = 1) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


# -- Streamable HTTP ------------------------------------------------------------------------


class Exchange(Struct, frozen=True):
    """A request in words, and its answer."""

    asked: Line
    status: int
    headers: httpx2.Headers
    body: bytes

    def expect(self, *statuses: int) -> None:
        """Raise Violation unless the status is one of these."""
        if self.status not in statuses:
            wanted = " or ".join(map(str, statuses))
            raise Violation(f"the status is {self.status}, not {wanted}", *self.lines)

    @property
    def lines(self) -> tuple[Line, Line]:
        said = f"{self.status} ".encode() + self.body[:200]
        return self.asked, line(1, 0.0, "agent", said)


class Http:
    """An HTTP connection to the server; `hello` is its `initialize` and the answer."""

    hello: Exchange

    def __init__(self, url: str, client: httpx2.AsyncClient, seconds: float) -> None:
        self.url = endpoint_of(url).replace("ws", "http", 1)
        self.client = client
        self.seconds = seconds
        self.connection: dict[str, str] = {}

    async def ask(
        self, method: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Exchange:
        """Send one request; a POST is JSON unless a header says otherwise."""
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
                return Exchange(asked, answer.status_code, answer.headers, said)
        except httpx2.HTTPError as error:
            why = f"{type(error).__name__}: {error}"
            raise Violation(f"it was not answered ({why})", asked) from None

    async def initialize(self) -> None:
        """Begin the connection; raises NotAdvertised if the server only has WebSockets."""
        self.hello = await self.ask("POST", body=_message("initialize", INITIALIZE))
        if self.hello.status in NO_HTTP:
            raise NotAdvertised(f"the server has no HTTP: it answers {self.hello.status}")
        if (id := self.hello.headers.get(CONNECTION_ID)) is not None:
            self.connection = {CONNECTION_ID: id}

    @asynccontextmanager
    async def stream(self, **headers: str) -> AsyncIterator[AsyncIterator[Json]]:
        """Yield the messages of a stream of events."""
        sent = {**EVENTS, **self.connection, **headers}
        asked = line(0, 0.0, "client", f"GET {sent}".encode())
        async with self.client.stream("GET", self.url, headers=sent) as answer:
            kind = answer.headers.get("content-type", "")
            if answer.status_code != 200 or not kind.startswith(EVENTS["Accept"]):
                raise Violation(f"a stream was answered with {answer.status_code} {kind}", asked)
            yield _messages(answer)


async def _messages(answer: httpx2.Response) -> AsyncIterator[Json]:
    data: list[str] = []
    async for text in answer.aiter_lines():
        name, _, value = text.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not text and data:
            yield line(0, 0.0, "agent", "\n".join(data).encode()).message
            data.clear()


@asynccontextmanager
async def _http(stage: Stage) -> AsyncIterator[Http]:
    """Connect for the block; raises NotAdvertised if the server has no HTTP."""
    subject = stage.subject
    assert isinstance(subject, ServerSubject)
    async with httpx2.AsyncClient(
        headers=subject.route.headers(),
        verify=subject.route.context() or True,
        timeout=stage.settings.timeout,
    ) as client:
        http = Http(subject.url, client, stage.settings.timeout)
        await http.initialize()
        try:
            yield http
        finally:
            with suppress(Violation):
                await http.ask("DELETE", http.connection)


async def _connected(stage: Stage) -> None:
    """Raise NotObservable if no connection can be begun, which other rules of HTTP need."""
    async with _http(stage) as http:
        if not http.connection:
            raise NotObservable("no connection was begun", *http.hello.lines)


async def _next(http: Http, messages: AsyncIterator[Json], wanted: Callable[[Json], bool]) -> Json:
    """Return the first wanted message of a stream; raises Violation if none comes in time."""
    try:
        async with asyncio.timeout(http.seconds):
            async for message in messages:
                if wanted(message):
                    return message
    except (TimeoutError, httpx2.HTTPError) as error:
        raise Violation(f"nothing came on the stream: {type(error).__name__}") from None
    raise Violation("the stream has ended")


@RULES.case(
    "http.initialize",
    "`initialize` is answered with 200, the answer as JSON, and `Acp-Connection-Id`.",
    MUST,
    FLOW,
    only=Reach.SERVER,
)
async def initialize(stage: Stage) -> None:
    async with _http(stage) as http:
        found = http.hello
        found.expect(200)
        if not found.headers.get("content-type", "").startswith("application/json"):
            raise Violation("the answer is not application/json", *found.lines)
        if not http.connection:
            raise Violation(f"the header {CONNECTION_ID} is missing", *found.lines)
        answer = line(1, 0.0, "agent", found.body)
        if answer.message.get("id") != 1 or "result" not in answer.message:
            raise Violation("the body is not the answer", *found.lines)


@RULES.case(
    "http.accepted",
    "Any other message is answered with 202, and its answer comes on the connection's stream.",
    MUST,
    FLOW,
    only=Reach.SERVER,
)
async def accepted(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http, http.stream() as messages:
        asked = _message("check/no_such_method", {}, id=2)
        found = await http.ask("POST", http.connection, asked)
        found.expect(202)
        await _next(http, messages, lambda message: message.get("id") == 2)


@RULES.case(
    "http.session-stream",
    "What is said in a session comes on the stream of the session.",
    MUST,
    FLOW,
    only=Reach.SERVER,
)
async def session_stream(stage: Stage) -> None:
    await stage.given(_connected)
    await stage.given(plain_turn)
    async with _http(stage) as http, http.stream() as messages:
        opening = _message("session/new", stage.params(), id=2)
        (await http.ask("POST", http.connection, opening)).expect(202)
        opened = await _next(http, messages, lambda message: message.get("id") == 2)
        id = (opened.get("result") or {}).get("sessionId")
        if not isinstance(id, str):
            raise NotObservable("no session was begun")
        stage.made[id] = str(stage.work)
        session = {SESSION_ID: id}
        async with http.stream(**session) as told:
            content = [{"type": "text", "text": GREET.words}]
            prompt = _message("session/prompt", {"sessionId": id, "prompt": content}, id=3)
            (await http.ask("POST", {**http.connection, **session}, prompt)).expect(202)
            await _next(http, told, lambda message: message.get("method") == "session/update")
            # Questions are not answered here; one also appears in the session.
            await _next(http, told, lambda message: "id" in message)


@RULES.case(
    "http.content-type",
    "A POST that is not `application/json` is answered with 415.",
    MUST,
    VALIDATION,
    only=Reach.SERVER,
)
async def content_type(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        sent = {**http.connection, "Content-Type": "text/plain"}
        (await http.ask("POST", sent, _message("check/no_such_method", {}))).expect(415)


@RULES.case(
    "http.accept",
    "A GET that does not accept `text/event-stream` is answered with 406.",
    MUST,
    VALIDATION,
    only=Reach.SERVER,
)
async def accept(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        sent = {**http.connection, "Accept": "application/json"}
        (await http.ask("GET", sent)).expect(406)


@RULES.case(
    "http.no-connection",
    "A request without `Acp-Connection-Id` is answered with 400.",
    MUST,
    ROUTING,
    only=Reach.SERVER,
)
async def no_connection(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        (await http.ask("POST", body=_message("check/no_such_method", {}))).expect(400)
        (await http.ask("GET", EVENTS)).expect(400)
        (await http.ask("DELETE")).expect(400)


@RULES.case(
    "http.unknown-connection",
    "A request with an unknown `Acp-Connection-Id` is answered with 404.",
    MUST,
    ROUTING,
    only=Reach.SERVER,
)
async def unknown_connection(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        (await http.ask("POST", NOBODY, _message("check/no_such_method", {}))).expect(404)
        (await http.ask("GET", {**NOBODY, **EVENTS})).expect(404)


@RULES.case(
    "http.batch",
    "An array of messages is answered with 501.",
    MUST,
    VALIDATION,
    only=Reach.SERVER,
)
async def batch(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        several = b"[%b]" % _message("check/no_such_method", {}, id=2)
        (await http.ask("POST", http.connection, several)).expect(501)


@RULES.case(
    "http.delete",
    "DELETE is answered with 202 and ends the connection: its stream, and all that asks for it.",
    MUST,
    FLOW,
    only=Reach.SERVER,
)
async def delete(stage: Stage) -> None:
    await stage.given(_connected)
    async with _http(stage) as http:
        async with http.stream() as messages:
            (await http.ask("DELETE", http.connection)).expect(202)
            try:
                async with asyncio.timeout(http.seconds):
                    async for _ in messages:
                        pass
            except (TimeoutError, httpx2.TimeoutException):
                raise Violation("the stream goes on") from None
            except httpx2.HTTPError:
                pass  # a connection that is cut off has ended, too
        after = _message("check/no_such_method", {}, id=2)
        (await http.ask("POST", http.connection, after)).expect(404)


# -- WebSocket ------------------------------------------------------------------------------


@asynccontextmanager
async def _socket(stage: Stage) -> AsyncIterator[websocket.ClientConnection]:
    subject = stage.subject
    assert isinstance(subject, ServerSubject)
    try:
        async with websocket.connect(
            endpoint_of(subject.url),
            additional_headers=subject.route.headers(),
            ssl=subject.route.context(),
            open_timeout=stage.settings.timeout,
        ) as found:
            yield found
    except (OSError, WebSocketException) as error:
        raise Violation(f"the WebSocket was refused, or lost: {error}") from None


@RULES.case(
    "websocket.connection-id",
    "The answer to the upgrade has `Acp-Connection-Id`.",
    MUST,
    UPGRADE,
    only=Reach.SERVER,
)
async def connection_id(stage: Stage) -> None:
    async with _socket(stage) as socket:
        assert socket.response is not None
        if not socket.response.headers.get(CONNECTION_ID):
            raise Violation(f"the header {CONNECTION_ID} is missing")


@RULES.case(
    "websocket.binary",
    "What is binary is passed over.",
    MUST,
    MESSAGING,
    only=Reach.SERVER,
)
async def binary(stage: Stage) -> None:
    async with _socket(stage) as socket:
        await socket.send(b"\x00check")
        asked = _message("initialize", INITIALIZE)
        await socket.send(asked.decode())
        try:
            async with asyncio.timeout(stage.settings.timeout):
                while line(1, 0.0, "agent", _bytes(await socket.recv())).message.get("id") != 1:
                    pass
        except TimeoutError:
            why = "`initialize` was not answered behind it"
            raise Violation(why, line(0, 0.0, "client", asked)) from None


def _bytes(said: str | bytes) -> bytes:
    return said.encode() if isinstance(said, str) else said
