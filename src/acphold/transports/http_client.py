"""HTTP to a remote server: a client for its route, and messages over Streamable HTTP.

Import this module late, only for the address of a server: `httpx2` takes long to import.

Source: ACP RFD, Streamable HTTP & WebSocket transport. Messages are posted, one after the other;
the server's messages come on streams of events: one of the connection, and one of each session.
Existing servers do not agree on which of the two carries what:

| when | we |
|---|---|
| a request names a session | open its stream first: an unknown session's answer may come there |
| a session was begun | open its stream before passing the answer on, and read it after that |
| the answer to a load or a resume comes | first pass on what is on the session's stream |
| a stream ends | are lost: the next connection resumes behind it (`client.far_line`) |

`acphold serve` needs no streams of sessions: everything comes on the one of the connection, in
order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import Final

import httpx2
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, encode

from acphold.errors import INTERNAL_ERROR, ConnectionLostError, SilentPeerError
from acphold.schema import INITIALIZE
from acphold.schema.methods import LEAVING, OPENING, REOPENING
from acphold.schema.salvage import repaired
from acphold.schema.splice import session_id_in
from acphold.tasks import end
from acphold.transports.known_servers import ONE_STREAM
from acphold.transports.messages import CLOSE_SECONDS, MessageTransport
from acphold.transports.route import SAID_BYTES, Route, why

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

QUIET_LOOKS: Final = 25
FIRST_LOOKS: Final = 50
LOOK_SECONDS: Final = 0.01
"""Looks without an event after which a replay is over; FIRST_LOOKS before its first event. Looks,
not a time: a process that was held up has not read yet what came meanwhile."""

QUIET_AT_MOST: Final = 60.0
"""Most seconds for which the answer is held back while its replay goes on."""

_JSON: Final = {"Content-Type": "application/json"}


def http_client(route: Route, *, http2: bool = False) -> httpx2.AsyncClient:
    """Return a client for the server; the caller closes it. It speaks HTTP/2 if it may and the
    server does."""
    return httpx2.AsyncClient(
        headers={**route.headers(), "User-Agent": "acphold"},
        cookies=route.cookies,
        # Without TLS no certificate of the machine is read, and none would do.
        verify=route.context() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        http2=http2,
        proxy=route.proxy(),
        trust_env=False,  # the route has its values; a netrc of the user is for others
        timeout=httpx2.Timeout(route.seconds, pool=None),
        limits=httpx2.Limits(max_connections=None),
    )


async def beginning(answer: httpx2.Response) -> bytes:
    """Return as much of an answer as is reported of it: its body may have no end."""
    found = b""
    async for chunk in answer.aiter_bytes():
        found += chunk
        if len(found) > SAID_BYTES:
            break
    return found


class _StreamMessage(Struct, gc=False):
    """The members of a message that tell where it belongs."""

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
        except MsgspecError:  # half of a surrogate pair, perhaps, which whoever reads it mends
            return _read(repaired(text.encode()))
    except (MsgspecError, UnicodeError, RecursionError):
        return NO_MESSAGE


async def connect(route: Route, *, tells_refusals: bool = False) -> MessageTransport:
    """Return a connection that begins with the first message, after checking that the server is
    there. With `tells_refusals`, a request that HTTP refuses is answered with a line of HTTP.

    Raises ConnectionLostError if nothing listens there, SilentPeerError without an answer in time,
    RemoteRefusalError if we are not let in.
    """
    http = http_client(route)
    try:
        # Without a connection id the server answers 400, but only after checking if we are let in.
        async with http.stream(
            "GET", route.http_url, headers={"Accept": "text/event-stream"}
        ) as answer:
            if answer.status_code not in (200, 400):
                raise route.refused(answer.status_code, answer.headers, await beginning(answer))
    except BaseException as exc:
        await http.aclose()
        if isinstance(exc, httpx2.TimeoutException):
            raise SilentPeerError(f"{route.origin} does not answer") from None
        if isinstance(exc, httpx2.HTTPError):
            raise ConnectionLostError(f"{route.origin} cannot be reached: {why(exc)}") from None
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
                await self._introduce(text, message)
            else:
                await self._post(text, message)
        except (httpx2.HTTPError, ConnectionLostError) as exc:
            self._end()
            told = f"the connection to {self._origin} is lost: {why(exc)}"
            raise ConnectionLostError(told) from exc

    async def aclose(self) -> None:
        self._end()
        await end(*self._streams.values())
        if self._id:
            with suppress(httpx2.HTTPError):  # then the server finds out itself
                await self._http.delete(self._url, headers=self._head(), timeout=CLOSE_SECONDS)
            self._id = ""
        await self._http.aclose()

    # -- what we say ---------------------------------------------------------------------------

    async def _introduce(self, text: str, message: _StreamMessage) -> None:
        """Begin the connection: the answer comes at once, with the connection's name."""
        answer = await self._http.post(
            self._url,
            content=text,
            headers=_JSON | {ONE_STREAM: "true"},
            timeout=INITIALIZE_SECONDS,
        )
        self._id = answer.headers.get(CONNECTION_ID, "")
        if answer.status_code != 200 or not self._id:
            await self._put(self._refusal(message, answer))
            return
        self._has_one_stream = ONE_STREAM in answer.headers
        if not await self._listen(None):
            raise ConnectionLostError("it opens no stream")
        await self._put(answer.text)

    async def _post(self, text: str, message: _StreamMessage) -> None:
        session_id = session_id_in(bytes(message.params))
        if message.method is None:
            session_id = self._asked_of_us.pop(bytes(message.id), None)
        named = session_id
        # One that opens no stream of a session before it is loaded (404), as those on the Python
        # SDK, does not take its name in the header before, either.
        is_asked = message.method is not None and message.method not in LEAVING
        if is_asked and session_id and session_id not in self._streams:
            self._strange.add(session_id)
            if not await self._listen(session_id) and message.method in REOPENING:
                named = None
        if message.method in OPENING:
            known = session_id if message.method in REOPENING else None
            self._opening[bytes(message.id)] = known
        if message.method in LEAVING and session_id is not None:
            self._heard.pop(session_id, None)  # its stream may end
        answer = await self._http.post(
            self._url, content=text, headers=self._head(named) | _JSON, timeout=POST_SECONDS
        )
        if answer.is_success:
            return
        # If it opens no stream of a session, it may not know the session on this connection.
        is_strange = named is not None and named not in self._streams and not self._has_one_stream
        is_of_session = answer.status_code == 404 and is_strange
        is_failing = answer.is_server_error and answer.status_code != NOT_IMPLEMENTED
        if (answer.status_code in (401, 404) and not is_of_session) or is_failing:
            raise ConnectionLostError(f"HTTP {answer.status_code}")
        # It knows us, but rejects this message.
        self._opening.pop(bytes(message.id), None)
        if message.method is not None and bytes(message.id):
            await self._put(self._refusal(message, answer))
        elif message == NO_MESSAGE and _message(answer.text) != NO_MESSAGE:
            await self._put(answer.text)  # its own description of the problem

    def _refusal(self, message: _StreamMessage, answer: httpx2.Response) -> str:
        """Return the answer to a request that the server rejects: its own words, if any."""
        if bytes(_message(answer.text).id) == bytes(message.id):
            return answer.text
        if self._tells_refusals:
            said = " ".join(answer.text.split())
            return f"HTTP {answer.status_code} for {bytes(message.id).decode()}: {said}"
        told = f"the server does not take {message.method}: HTTP {answer.status_code}"
        error = {"code": INTERNAL_ERROR, "message": told}
        return encode({"jsonrpc": "2.0", "id": message.id, "error": error}).decode()

    def _head(self, session_id: str | None = None) -> dict[str, str]:
        named = {SESSION_ID: session_id} if session_id and _fits_header(session_id) else {}
        return {CONNECTION_ID: self._id} | named

    # -- what we hear --------------------------------------------------------------------------

    async def _listen(self, session_id: str | None, behind: asyncio.Event | None = None) -> bool:
        """Open the stream of the connection, or of a session; return True if it is open. It is read
        once `behind` is set, if given."""
        if session_id in self._streams or (session_id is not None and self._has_one_stream):
            return True
        if session_id is not None and not _fits_header(session_id):
            return False  # no stream can be asked for by this name
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hear(session_id, opened, behind), name="event stream")
        self._streams[session_id] = task
        if not await opened:
            del self._streams[session_id]
            return False
        return True

    async def _hear(
        self, session_id: str | None, opened: asyncio.Future[bool], behind: asyncio.Event | None
    ) -> None:
        """Read a stream until it ends; `opened` gets True if it is there."""
        head = self._head(session_id) | {"Accept": "text/event-stream"}
        try:
            async with self._http.stream(
                "GET", self._url, headers=head, timeout=httpx2.Timeout(SILENCE_SECONDS, pool=None)
            ) as answer:
                opened.set_result(answer.is_success)
                if not answer.is_success:
                    return
                if behind is not None:
                    await behind.wait()
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
        if message.method is None and (key := bytes(message.id)) in self._opening:
            known = self._opening.pop(key)
            session_id = known or session_id_in(bytes(message.result))
            if session_id is not None and bytes(message.result):
                behind = asyncio.Event()
                await self._opened(session_id, behind, replays=known is not None)
                await self._put(text)
                behind.set()
                return
        elif message.method is not None and bytes(message.id):
            session_id = session_id_in(bytes(message.params))
            if session_id is not None:
                self._asked_of_us[bytes(message.id)] = session_id
        await self._put(text)

    async def _opened(self, session_id: str, behind: asyncio.Event, *, replays: bool) -> None:
        """Note that a session is open there: none of its messages may be missed, or reordered."""
        self._strange.discard(session_id)
        if self._has_one_stream:
            return
        await self._listen(session_id, behind)
        if not replays or session_id not in self._heard:
            return
        now = asyncio.get_running_loop().time
        until, quiet = now() + QUIET_AT_MOST, 0
        while now() < until and not self._is_over:
            heard = self._heard.get(session_id)
            await asyncio.sleep(LOOK_SECONDS)
            is_read_on = self._held <= HELD_BYTES
            quiet = quiet + 1 if is_read_on and self._heard.get(session_id) == heard else 0
            if quiet >= (QUIET_LOOKS if heard else FIRST_LOOKS):
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
    """Return True if an HTTP header can hold the id unchanged; with any other, the request would be
    lost, and the connection with it."""
    return session_id.isascii() and session_id.isprintable() and session_id == session_id.strip()
