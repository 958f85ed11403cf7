"""The client's end of Streamable HTTP, for where a proxy lets no WebSocket through.

Source: ACP RFD, Streamable HTTP & WebSocket transport. Messages are posted, one after the other;
what the server says comes on streams of events: one of the connection, and one of each session. The
servers that there are do not agree on which of the two has what:

| when | we |
|---|---|
| a session is opened that is known | open its stream before; a server may have none yet (404) |
| it was opened, or begun | open its stream, if there is none, before anybody hears of that |
| the answer to that comes | let what is on the session's stream go before |
| a stream ends | are lost: the next connection goes on behind what came (`client.far_line`) |

At `acphold serve` there is no need of streams of sessions: all comes on the one of the connection,
in its order. Imported late, by who has such an address.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, TypeVar

import httpx2
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, encode

from acphold.errors import INTERNAL_ERROR, ConnectionLostError, SilentPeerError
from acphold.schema import (
    CLOSE_SESSION,
    DELETE_SESSION,
    INITIALIZE,
    LOAD_SESSION,
    NEW_SESSION,
    RESUME_SESSION,
)
from acphold.schema.session_ids import session_id_in
from acphold.transports.http_client import beginning, http_client
from acphold.transports.messages import MessageTransport
from acphold.transports.obstacles import why
from acphold.transports.route import Route
from acphold.transports.urls import ONE_STREAM

T = TypeVar("T")

CONNECTION_ID: Final = "Acp-Connection-Id"
SESSION_ID: Final = "Acp-Session-Id"

SILENCE_SECONDS: Final = 60.0
"""How long a stream may say nothing: servers say every 15 seconds that they are there."""

POST_SECONDS: Final = 30.0
"""What a server has to take a message, and to end a connection."""

INITIALIZE_SECONDS: Final = 120.0
"""What it has to answer the first one: an agent may have to be started for it."""

CLOSE_SECONDS: Final = 2.0

NOT_IMPLEMENTED: Final = 501
"""What a server says to what it takes none of, such as an array; it is there, and well."""

HELD_BYTES: Final = 4 << 20
"""What may wait here to be received; a stream that has more is not read on."""

QUIET_LOOKS: Final = 5
LOOK_SECONDS: Final = 0.01
"""After so many looks without an event a replay is over. Not after a time: a process that was held
up has not read yet what came meanwhile."""

QUIET_AT_MOST: Final = 2.0
"""For so many seconds the answer is held back for its replay."""

FORK_SESSION: Final = "session/fork"

KNOWN: Final = frozenset({LOAD_SESSION.name, RESUME_SESSION.name})
BEGUN_BY: Final = frozenset({NEW_SESSION.name, FORK_SESSION})
ENDED_BY: Final = frozenset({CLOSE_SESSION.name, DELETE_SESSION.name})


class _Message(Struct, gc=False):
    """Of a message what says where it belongs."""

    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()


_read = Decoder(_Message).decode

NO_MESSAGE: Final = _Message()


def _message(text: str) -> _Message:
    """What a text says; NO_MESSAGE for what is none: the other side has to say what is wrong."""
    try:
        return _read(text)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return NO_MESSAGE


async def connect(route: Route) -> MessageTransport:
    """A connection that begins with the first message, once the server was found to be there.

    Raises ConnectionLostError when nobody is there, SilentPeerError when nobody answers in time,
    RemoteRefusalError when we are not let in.
    """
    http = http_client(route)
    try:
        # Without a connection it is none of theirs (400), but who is let in is known.
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
    return MessageTransport(_HttpConnection(http, route))


class _HttpConnection:
    """The connection (`transports.messages`) to one server; see the module."""

    def __init__(self, http: httpx2.AsyncClient, route: Route) -> None:
        self._http = http
        self._url = route.http_url
        self._origin = route.origin
        self._limit = route.limit
        self._id = ""
        self._has_one_stream = False
        self._streams: dict[str | None, asyncio.Task[None]] = {}
        self._heard: dict[str, float] = {}
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
        tasks = [*self._streams.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._id:
            with suppress(httpx2.HTTPError):  # then the server finds out by itself
                await self._http.delete(self._url, headers=self._head(), timeout=CLOSE_SECONDS)
            self._id = ""
        await self._http.aclose()

    # -- what we say ---------------------------------------------------------------------------

    async def _introduce(self, text: str, message: _Message) -> None:
        """Begin the connection: the answer comes at once, and with it the connection's name."""
        answer = await self._http.post(
            self._url, content=text, headers=_JSON, timeout=INITIALIZE_SECONDS
        )
        self._id = answer.headers.get(CONNECTION_ID, "")
        if answer.status_code != 200 or not self._id:
            await self._put(_refusal(message, answer))
            return
        self._has_one_stream = ONE_STREAM in answer.headers
        if not await self._listen(None):
            raise ConnectionLostError("it opens no stream")
        await self._put(answer.text)

    async def _post(self, text: str, message: _Message) -> None:
        session_id = session_id_in(bytes(message.params))
        if message.method is None:
            session_id = self._asked_of_us.pop(bytes(message.id), None)
        named = session_id
        # One that opens no stream of a session before it is loaded (404), as those on the Python
        # SDK, does not take its name in the header before, either.
        if message.method in KNOWN and session_id and not await self._listen(session_id):
            named = None
        if message.method in KNOWN | BEGUN_BY:
            known = session_id if message.method in KNOWN else None
            self._opening[bytes(message.id)] = known
        if message.method in ENDED_BY and session_id is not None:
            self._heard.pop(session_id, None)  # its stream may end
        answer = await self._http.post(
            self._url, content=text, headers=self._head(named) | _JSON, timeout=POST_SECONDS
        )
        if answer.is_success:
            return
        # A session of which it opens no stream, it may not know on this connection.
        is_strange = named is not None and named not in self._streams and not self._has_one_stream
        is_of_session = answer.status_code == 404 and is_strange
        is_failing = answer.is_server_error and answer.status_code != NOT_IMPLEMENTED
        if (answer.status_code in (401, 404) and not is_of_session) or is_failing:
            raise ConnectionLostError(f"HTTP {answer.status_code}")
        # It knows us, and does not take this one.
        self._opening.pop(bytes(message.id), None)
        if message.method is not None and bytes(message.id):
            await self._put(_refusal(message, answer))
        elif message == NO_MESSAGE and _message(answer.text) != NO_MESSAGE:
            await self._put(answer.text)  # what is wrong with it, as any server says it

    def _head(self, session_id: str | None = None) -> dict[str, str]:
        return {CONNECTION_ID: self._id} | ({SESSION_ID: session_id} if session_id else {})

    # -- what we hear --------------------------------------------------------------------------

    async def _listen(self, session_id: str | None) -> bool:
        """Have the stream of the connection open, or of a session; whether it is."""
        if session_id in self._streams or (session_id is not None and self._has_one_stream):
            return True
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hear(session_id, opened), name="event stream")
        self._streams[session_id] = task
        if not await opened:
            del self._streams[session_id]
            return False
        return True

    async def _hear(self, session_id: str | None, opened: asyncio.Future[bool]) -> None:
        """Read a stream until it ends; `opened` is told whether it is there."""
        loop = asyncio.get_running_loop()
        head = self._head(session_id) | {"Accept": "text/event-stream"}
        try:
            async with self._http.stream(
                "GET", self._url, headers=head, timeout=httpx2.Timeout(SILENCE_SECONDS, pool=None)
            ) as answer:
                opened.set_result(answer.is_success)
                if not answer.is_success:
                    return
                if session_id is not None:
                    self._heard[session_id] = loop.time()
                async for event in httpx2.EventSource(answer, max_event_size=self._limit + 1024):
                    if session_id is not None:
                        self._heard[session_id] = loop.time()
                    if event.data:
                        await self._take(event.data)
        except httpx2.HTTPError:  # SSEError among them
            pass
        finally:
            if not opened.done():
                opened.set_result(False)
            if session_id is None or session_id in self._heard:
                self._end()

    async def _take(self, text: str) -> None:
        message = _message(text)
        if message.method is None and (key := bytes(message.id)) in self._opening:
            known = self._opening.pop(key)
            session_id = known or session_id_in(bytes(message.result))
            if session_id is not None and bytes(message.result):
                await self._opened(session_id, replays=known is not None)
        elif message.method is not None and bytes(message.id):
            session_id = session_id_in(bytes(message.params))
            if session_id is not None:
                self._asked_of_us[bytes(message.id)] = session_id
        await self._put(text)

    async def _opened(self, session_id: str, *, replays: bool) -> None:
        """A session is open there: nothing of it is to be missed, or heard in another order."""
        if self._has_one_stream:
            return
        await self._listen(session_id)
        if not replays or session_id not in self._heard:
            return
        now = asyncio.get_running_loop().time
        until, quiet = now() + QUIET_AT_MOST, 0
        while quiet < QUIET_LOOKS and now() < until:
            heard = self._heard.get(session_id)
            await asyncio.sleep(LOOK_SECONDS)
            quiet = quiet + 1 if self._heard.get(session_id) == heard else 0

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


_JSON: Final = {"Content-Type": "application/json"}


def _refusal(message: _Message, answer: httpx2.Response) -> str:
    """What a request is answered with that the server does not take: its own words, if any."""
    if bytes(_message(answer.text).id) == bytes(message.id):
        return answer.text
    told = f"the server does not take {message.method}: HTTP {answer.status_code}"
    error = {"code": INTERNAL_ERROR, "message": told}
    return encode({"jsonrpc": "2.0", "id": message.id, "error": error}).decode()
