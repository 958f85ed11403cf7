"""HTTP to a remote server: a client for its route, and messages over Streamable HTTP.

No answer is unpacked: 48 kB of one can become gigabytes in one step. `fetch` reads a whole answer,
within limits of bytes and of time; an event of a stream has a limit of bytes.

Import this module late, only for the address of a server: `httpx2` takes long to import.

Source: ACP RFD, Streamable HTTP & WebSocket transport. Messages are posted, one after the other;
the server's messages come on streams of events: one of the connection, and one of each session.
Existing servers do not agree on which of the two carries what:

| when | we |
|---|---|
| a request names a session | open its stream first: an unknown session's answer may come there |
| a session was begun | open its stream before passing the answer on, and read it after that |
| the answer to a load or a resume comes | first pass on what is on the session's stream |
| a stream ends | are lost: the next connection resumes after it (`client.far_line`) |

`acphold serve` needs no streams of sessions: everything comes on the one of the connection, in
order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import Any, Final

import httpx2
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, encode

from acp_wire.errors import INTERNAL_ERROR, ConnectionLostError, SilentPeerError
from acp_wire.schema import INITIALIZE
from acp_wire.schema.methods import REQUESTS
from acp_wire.schema.salvage import repair
from acp_wire.schema.splice import session_id_in
from acp_wire.tasks import end, timeout
from acp_wire.transports.known_servers import ONE_STREAM
from acp_wire.transports.messages import CLOSE_SECONDS, MessageTransport
from acp_wire.transports.route import Route, why

CONNECTION_ID: Final = "Acp-Connection-Id"
SESSION_ID: Final = "Acp-Session-Id"

SILENCE_SECONDS: Final = 60.0
"""Seconds a stream may be silent: servers send a sign of life every 15 seconds."""

POST_SECONDS: Final = 30.0
"""Seconds a server has to accept a message, and to end a connection."""

INITIALIZE_SECONDS: Final = 120.0
"""Seconds it has to answer the first message: an agent may have to be started for it."""

NOT_IMPLEMENTED: Final = 501
"""A server's answer to a message that it does not support, such as an array; the server itself is
well."""

HELD_BYTES: Final = 4 << 20
"""Most bytes that may wait here to be received; then no stream is read."""

QUIET_CHECKS: Final = 25
FIRST_CHECKS: Final = 50
CHECK_SECONDS: Final = 0.01
"""Checks without an event after which a replay is over; FIRST_CHECKS before its first event.
Checks, not a time: a process that was paused has not read yet what has arrived meanwhile."""

REPLAY_SECONDS: Final = 60.0
"""Most seconds for which the answer is held back while its replay arrives."""

ID_BYTES: Final = 256
ASKED: Final = 1024
"""Longest id of a request of the server whose session is remembered, and most of them."""

SHORT_BYTES: Final = 64 << 10
"""Most bytes of an answer that is a few words."""

_JSON: Final = {"Content-Type": "application/json"}


def http_client(route: Route, *, http2: bool = False) -> httpx2.AsyncClient:
    """Return a client for the server; the caller closes it. With `http2` it uses HTTP/2 if the
    server supports that."""

    async def renew(request: httpx2.Request) -> None:
        if route.on_request is not None:
            await route.on_request()
            request.headers.update(route.headers())

    http = httpx2.AsyncClient(
        headers={**route.headers(), "User-Agent": "acphold"},
        cookies=route.cookies,
        # Without TLS, do not read the machine's certificates: none is needed.
        verify=route.context() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        http2=http2,
        event_hooks={"request": [renew]},
        proxy=route.proxy(),
        trust_env=False,  # the route has read these values; the user's netrc is for other programs
        timeout=httpx2.Timeout(route.seconds, pool=None),
        limits=httpx2.Limits(max_connections=None),
    )
    take_unpacked(http)
    return http


def take_unpacked(http: httpx2.AsyncClient) -> None:
    """Have a client ask for answers that are not compressed, and raise an error of HTTP for others,
    before anything of them is read."""

    async def refuse_packed(answer: httpx2.Response) -> None:
        if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise httpx2.DecodingError("the answer is compressed, unasked", request=answer.request)

    http.headers["Accept-Encoding"] = "identity"
    http.event_hooks = {**http.event_hooks, "response": [refuse_packed]}


async def fetch(
    http: httpx2.AsyncClient, method: str, url: str, *, most: int, seconds: float, **request: Any
) -> httpx2.Response:
    """Return the whole answer to a request. Raises an error of HTTP for one of more than `most`
    bytes, or that takes longer than `seconds`. The client does `take_unpacked`."""
    body = bytearray()
    try:
        async with (
            timeout(seconds),
            http.stream(method, url, timeout=seconds, **request) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > most:
                    problem = f"the answer has more than {most:,} bytes"
                    raise httpx2.ReadError(problem, request=answer.request)
    except TimeoutError:
        raise httpx2.ReadTimeout(f"no whole answer within {seconds:g} s") from None
    return httpx2.Response(
        answer.status_code, headers=answer.headers, content=bytes(body), request=answer.request
    )


async def post(route: Route, path: str, said: bytes) -> httpx2.Response:
    """Return a short answer of the server to JSON at this path. Raises ConnectionLostError."""
    where, short = f"{route.origin}{path}", SHORT_BYTES
    try:
        async with http_client(route) as http:
            return await fetch(
                *(http, "POST", where),
                most=short,
                seconds=route.seconds,
                content=said,
                headers=_JSON,
            )
    except httpx2.HTTPError as exc:
        raise route.lost_error(exc) from None


class _StreamMessage(Struct, gc=False):
    """The members of a message that show where it belongs."""

    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()


_read = Decoder(_StreamMessage).decode

NO_MESSAGE: Final = _StreamMessage()


def _message(text: str) -> _StreamMessage:
    """Return a text as a message; NO_MESSAGE if it is none: the other side has to report that."""
    try:
        try:
            return _read(text)
        except MsgspecError:  # perhaps half of a surrogate pair, which the reader repairs
            return _read(repair(text.encode()))
    except (MsgspecError, UnicodeError, RecursionError):
        return NO_MESSAGE


async def connect(route: Route, *, tells_refusals: bool = False) -> MessageTransport:
    """Return a connection that begins with the first message, after checking that the server is
    there. With `tells_refusals`, a request that HTTP refuses is answered with a line of HTTP, and
    only a server that does not admit us is refused at once.

    Raises ConnectionLostError if nothing listens there, SilentPeerError without an answer in time,
    RemoteRefusalError if the server does not admit us.
    """
    http = http_client(route)
    try:
        # Without a connection id the server answers 400, but only after it has admitted us.
        async with (
            timeout(route.seconds),
            http.stream("GET", route.http_url, headers={"Accept": "text/event-stream"}) as answer,
        ):
            status = answer.status_code
            if status in (401, 403) or (status not in (200, 400) and not tells_refusals):
                raise await route.refused(answer.status_code, answer.headers, answer.aiter_bytes())
    except BaseException as exc:
        await http.aclose()
        if isinstance(exc, httpx2.TimeoutException | TimeoutError):
            raise SilentPeerError(f"{route.origin} does not answer") from None
        if isinstance(exc, httpx2.HTTPError):
            raise route.lost_error(exc) from None
        raise
    return MessageTransport(_HttpConnection(http, route, tells_refusals))


class _HttpConnection:
    """The connection (`transports.messages`) to one server; see the module."""

    def __init__(self, http: httpx2.AsyncClient, route: Route, tells_refusals: bool) -> None:
        self._http = http
        self._tells_refusals = tells_refusals
        self._url = route.http_url
        self._origin = route.origin
        self._limit = route.limit
        self._id = ""
        self._has_one_stream = False
        self._streams: dict[str | None, asyncio.Task[None]] = {}
        self._heard: dict[str, int] = {}
        self._strange: set[str] = set()
        self._opening: dict[bytes, str | None] = {}
        self._asked_of_us: dict[bytes, str] = {}
        self._messages: deque[str] = deque()
        self._held = 0
        self._changed = asyncio.Event()
        self._is_over = False

    async def receive(self) -> str | None:
        while not self._messages:
            if self._is_over:
                return None
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        self._held -= len(message)
        self._changed.set()
        return message

    async def send(self, text: str) -> None:
        if self._is_over:
            raise ConnectionLostError(f"the connection to {self._origin} is closed")
        try:
            message = _message(text)
            if message.method == INITIALIZE.name and not self._id:
                answer = await self._post(text, INITIALIZE_SECONDS, {**_JSON, ONE_STREAM: "true"})
                self._id = answer.headers.get(CONNECTION_ID, "")
                if answer.status_code != 200 or not self._id:
                    await self._put(self._refusal(message, answer))
                else:
                    self._has_one_stream = ONE_STREAM in answer.headers
                    if not await self._listen(None):
                        raise ConnectionLostError("the server opens no stream")
                    await self._put(answer.text)
            else:
                in_header = await self._prepare(message)
                answer = await self._post(text, POST_SECONDS, self._head(in_header) | _JSON)
                if not answer.is_success:
                    if self._means_loss(answer, in_header):
                        raise ConnectionLostError(f"HTTP {answer.status_code}")
                    # The server knows us, but rejects this message.
                    self._opening.pop(bytes(message.id), None)
                    if message.method is not None and bytes(message.id):
                        await self._put(self._refusal(message, answer))
                    elif message == NO_MESSAGE and _message(answer.text) != NO_MESSAGE:
                        await self._put(answer.text)  # the server's own description of the problem
        except (httpx2.HTTPError, ConnectionLostError) as exc:
            self._end()
            problem = f"the connection to {self._origin} is lost: {why(exc)}"
            raise ConnectionLostError(problem) from exc

    async def _post(self, text: str, seconds: float, headers: dict[str, str]) -> httpx2.Response:
        where, most = (self._http, "POST", self._url), self._limit
        return await fetch(*where, most=most, seconds=seconds, content=text, headers=headers)

    async def aclose(self) -> None:
        self._end()
        await end(*self._streams.values())
        if self._id:
            with suppress(httpx2.HTTPError):  # then the server finds out itself
                where, head = (self._http, "DELETE", self._url), self._head()
                await fetch(*where, most=SHORT_BYTES, seconds=CLOSE_SECONDS, headers=head)
            self._id = ""
        await self._http.aclose()

    # -- sending -------------------------------------------------------------------------------

    async def _prepare(self, message: _StreamMessage) -> str | None:
        """Get ready for the answers to a message: open the stream of its session. Return the
        session to name in the header."""
        if message.method is None:  # a response
            return self._asked_of_us.pop(bytes(message.id), None)
        session_id = session_id_in(bytes(message.params))
        effect = REQUESTS[message.method]
        in_header = session_id
        if not effect.leaves and session_id and session_id not in self._streams:
            self._strange.add(session_id)
            if not await self._listen(session_id) and effect.reopens:
                # Servers on the Python SDK open no stream of a session before it is loaded (404);
                # nor do they accept its name in the header before that.
                in_header = None
        if effect.opens:
            self._opening[bytes(message.id)] = session_id if effect.reopens else None
        if effect.leaves and session_id is not None:
            self._heard.pop(session_id, None)  # its stream may end
        return in_header

    def _means_loss(self, answer: httpx2.Response, in_header: str | None) -> bool:
        """Return True if an error status is about the connection, not only about one message."""
        status = answer.status_code
        if answer.is_server_error:
            return status != NOT_IMPLEMENTED
        if status == 404 and in_header is not None and not self._has_one_stream:
            # Without a stream of the session, the server may not know it on this connection.
            return in_header in self._streams
        return status in (401, 404)

    def _refusal(self, message: _StreamMessage, answer: httpx2.Response) -> str:
        """Return the answer to a request that the server rejects: the server's own, if any."""
        if bytes(_message(answer.text).id) == bytes(message.id):
            return answer.text
        if self._tells_refusals:
            body = " ".join(answer.text.split())
            return f"HTTP {answer.status_code} for {bytes(message.id).decode()}: {body}"
        problem = f"the server does not accept {message.method}: HTTP {answer.status_code}"
        error = {"code": INTERNAL_ERROR, "message": problem}
        return encode({"jsonrpc": "2.0", "id": message.id, "error": error}).decode()

    def _head(self, session_id: str | None = None) -> dict[str, str]:
        named = {SESSION_ID: session_id} if session_id and _fits_header(session_id) else {}
        return {CONNECTION_ID: self._id} | named

    # -- receiving -----------------------------------------------------------------------------

    async def _listen(self, session_id: str | None, after: asyncio.Event | None = None) -> bool:
        """Open the stream of the connection, or of a session; return True if it is open. It is read
        once `after` is set, if given."""
        if session_id in self._streams or (session_id is not None and self._has_one_stream):
            return True
        if session_id is not None and not _fits_header(session_id):
            return False  # no request can name this session
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hear(session_id, opened, after), name="event stream")
        self._streams[session_id] = task
        is_open = False
        with suppress(TimeoutError):
            async with timeout(POST_SECONDS):
                is_open = await opened
        if not is_open:
            await end(task)
            self._streams.pop(session_id, None)
            return False
        return True

    async def _hear(
        self, session_id: str | None, opened: asyncio.Future[bool], after: asyncio.Event | None
    ) -> None:
        """Read a stream until it ends; `opened` gets True if the server opens it."""
        head = self._head(session_id) | {"Accept": "text/event-stream"}
        try:
            async with self._http.stream(
                "GET", self._url, headers=head, timeout=httpx2.Timeout(SILENCE_SECONDS, pool=None)
            ) as answer:
                opened.set_result(answer.is_success)
                if not answer.is_success:
                    return
                if after is not None:
                    await after.wait()
                if session_id is not None:
                    self._heard[session_id] = 0
                async for event in httpx2.EventSource(answer, max_event_size=self._limit + 1024):
                    if session_id is not None:
                        self._heard[session_id] = self._heard.get(session_id, 0) + 1
                    if event.data:
                        await self._take(event.data)
        except httpx2.HTTPError:  # includes SSEError
            pass
        finally:
            if not opened.done():
                opened.set_result(False)
            if session_id in self._strange:  # the session is not open here
                self._streams.pop(session_id, None)
            elif session_id is None or session_id in self._heard:
                self._end()

    async def _take(self, text: str) -> None:
        message = _message(text)
        id_ = bytes(message.id)
        if message.method is None and id_ in self._opening:
            reopened = self._opening.pop(id_)
            result = bytes(message.result)
            session_id = reopened or session_id_in(result)
            if session_id is not None and result:
                after_answer = asyncio.Event()
                await self._note_open(session_id, after_answer, replays=reopened is not None)
                await self._put(text)
                after_answer.set()
                return
        elif (
            message.method is not None
            and 0 < len(id_) <= ID_BYTES
            and (session_id := session_id_in(bytes(message.params))) is not None
        ):
            self._asked_of_us[id_] = session_id
            if len(self._asked_of_us) > ASKED:  # it is answered without the name of its session
                self._asked_of_us.pop(next(iter(self._asked_of_us)))
        await self._put(text)

    async def _note_open(self, session_id: str, after: asyncio.Event, *, replays: bool) -> None:
        """Note that a session is open; no message of it may be missed, or arrive out of order.

        Its stream is read once `after` is set. If it was open before, return when its replay has
        arrived.
        """
        self._strange.discard(session_id)
        if self._has_one_stream:
            return
        await self._listen(session_id, after)
        if not replays or session_id not in self._heard:
            return
        now = asyncio.get_running_loop().time
        until, quiet = now() + REPLAY_SECONDS, 0
        while now() < until and not self._is_over:
            heard = self._heard.get(session_id)
            await asyncio.sleep(CHECK_SECONDS)
            is_reading = self._held <= HELD_BYTES
            quiet = quiet + 1 if is_reading and self._heard.get(session_id) == heard else 0
            if quiet >= (QUIET_CHECKS if heard else FIRST_CHECKS):
                return

    async def _put(self, text: str) -> None:
        while self._held > HELD_BYTES and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        self._messages.append(text)
        self._held += len(text)
        self._changed.set()

    def _end(self) -> None:
        self._is_over = True
        self._changed.set()


def _fits_header(session_id: str) -> bool:
    """Return True if an HTTP header can hold the id unchanged; otherwise the request would fail,
    and end the connection."""
    return session_id.isascii() and session_id.isprintable() and session_id == session_id.strip()
