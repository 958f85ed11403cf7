"""One request of an ASGI server and its answer, which may be a stream of events.

Sources: ASGI 3.0, HTTP and WebSocket 2.4; HTML standard, server-sent events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from msgspec import MsgspecError, Struct, ValidationError, convert, inspect
from msgspec.json import decode, encode

from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.tasks import end, first, timeout
from acphold import errors
from acphold.journal.access import AccessToken
from acphold.safety.errors import RuleError
from acphold.web import bounds
from acphold.web.connections import POLICY, STATE, Headers, Receive, Scope, Send, ServedConnection

log = logging.getLogger(__name__)

T = TypeVar("T")
Q = TypeVar("Q", bound=Struct)

HEARTBEAT: Final = b": keepalive\n\n"

AtOnce = Callable[[bytes], bool] | None
"""Sends events in this step, without waking the reader, which would take longer.

Returns False if they would have to wait.
"""


class RefusedError(errors.AcpError):
    """A request is refused with HTTP status `status`.

    The message says no more than a stranger may know. `realm` names what a token is required for,
    if one is.

    `attempt` is the reason for the audit log, "" for a mere mistake; `token` is the token used, if
    one was shown.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        realm: str = "",
        *,
        attempt: str = "",
        token: AccessToken | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.realm = realm
        self.attempt = attempt
        self.token = token


STATUSES: Final = (
    (errors.ForbiddenError, 403),
    (errors.UnknownSessionError, 404),
    (errors.CursorError, 400),
    (errors.IllegibleNameError, 400),
    (errors.RewrittenError, 409),
    (RuleError, 409),
    (errors.JournalError, 503),
)
"""The HTTP status for each error of a request; the first match counts."""


@contextmanager
def refusing() -> Iterator[None]:
    """Raise RefusedError in place of one of these errors in the block."""
    try:
        yield
    except errors.AcpError as exc:
        for kind, status in STATUSES:
            if isinstance(exc, kind):
                reason = "there is no such session" if status == 404 else str(exc)
                raise RefusedError(status, reason) from None
        raise


class EventStream:
    """The answer to one GET, event by event; `size` is the bytes not written yet.

    No bytes wait for a reader while the stream is closed, unless it `is_awaited` to be opened.
    `on_resize` is told how many more bytes wait, or fewer, and when events were written or a reader
    came or went.
    """

    def __init__(self, on_resize: Callable[[int], None], *, is_awaited: bool = False) -> None:
        self._on_resize = on_resize
        self.is_awaited = is_awaited
        self._counted = 0
        self._events: list[bytes] = []
        self._after_gap: list[bytes] = []
        self._gap: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._reader = 0
        self._waiting = 0
        self._at_once: AtOnce = None
        self._late: asyncio.TimerHandle | None = None
        self.size = 0

    @property
    def is_open(self) -> bool:
        """True while somebody reads it."""
        return self._reader > 0

    def add(self, event: bytes, *, may_wait: bool = False) -> None:
        """Send an event; one that `may_wait` is sent with what follows in a moment."""
        (self._events if self._gap is None else self._after_gap).append(event)
        self._resize(self.size + len(event))
        if self._gap is not None:
            return
        if not may_wait:
            self._deliver()
        elif self._late is None:

            def deliver_late() -> None:
                self._late = None
                if self._events:
                    self._deliver()

            self._late = asyncio.get_running_loop().call_later(
                bounds.BARE_POSITION_SECONDS, deliver_late
            )

    def add_after_gap(self, event: bytes) -> None:
        """Send this event and later ones a moment after the earlier ones.

        The Python SDK may process an answer before updates that arrive in the same read.
        """
        if self._gap is None:
            loop = asyncio.get_running_loop()
            self._gap = loop.call_later(bounds.ANSWER_APART_SECONDS, self._end_gap)
        self.add(event)

    def _end_gap(self) -> None:
        is_written = not self._events and self._waiting == self._reader
        if not is_written and (self.is_open or self.is_awaited):
            loop = asyncio.get_running_loop()
            self._gap = loop.call_later(bounds.ANSWER_APART_SECONDS, self._end_gap)
            return
        self._gap = None
        self._events += self._after_gap
        self._after_gap = []
        self._deliver()

    def _deliver(self) -> None:
        is_awaited = self.is_open and self._waiting == self._reader
        if is_awaited and self._at_once is not None and self._at_once(b"".join(self._events)):
            self._events = []
            self._resize(sum(map(len, self._after_gap)))
        else:
            self._news.set()

    def _resize(self, size: int) -> None:
        """Report a new number of unwritten bytes, or that a reader came or went."""
        self.size = size
        counted = size if self.is_open or self.is_awaited else 0
        self._on_resize(counted - self._counted)
        self._counted = counted

    def open(self, at_once: AtOnce = None) -> AsyncIterator[bytes]:
        """Yield events as they come; ends when somebody else opens the stream.

        It is open from the call on, not only from the first event. Events that arrive while the
        reader waits are offered to `at_once`.
        """
        self._reader = abs(self._reader) + 1
        self._at_once = at_once
        self._resize(self.size)
        self._news.set()  # wake the former reader, which then ends
        return self._events_for(self._reader)

    async def _events_for(self, mine: int) -> AsyncIterator[bytes]:
        try:
            while self._reader == mine:
                if not self._events:
                    self._news.clear()
                    self._waiting = mine
                    try:
                        async with timeout(bounds.STREAM_HEARTBEAT_SECONDS):
                            await self._news.wait()
                    except TimeoutError:
                        yield HEARTBEAT
                    continue
                self._waiting = 0
                events, self._events = self._events, []
                yield b"".join(events)  # returns when it is written
                self._resize(sum(map(len, self._events + self._after_gap)))
        finally:
            if self._reader == mine:
                self._reader = -mine
                self._resize(self.size)

    def forget(self) -> bytes:
        """Drop what was not written, and return it."""
        left = b"".join(self._events + self._after_gap)
        self._events, self._after_gap = [], []
        self._resize(0)
        return left

    def end(self) -> None:
        """End the stream: its reader stops."""
        self._reader = -abs(self._reader) - 1
        if self._gap is not None:
            self._gap.cancel()
        self._resize(self.size)
        self._news.set()


def event(line: bytes, position: int | None = None) -> bytes:
    """Return a line as an event (HTML standard, server-sent events), with its position as id."""
    line = line.replace(b"\r", b" ")  # white space of JSON; it would end the line of an event
    if not line.isascii():
        # The Python SDK decodes each network chunk by itself, and breaks on a character that is
        # cut. Escape as a JSON string, in C; then undo the escapes of quotes and backslashes.
        text = encode_basestring_ascii(line.replace(b"\t", b" ").decode("utf-8", "replace"))
        line = text[1:-1].replace('\\"', '"').replace("\\\\", "\\").encode("ascii")
    return (
        b"data: %b\n\n" % line if position is None else b"id: %d\ndata: %b\n\n" % (position, line)
    )


class HttpExchange:
    """One request. `headers` have lower-case names; the last one of each name counts.

    `connection` is the one it came on, None behind a server that is not ours; `peer` is the address
    of its client, "" if many clients share it. One that `is_socket` asks for a WebSocket, with
    one of the `subprotocols`; its `method` is "".
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: Headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        self.connection: ServedConnection | None = scope.get("state", {}).get(STATE)
        self.peer = "" if self.connection is None else self.connection.peer
        self.method: str = scope.get("method", "")
        self.is_socket: bool = scope["type"] == "websocket"
        self.subprotocols: Sequence[str] = scope.get("subprotocols", ())
        self.path: str = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        self._tasks = EagerTasks()
        self._sending: asyncio.Task[None] | None = None
        self._is_under_way = False
        self.is_streamed = False
        """True once the head of a stream was sent."""

    @property
    def is_json(self) -> bool:
        """True if the content type is JSON."""
        return self.headers.get("content-type", "").partition(";")[0].strip() == "application/json"

    def require(self, *methods: str) -> None:
        """Refuse all other methods."""
        if self.method not in methods:
            raise RefusedError(405, f"use {' or '.join(methods)} at this address")

    def has_same(self, tag: str) -> bool:
        """Return True if the client has what has this ETag (RFC 9110, 13.1.2)."""
        given = self.headers.get("if-none-match", "").split(",")
        return not {each.strip().removeprefix("W/") for each in given}.isdisjoint({tag, "*"})

    def query(self, kind: type[Q]) -> Q:
        """Return the query: each parameter once, none unknown; raises RefusedError."""
        query: bytes = self.scope.get("query_string", b"")
        try:
            if len(query) > bounds.QUERY_BYTES:
                raise ValueError(f"longer than {bounds.QUERY_BYTES} bytes")
            text = query.decode("ascii")
            pairs = parse_qsl(
                text,
                keep_blank_values=True,
                errors="strict",
                max_num_fields=bounds.QUERY_PARAMETERS,
            )
            given = {name: value for name, value in pairs if value}
            if len(dict(pairs)) < len(pairs):
                raise RefusedError(400, "the query has a parameter twice")
            if unknown := dict(pairs).keys() - kind.__struct_encode_fields__:
                names = ", ".join(kind.__struct_encode_fields__)
                known = f"unknown parameter {min(unknown)[:40]!r}; this address takes {names}"
                raise RefusedError(400, known if names else "this address takes no parameters")
            return convert(given, kind, strict=False)
        except ValidationError as exc:
            name = str(exc).rpartition("$.")[2].removesuffix("`")
            raise RefusedError(400, f"{name} must be {_expectation(kind, name)}") from None
        except ValueError as exc:  # of UTF-8, too
            raise RefusedError(400, f"invalid query: {exc}") from None

    async def read_json(self, kind: type[T], wanted: str, limit: int = bounds.REQUEST_BYTES) -> T:
        """Return the JSON body; raises RefusedError with the text `wanted` if it is not valid."""
        # A form of another site cannot send this type without a preflight.
        if not self.is_json:
            raise RefusedError(415, "the content type must be application/json")
        try:
            return decode(await self.body(limit), type=kind)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            raise RefusedError(400, wanted) from None

    async def body(self, limit: int) -> bytes:
        """Return the whole body; raises RefusedError above `limit` bytes."""
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                raise RefusedError(400, "the request ended too early")
            body += message.get("body", b"")
            if len(body) > limit:
                raise RefusedError(413, f"more than {limit} bytes")
            if not message.get("more_body", False):
                return bytes(body)

    async def answer(
        self,
        status: int,
        body: object = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        raw: bytes | None = None,
    ) -> None:
        """Answer with `body` as JSON, with `raw` unchanged, or with an empty body."""
        text = b"" if raw is None and body is None else raw if raw is not None else encode(body)
        head = {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store"}
        if status != 304:
            head |= {b"content-type": b"application/json", b"content-length": b"%d" % len(text)}
        head |= dict(headers)
        kind = "websocket.http.response" if self.is_socket else "http.response"
        if kind not in ("http.response", *(self.scope.get("extensions") or ())):
            # An ASGI server can refuse a WebSocket only with 403.
            await self.send({"type": "websocket.close", "code": POLICY})
            return
        # An empty answer to HEAD still has the length of the GET's body; RFC 9110, 9.3.2.
        sent = b"" if self.method == "HEAD" or status == 304 else text
        await self.send({"type": f"{kind}.start", "status": status, "headers": [*head.items()]})
        await self.send({"type": f"{kind}.body", "body": sent})
        if self.is_socket:
            # A handshake that ends with an answer, uvicorn takes for an error of the application,
            # and logs it (0.54).
            protocol = server_protocol(self.send)
            if getattr(protocol, "handshake_complete", None) is False:
                vars(protocol).update(handshake_complete=True)

    async def refuse(self, why: RefusedError) -> None:
        """Answer with a refusal, and with as much of the reason as may be told."""
        challenge = f'Bearer realm="{why.realm}"' if why.realm else "Bearer"
        heads = {401: (b"www-authenticate", challenge.encode()), 503: (b"retry-after", b"1")}
        head = [heads[why.status]] if why.status in heads else []
        await self.answer(why.status, {"error": str(why)}, head)

    async def stream(self, events: AsyncIterator[bytes]) -> None:
        """Answer with events until they end, the client goes, or it sends unexpected data.

        The answer is also ended when this is cancelled, so that its reader sees the end.
        """
        streaming = asyncio.create_task(self._stream(events), name="event stream")
        gone = asyncio.create_task(self._wait_disconnect(), name="watch client")
        try:
            await first(streaming, gone)
        finally:
            tasks = [it for it in (streaming, gone, self._sending) if it is not None]
            await end(*tasks)
            self._tasks.close()
            for task in tasks:
                if not task.cancelled() and (exc := task.exception()):  # the head is sent already
                    log.info("%s: the stream ended: %s", self.path, exc)
            if self._is_under_way:
                await self._end_early()

    def send_at_once(self, events: bytes) -> bool:
        """Send events of a stream in this step; False if they would have to wait."""
        if self.connection is not None:
            write = self.connection.write_more
            return write is not None and write(events)
        if self._sending is not None and not self._sending.done():
            return False
        self._sending = self._tasks.begin(self._more(events), "events at once")
        return True

    async def _wait_disconnect(self) -> None:
        while (message := await self.receive())["type"] != "http.disconnect":
            if message.get("body") or message.get("more_body"):
                return

    async def _stream(self, events: AsyncIterator[bytes]) -> None:
        head = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await self.send({"type": "http.response.start", "status": 200, "headers": head})
        self._is_under_way = self.is_streamed = True
        # So that proxies, and clients that wait for the first byte, see the stream open.
        await self._more(b":\n\n")
        async for event in events:
            if self._sending is not None:  # earlier events first
                await asyncio.wait([self._sending])
            await self._more(event)
        await self._complete()

    async def _complete(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})
        self._is_under_way = False

    async def _end_early(self) -> None:
        """End an answer after the last event sent, without waiting long for a slow reader."""
        try:
            async with timeout(bounds.FLUSH_SECONDS):
                await self._complete()
        except TimeoutError:
            if self.connection is None:
                return
            self.connection.abort()
            with suppress(TimeoutError):
                async with timeout(bounds.FLUSH_SECONDS):
                    await self._wait_disconnect()  # otherwise its server logs an error of ours

    async def _more(self, body: bytes) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": True})


def _expectation(kind: type[Struct], name: str) -> str:
    """Return what a parameter of this query may be, in words."""
    (found,) = [it for it in inspect.type_info(kind).fields if it.encode_name == name]  # type: ignore[attr-defined]
    words: list[str] = []
    for each in found.type.types if isinstance(found.type, inspect.UnionType) else [found.type]:
        match each:
            case inspect.IntType(ge=least, le=most):
                words.append(f"a number from {least} to {most}")
            case inspect.LiteralType(values=values):
                words += map(str, values)
            case inspect.BoolType():
                words.append("true or false")
    return " or ".join(words)


def server_protocol(send: object, *, through: str = "") -> Any:
    """Return the protocol of the ASGI server behind `send`, also if middleware, which keeps it in a
    closure, has made another of it; None if it cannot be seen, or if that middleware is of a module
    whose name does not start with `through`."""
    for _ in range(8):
        if (protocol := getattr(send, "__self__", None)) is not None:
            return protocol
        if not str(getattr(send, "__module__", "")).startswith(through):
            return None
        cells = [cell.cell_contents for cell in getattr(send, "__closure__", None) or ()]
        send = next((it for it in cells if getattr(it, "__name__", "") in ("send", "sender")), None)
    return None
