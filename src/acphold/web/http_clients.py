"""Clients over Streamable HTTP: POSTs come in, our messages go out on streams.

Source: ACP RFD, Streamable HTTP & WebSocket transport. A client has one stream of events for its
connection, and may open one for each session; the RFD says which message goes where,
and the official SDKs agree neither with it nor with each other. So this is liberal:

| message | goes to the stream of |
|---|---|
| the answer to `initialize` | the POST itself |
| anything about a session: updates, requests, answers | the session, if it was open in time |
| the answer to `session/new`, `session/fork` | the connection: the session is still unknown |
| anything else | the connection |

A client reads its streams in parallel, so order holds only within each: nobody can know which of
two sockets it reads first. Everything about a session therefore stays on one stream: replay, then
the answer to `session/load`, which the RFD puts on the connection's. The official clients accept it
on either.

- A session that is loaded or resumed stays on its own stream if that is open when the request
  arrives, otherwise on the connection's, even if its own is opened meanwhile.
- After the answer to `session/new`, nothing is sent about that session until its stream is opened,
  its client sends a request about it without one, or STREAM_OPEN_SECONDS pass.
- A session moves from the connection's stream to its own when it is opened anew, or when it has
  been quiet for a while and its client sends a request about it.

A reopened stream replaces the older one: a phone's dead socket must not lock it out. Data written
to the older one may be lost; a client that sends `Last-Event-ID` gets what follows from the
journal, as by `session/resume` with a position (`server.positions`).

    POST     one message: 200 with the answer for `initialize`, 202 for all others
    GET      a stream of events, of the connection, or of the session that a header names
    DELETE   the end of the connection
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from acp_wire.newest import Newest
from acp_wire.rpc.protocol import refusal
from acp_wire.rpc.wire_errors import as_remote
from acp_wire.schema import INITIALIZE, RESUME_SESSION, encode, splice
from acp_wire.schema.methods import CANCEL_REQUEST, REQUESTS
from acp_wire.schema.salvage import repair
from acp_wire.schema.splice import session_id_in
from acp_wire.tasks import TaskSet, timeout
from acp_wire.transports.known_servers import ONE_STREAM
from acphold.conversation.history.entries import LAST_SEQ
from acphold.conversation.history.raw_update import members
from acphold.errors import (
    PARSE_ERROR,
    AcpError,
    ConnectionLostError,
    InvalidParamsError,
    InvalidRequestError,
)
from acphold.live.agents.capabilities import asking_for_positions
from acphold.live.hub.frames import PARENT
from acphold.live.server import positions
from acphold.web import bounds
from acphold.web.connections import Headers, Offering, repeating
from acphold.web.exchange import AtOnce, EventStream, HttpExchange, RefusedError, event
from acphold.web.gate import Admitted, Gate
from acphold.web.relay import Attending

log = logging.getLogger(__name__)

CONNECTION_ID: Final = "acp-connection-id"
SESSION_ID: Final = "acp-session-id"
LAST_EVENT_ID: Final = "last-event-id"


class StreamedMessage(Struct, gc=False):
    """The fields of a message that tell where it belongs."""

    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()

    @property
    def session_id(self) -> str | None:
        """The session named in its params."""
        return session_id_in(bytes(self.params))

    @property
    def is_answered(self) -> bool:
        """True for a request or a response."""
        return bool(bytes(self.id))

    @property
    def is_response(self) -> bool:
        return self.method is None and self.is_answered


read = Decoder(StreamedMessage).decode
"""Parses a line; raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError."""


class PostedRequest(NamedTuple):
    """A posted request, until it is answered."""

    method: str
    session_id: str | None
    params: bytes


NOBODY: Final = PostedRequest("", None, b"")


class HttpTransport(Offering):
    """The transport of a connection over HTTP (`rpc.transport.OfferingTransport`); see the module.

    `id` is the connection's, `token` its creator's, whose access ends at `expires_at`. A client
    that `has_one_stream` opens none for sessions.
    """

    def __init__(
        self, token: str, *, has_one_stream: bool = False, expires_at: float | None = None
    ) -> None:
        super().__init__()
        self.id = str(uuid.uuid4())
        self.token = token
        self.expires_at = expires_at
        self._posted: asyncio.Queue[bytes] = asyncio.Queue()
        self._posted_bytes = 0
        self._changed = asyncio.Event()
        self.buffered = 0
        """Bytes that no stream has written yet, without what a closed one has left."""
        self._connection = EventStream(self._on_resize, is_awaited=True)
        self._has_one_stream = has_one_stream
        self._sessions: dict[str, EventStream] = {}
        self._begun: dict[str, asyncio.TimerHandle] = {}
        self._on_connection: Newest[str, float] = Newest(bounds.SESSIONS_BESIDE)
        """Sessions on the connection's stream, and the time of their last message."""
        self._asked_in: dict[bytes, str] = {}
        self._openings: Newest[str, tuple[bytes, str | None]] = Newest(bounds.SESSIONS_BESIDE)
        """The params with which sessions were opened, and their lineages then."""
        self._asked: dict[bytes, PostedRequest] = {}
        self._answered: dict[bytes, asyncio.Future[bytes]] = {}
        self._own_ids = itertools.count(1)
        self._own: dict[bytes, str] = {}
        self._rest = b""
        self._used = asyncio.get_running_loop().time()
        self.is_over = False

    # -- from the client --------------------------------------------------------------------

    async def post(self, line: bytes, message: StreamedMessage) -> bytes | None:
        """Take a posted message; return the answer to `initialize`, None for others.

        Raises ConnectionLostError if the connection ends before that.
        """
        self._used = asyncio.get_running_loop().time()
        answer: asyncio.Future[bytes] | None = None
        session_id = message.session_id
        if session_id is not None:
            self._move_to_own_stream(session_id, anew=REQUESTS[message.method].reopens)
        if message.is_response:
            self._asked_in.pop(bytes(message.id), None)
        if message.method is not None and message.is_answered:
            id_ = bytes(message.id)
            self._asked[id_] = PostedRequest(message.method, session_id, bytes(message.params))
            if message.method == INITIALIZE.name:
                with suppress(InvalidParamsError):  # the reader of it reports that
                    params = bytes(message.params) or b"{}"
                    params = asking_for_positions(params, for_events=True)
                    line = splice(line, {"params": params}) + b"\n"
                answer = self._answered[id_] = asyncio.get_running_loop().create_future()
        self._take(line)
        while self._posted_bytes > bounds.POSTED_BYTES and not self.is_over:
            await self._change()
        return None if answer is None else await answer

    def _take(self, line: bytes) -> None:
        if self._posted.empty() and self._took(line):
            return
        self._posted.put_nowait(line)
        self._posted_bytes += len(line)

    @property
    def is_read(self) -> bool:
        """True while the other side may still read us."""
        return not self.is_over

    async def receive(self) -> bytes:
        """Return the next posted message; b"" once the connection has ended, and ever after."""
        if self.is_over and self._posted.empty():
            return b""
        line = await self._wait(self._posted.get())
        self._posted_bytes -= len(line)
        self._changed.set()
        return line

    # -- to the client ----------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Put the messages that `data` has or completes on their streams."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in () if self.is_over else lines:
            try:
                message = read(line)
            except (MsgspecError, UnicodeDecodeError, RecursionError):
                message = StreamedMessage()  # malformed, from an agent: passed on
            if message.is_response:
                self._route_response(message, line)
                continue
            session_id, params = message.session_id, bytes(message.params)
            if message.method == CANCEL_REQUEST.name:
                session_id = self._asked_in.pop(members(params).get("requestId", b""), None)
            elif message.is_answered and session_id is not None:
                self._asked_in[bytes(message.id)] = session_id
            elif PARENT.encode() in line:  # a sub-agent's message goes to its session's stream
                session_id = positions.session_of_update(params) or session_id
            position = positions.position_of_update(message.method, params)
            stream = self._stream_of(session_id)
            if position is not None and positions.is_only_position(params):
                stream.add(b"id: %d\n\n" % position, may_wait=True)
            else:
                stream.add(event(line, position))

    def _route_response(self, message: StreamedMessage, line: bytes) -> None:
        id_, result = bytes(message.id), bytes(message.result)
        asked = self._asked.pop(id_, NOBODY)
        opened, effect = None, REQUESTS[asked.method]
        if effect.opens and result:
            opened = asked.session_id if effect.reopens else session_id_in(result)
        if opened is not None:
            params = splice(asked.params, {"sessionId": encode(opened)})
            if len(params) <= bounds.OPENING_BYTES:
                self._openings[opened] = params, positions.lineage_of_answer(result)
        elif asked.session_id is not None and effect.leaves:
            self._openings.pop(asked.session_id, None)
        if (waiting := self._answered.pop(id_, None)) is not None:
            if not waiting.done():
                waiting.set_result(line)
        elif effect.makes:
            self._connection.add(event(line))
            if opened is not None and not self._has_one_stream:
                # Its client is expected to open a stream for the session that it has begun.
                self._on_connection.pop(opened, None)
                if opened not in self._sessions and self._has_room():
                    self._sessions[opened] = EventStream(self._on_resize, is_awaited=True)
                    self._begun[opened] = asyncio.get_running_loop().call_later(
                        bounds.STREAM_OPEN_SECONDS, self._give_up_waiting, opened
                    )
        elif id_ in self._own:
            stream = self._sessions.get(self._own.pop(id_))
            if stream is not None and not result:
                stream.end()  # cannot be resumed: its client has to load the session again
        elif effect.reopens and not self._has_one_stream:
            self._stream_of(asked.session_id).add_after_gap(event(line))
        else:
            self._stream_of(asked.session_id).add(event(line))

    # -- choosing a stream -----------------------------------------------------------------

    def _stream_of(self, session_id: str | None) -> EventStream:
        """Return the stream for a message about this session now."""
        if session_id is None:
            return self._connection
        stream = self._sessions.get(session_id)
        is_there = stream is not None and (stream.is_open or stream.is_awaited)
        if stream is not None and is_there and session_id not in self._on_connection:
            return stream
        # Removed first, so that it moves to the end: the dict is ordered by last use.
        self._on_connection.pop(session_id, None)
        self._on_connection[session_id] = asyncio.get_running_loop().time()
        return self._connection

    def _give_up_waiting(self, session_id: str) -> None:
        """Send what was kept on the connection's stream: no stream was opened in time."""
        self._begun.pop(session_id).cancel()
        stream = self._sessions.pop(session_id)
        if kept := stream.forget():
            self._stream_of(session_id).add(kept)

    def _move_to_own_stream(self, session_id: str, *, anew: bool) -> None:
        """Move a session to its own stream if opened `anew`, or quiet when its client asks."""
        if session_id in self._begun:
            self._give_up_waiting(session_id)
        last_at = self._on_connection.get(session_id)
        if last_at is None:
            return
        is_quiet = asyncio.get_running_loop().time() >= last_at + bounds.QUIET_SECONDS
        is_asked = any(asked.session_id == session_id for asked in self._asked.values())
        if anew or (is_quiet and not is_asked and not self._connection.size):
            del self._on_connection[session_id]

    def _has_room(self) -> bool:
        """Return True if one more stream is allowed."""
        if len(self._sessions) >= bounds.STREAMS:
            self._sessions = {
                id_: it
                for id_, it in self._sessions.items()
                if it.is_open or it.is_awaited or it.size
            }
        return len(self._sessions) < bounds.STREAMS

    def _on_resize(self, more: int) -> None:
        self.buffered += more
        if more <= 0:
            self._changed.set()

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError once the connection has ended."""
        while self.buffered >= bounds.LOW_WATER and not self.is_over:
            await self._change()
        if self.is_over:
            raise ConnectionLostError("the client closed the connection")

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- streams ----------------------------------------------------------------------------

    def stream(
        self, session_id: str | None, after: int | None, at_once: AtOnce = None
    ) -> AsyncIterator[bytes] | None:
        """Return the events of a session, or of the connection; None for too many streams.

        With `after`, a position, what follows it is requested, if the session is known here.
        `at_once` is as in `EventStream.open`.
        """
        if session_id is None:
            return self._connection.open(at_once)
        found = self._sessions.get(session_id)
        if found is None:
            if not self._has_room():
                return None
            found = EventStream(self._on_resize)
            self._sessions[session_id] = found
        if session_id in self._begun:
            self._begun.pop(session_id).cancel()
            found.is_awaited = False
        opening = None if after is None else self._openings.get(session_id)
        self._move_to_own_stream(session_id, anew=opening is not None)
        events = found.open(at_once)
        if after is not None and opening is not None:
            found.forget()  # the journal has it
            id_ = f"acphold-{next(self._own_ids)}"
            self._own[encode(id_)] = session_id
            params, lineage = opening
            there = Raw(positions.resume_params(params, after, lineage=lineage))
            asked = {"jsonrpc": "2.0", "id": id_, "method": RESUME_SESSION.name, "params": there}
            self._take(encode(asked) + b"\n")
        return events

    def is_unused(self, now: float) -> bool:
        """Return True if the client seems to have gone."""
        streams = (self._connection, *self._sessions.values())
        if any(it.is_open for it in streams):
            self._used = now
        return now - self._used > bounds.UNUSED_SECONDS

    def end(self) -> None:
        """End the connection because the client left or is sent away."""
        self.is_over = True
        for late in self._begun.values():
            late.cancel()
        self._posted.put_nowait(b"")
        for stream in (self._connection, *self._sessions.values()):
            stream.end()
        for waiting in self._answered.values():
            waiting.cancel()
        self._changed.set()

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then end; may be called again."""
        try:
            async with timeout(bounds.FLUSH_SECONDS):
                while self.buffered and not self.is_over:
                    await self._change()
        except TimeoutError:
            pass  # nobody reads it
        finally:
            self.end()


class HttpClients:
    """Serves HTTP clients; an async context manager. At its end all connections end."""

    def __init__(self, agents: Attending, gate: Gate) -> None:
        self._agents = agents
        self._gate = gate
        self._transports: dict[str, HttpTransport] = {}
        self._tasks = TaskSet()

    async def __aenter__(self) -> HttpClients:
        self._checking = repeating(self._end_unused, bounds.UNUSED_CHECK_SECONDS)
        await self._checking.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in tuple(self._transports.values()):
            transport.end()
        await self._checking.__aexit__(None, None, None)
        await self._tasks.finish()

    async def serve(self, exchange: HttpExchange, name: str, admitted: Admitted) -> None:
        """Answer one request to the endpoint of an agent; raises RefusedError."""
        match exchange.method:
            case "POST":
                await self._post(exchange, name, admitted)
            case "GET":
                if "text/event-stream" not in exchange.headers.get("accept", ""):
                    raise RefusedError(406, "the Accept header must include text/event-stream")
                transport = self._transport(exchange, admitted)
                session_id = exchange.headers.get(SESSION_ID)
                only = admitted.principal.session_id
                if session_id is not None and only not in (None, session_id):
                    raise RefusedError(404, "there is no such session")
                position = exchange.headers.get(LAST_EVENT_ID, "")
                is_number = position.isdecimal() and len(position) <= len(str(LAST_SEQ))
                after = int(position) if is_number else None
                events = transport.stream(session_id, after, exchange.send_at_once)
                if events is None:
                    raise RefusedError(429, "too many streams are open; try again later")
                await exchange.stream(events)
            case "DELETE":
                self._transport(exchange, admitted).end()
                await exchange.answer(202)
            case _:
                raise RefusedError(405, "use POST, GET or DELETE")

    async def _post(self, exchange: HttpExchange, name: str, admitted: Admitted) -> None:
        if not exchange.is_json:
            raise RefusedError(415, "the content type must be application/json")
        body = await exchange.body(self._agents.limit(name))
        line = body.replace(b"\n", b" ").strip() + b"\n"
        if line.startswith(b"["):
            problem = "batches of messages are not supported"
            refused = as_remote(InvalidRequestError(problem))
            await exchange.answer(501, raw=refusal(b"null", refused))
            return
        try:
            try:
                message = read(line)
            except MsgspecError:  # half of a surrogate pair, perhaps
                line = repair(line)
                message = read(line)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            refused = as_remote(AcpError(str(exc)), PARSE_ERROR)
            await exchange.answer(400, raw=refusal(b"null", refused))
            return
        if message.method == INITIALIZE.name and CONNECTION_ID not in exchange.headers:
            of_token = [it for it in self._transports.values() if it.token == admitted.token]
            if len(of_token) >= bounds.HTTP_CONNECTIONS_OF_TOKEN:
                raise RefusedError(429, "too many connections with this token")
            headers, until = exchange.headers, admitted.principal.ends_at
            one_stream = ONE_STREAM in headers
            transport = HttpTransport(admitted.token, has_one_stream=one_stream, expires_at=until)
            self._transports[transport.id] = transport
            self._tasks.start(self._attend(name, transport, admitted, headers), "attend")
        else:
            transport = self._transport(exchange, admitted)
        named = exchange.headers.get(SESSION_ID)
        if named is not None and message.session_id not in (None, named):
            raise RefusedError(400, f"{SESSION_ID} and params.sessionId differ")
        try:
            answer = await transport.post(line, message)
        except asyncio.CancelledError:
            if not transport.is_over:
                raise
            raise RefusedError(503, "the connection has ended") from None
        if answer is None:
            await exchange.answer(202)
        else:
            head = [
                (CONNECTION_ID.encode(), transport.id.encode()),
                (ONE_STREAM.encode(), b"true"),
            ]
            await exchange.answer(200, headers=head, raw=answer)

    def _transport(self, exchange: HttpExchange, admitted: Admitted) -> HttpTransport:
        """Return the transport of the connection that a request names; raises RefusedError."""
        id_ = exchange.headers.get(CONNECTION_ID)
        if id_ is None:
            raise RefusedError(400, f"{CONNECTION_ID} is missing; initialize first")
        transport = self._transports.get(id_)
        if transport is None or transport.is_over or transport.token != admitted.token:
            raise RefusedError(404, "unknown connection; initialize again")
        # Requests overtake each other: the access that ends last counts.
        until = admitted.principal.ends_at
        if until is None or (transport.expires_at is not None and until > transport.expires_at):
            transport.expires_at = until
        return transport

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._transports)

    async def _attend(
        self, name: str, transport: HttpTransport, admitted: Admitted, headers: Headers
    ) -> None:
        try:
            with self._gate.connected(admitted, lambda _: transport.end()):
                log.info("%s connected to %s", admitted.principal.name, name)
                await self._agents.attend(name, transport, admitted.principal, headers)
        except Exception:  # one connection must not end the others; nobody awaits this task
            log.exception("a connection failed")
        finally:
            del self._transports[transport.id]
            transport.end()

    async def _end_unused(self) -> None:
        """End connections whose clients have left without a word."""
        now = asyncio.get_running_loop().time()
        for transport in tuple(self._transports.values()):
            if transport.is_unused(now):
                transport.end()
