"""A client over Streamable HTTP: what it posts comes in, what it is told goes out on streams.

Source: ACP RFD, Streamable HTTP & WebSocket transport. A client has one stream of events for its
connection and one for each session that it opens one for; the RFD says what goes where, and the
official SDKs do not agree with it or with each other. So this is liberal:

| what | goes to the stream of |
|---|---|
| the answer to `initialize` | the POST itself |
| what is about a session: updates, requests, answers | the session, if open; or as all else |
| the answer to `session/new`, `load`, `resume`, `fork` | the connection, behind the session's |
| all else | the connection |

A stream that is opened anew takes the place of the older one: a phone's dead socket must not lock
it out. What was written to that one may be lost; a client that sends `Last-Event-ID` gets what is
behind it from the journal, as by `session/resume` with a position (`server.positions`).
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from acphold.agents.capabilities import asking_for_positions
from acphold.errors import ConnectionLostError, InvalidParamsError
from acphold.hub.forks import FORK_SESSION
from acphold.schema import (
    INITIALIZE,
    LOAD_SESSION,
    NEW_SESSION,
    RESUME_SESSION,
    encode,
)
from acphold.schema.session_ids import session_id_in
from acphold.schema.splice import splice
from acphold.server.positions import behind, is_bare, told_position
from acphold.transports.pipes import FLUSH_SECONDS, LOW_WATER

HEARTBEAT_SECONDS: Final = 15.0
"""How often a stream on which nothing happens says that it is there."""

HEARTBEAT: Final = b": keepalive\n\n"

UNUSED_SECONDS: Final = 120.0
"""How long a connection is kept that has no stream open, and posts nothing."""

BARE_SECONDS: Final = 0.05
"""How long a position that nothing is told with waits for what follows: else each prompt would wake
its client twice."""

STREAMS: Final = 256
"""Streams of one connection that are read, or hold what was not."""

POSTED_BYTES: Final = 1 << 20
"""What may wait here that was posted; who posts more waits for its answer."""

OPENING: Final = frozenset({NEW_SESSION.name, LOAD_SESSION.name, RESUME_SESSION.name, FORK_SESSION})
"""Requests whose answers go to the connection's stream, whatever session they name."""


class Message(Struct, gc=False):
    """Of a message what says where it belongs."""

    id: Raw = Raw()
    method: str | None = None
    params: Raw = Raw()

    @property
    def session_id(self) -> str | None:
        """The session that its params name."""
        return session_id_in(bytes(self.params))

    @property
    def is_answered(self) -> bool:
        """Whether it is a request, or the answer to one."""
        return bool(bytes(self.id))

    @property
    def is_response(self) -> bool:
        return self.method is None and self.is_answered


_read = Decoder(Message).decode


def read(line: bytes) -> Message:
    """The message of a line; msgspec.MsgspecError, UnicodeDecodeError, RecursionError."""
    return _read(line)


class Asked(NamedTuple):
    """A request that was posted, until it is answered."""

    method: str
    session_id: str | None
    params: bytes


NOBODY: Final = Asked("", None, b"")


class _Answer(Struct, gc=False):
    result: Raw = Raw()


_read_answer = Decoder(_Answer).decode


def session_in_result(line: bytes) -> str | None:
    """The session that an answer names, of `session/new`; None for an error."""
    return session_id_in(bytes(_read_answer(line).result))


AtOnce = Callable[[bytes], bool] | None
"""Says events in this step, without their reader, whom to wake takes longer than that; False where
they would have to wait."""


class EventStream:
    """What one GET is answered with, event by event; `size` is bytes that were not written yet.

    `resized` is told how many more of them wait for somebody: while it is closed, none, but for one
    that `is_awaited` to be opened.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        resized: Callable[[int], object] = bool,
        *,
        is_awaited: bool = False,
    ) -> None:
        self._changed = changed
        self._resized = resized
        self._is_awaited = is_awaited
        self._counted = 0
        self._events: list[bytes] = []
        self._news = asyncio.Event()
        self._reader = 0
        self._waiting = 0
        self._at_once: AtOnce = None
        self._late: asyncio.TimerHandle | None = None
        self.size = 0

    @property
    def is_open(self) -> bool:
        """Whether somebody reads it."""
        return self._reader > 0

    def add(self, event: bytes, *, may_wait: bool = False) -> None:
        """Say this; what may wait is said with what follows, if that comes in a moment."""
        self._events.append(event)
        self._resize(self.size + len(event))
        if not may_wait:
            self._say()
        elif self._late is None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(BARE_SECONDS, self._say_late)

    def _say_late(self) -> None:
        self._late = None
        if self._events:
            self._say()

    def _say(self) -> None:
        is_awaited = self.is_open and self._waiting == self._reader
        if is_awaited and self._at_once is not None and self._at_once(b"".join(self._events)):
            self._events = []
            self._resize(0)
        else:
            self._news.set()

    def _resize(self, size: int) -> None:
        """So many bytes were not written yet; or it is read, or not, from now on."""
        self.size = size
        counted = size if self.is_open or self._is_awaited else 0
        self._resized(counted - self._counted)
        self._counted = counted

    def open(self, at_once: AtOnce = None) -> AsyncIterator[bytes]:
        """Events as they come, some of them at once; ends when somebody else opens the stream.

        It is open from now on, not only from the first event. What comes while the reader waits for
        it is offered to `at_once`.
        """
        self._reader = abs(self._reader) + 1
        self._at_once = at_once
        self._resize(self.size)
        self._news.set()  # whoever read it before is to see that
        return self._events_for(self._reader)

    async def _events_for(self, mine: int) -> AsyncIterator[bytes]:
        try:
            while self._reader == mine:
                if not self._events:
                    self._news.clear()
                    self._waiting = mine
                    try:
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            await self._news.wait()
                    except TimeoutError:
                        yield HEARTBEAT
                    continue
                self._waiting = 0
                events, self._events = self._events, []
                yield b"".join(events)  # returns when it is written
                self._resize(sum(map(len, self._events)))
                self._changed()
        finally:
            if self._reader == mine:
                self._reader = -mine
                self._resize(self.size)
                self._changed()

    def forget(self) -> None:
        """What was not written is not to be."""
        self._events.clear()
        self._resize(0)
        self._changed()

    def end(self) -> None:
        """Nobody reads it any more."""
        self._reader = -abs(self._reader) - 1
        self._resize(self.size)
        self._news.set()


class HttpTransport:
    """The transport of a connection over HTTP (`rpc.transport.OfferingTransport`); see the module.

    `id` is that of the connection, `token` that of who made it.
    """

    def __init__(self, token: str) -> None:
        self.id = str(uuid.uuid4())
        self.token = token
        self._posted: asyncio.Queue[bytes] = asyncio.Queue()
        self._posted_bytes = 0
        self._offer: Callable[[bytes], bool] | None = None
        self._is_waiting = False
        self._failed: BaseException | None = None
        self._changed = asyncio.Event()
        self._buffered = 0
        self._connection = EventStream(self._tell_change, self._resized, is_awaited=True)
        self._sessions: dict[str, EventStream] = {}
        self._openings: dict[str, bytes] = {}
        self._asked: dict[bytes, Asked] = {}
        self._answered: dict[bytes, asyncio.Future[bytes]] = {}
        self._own_ids = itertools.count(1)
        self._own: set[bytes] = set()
        self._rest = b""
        self._late: list[tuple[EventStream, bytes]] = []
        self._used = asyncio.get_running_loop().time()
        self.is_over = False

    # -- towards us -------------------------------------------------------------------------

    async def post(self, line: bytes, message: Message) -> bytes | None:
        """Take a message that was posted; for `initialize` the answer to it, for others None.

        Raises ConnectionLostError when the connection ends before.
        """
        self._used = asyncio.get_running_loop().time()
        answer: asyncio.Future[bytes] | None = None
        if message.method is not None and message.is_answered:
            id_, session_id = bytes(message.id), message.session_id
            self._asked[id_] = Asked(message.method, session_id, bytes(message.params))
            if message.method == INITIALIZE.name:
                with suppress(InvalidParamsError):  # which it is told by who reads it
                    params = bytes(message.params) or b"{}"
                    params = asking_for_positions(params, for_events=True)
                    line = splice(line, {"params": params}) + b"\n"
                answer = self._answered[id_] = asyncio.get_running_loop().create_future()
        self._take(line)
        while self._posted_bytes > POSTED_BYTES and not self.is_over:
            await self._change()
        return None if answer is None else await answer

    def _take(self, line: bytes) -> None:
        if self._is_waiting and self._offer is not None and self._posted.empty():
            try:
                if self._offer(line):
                    return
            except BaseException as exc:  # which is for who receives
                self._failed = exc
        self._posted.put_nowait(line)
        self._posted_bytes += len(line)

    @property
    def is_read(self) -> bool:
        """Whether the other side may still read us."""
        return not self.is_over

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """Offer what is posted while somebody waits in `receive` to `take` first."""
        self._offer = take

    async def receive(self) -> bytes:
        """The next message that was posted; b"" once the connection has ended, and ever after."""
        if self.is_over and self._posted.empty():
            return b""
        self._is_waiting = True
        try:
            line = await self._posted.get()
        finally:
            self._is_waiting = False
        if self._failed is not None:
            raise self._failed
        self._posted_bytes -= len(line)
        self._changed.set()
        return line

    # -- from us ----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Put the messages that `data` has or completes on their streams."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not self.is_over:
            for line in lines:
                self._route(line)

    def _route(self, line: bytes) -> None:
        try:
            message = read(line)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            message = Message()  # an agent's, which it may say to its client as to any
        if message.is_response:
            self._route_response(bytes(message.id), line)
            return
        session_id = message.session_id
        position = told_position(bytes(message.params))
        stream = self._stream_of(session_id)
        if position is not None and is_bare(bytes(message.params)):
            stream.add(b"id: %d\n\n" % position, may_wait=True)
        else:
            stream.add(_event(line, position))

    def _route_response(self, id_: bytes, line: bytes) -> None:
        asked = self._asked.pop(id_, NOBODY)
        if asked.method in OPENING and (opened := asked.session_id or session_in_result(line)):
            self._openings[opened] = splice(asked.params, {"sessionId": encode(opened)})
        if (waiting := self._answered.pop(id_, None)) is not None:
            if not waiting.done():
                waiting.set_result(line)
        elif asked.method in OPENING:
            stream = self._stream_of(asked.session_id)
            if stream is self._connection or not stream.size:
                self._connection.add(_event(line))
            else:  # behind the replay
                self._late.append((stream, line))
        elif id_ in self._own:
            self._own.remove(id_)
        else:
            self._stream_of(asked.session_id).add(_event(line))

    def _stream_of(self, session_id: str | None) -> EventStream:
        stream = self._sessions.get(session_id or "")
        return stream if stream is not None and stream.is_open else self._connection

    @property
    def buffered(self) -> int:
        """Bytes that no stream has written yet; what a closed one has left waits for nobody."""
        return self._buffered

    def _resized(self, more: int) -> None:
        self._buffered += more

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError once the connection has ended."""
        while self.buffered >= LOW_WATER and not self.is_over:
            await self._change()
        if self.is_over:
            raise ConnectionLostError("the client has ended the connection")

    def _tell_change(self) -> None:
        for late in tuple(self._late):
            if not late[0].size or not late[0].is_open:
                self._late.remove(late)
                self._connection.add(_event(late[1]))
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- streams ----------------------------------------------------------------------------

    def stream(
        self, session_id: str | None, after: int | None, at_once: AtOnce = None
    ) -> AsyncIterator[bytes] | None:
        """The events of a session, or of the connection; None for too many streams.

        With `after`, a position: what came behind it is asked for, if the session is known here.
        `at_once` is as for `EventStream.open`.
        """
        if session_id is None:
            return self._connection.open(at_once)
        found = self._sessions.get(session_id)
        if found is None:
            if len(self._sessions) >= STREAMS:
                self._sessions = {
                    id_: it for id_, it in self._sessions.items() if it.is_open or it.size
                }
            if len(self._sessions) >= STREAMS:
                return None
            found = EventStream(self._tell_change, self._resized)
            self._sessions[session_id] = found
        events = found.open(at_once)
        if after is not None and (params := self._openings.get(session_id)) is not None:
            found.forget()  # the journal has it
            id_ = f"acphold-{next(self._own_ids)}"
            self._own.add(encode(id_))
            asked = {"jsonrpc": "2.0", "id": id_, "method": RESUME_SESSION.name}
            self._take(encode({**asked, "params": Raw(behind(params, after))}) + b"\n")
        return events

    def is_unused(self, now: float) -> bool:
        """Whether its client seems to have gone."""
        streams = (self._connection, *self._sessions.values())
        if any(it.is_open for it in streams):
            self._used = now
        return now - self._used > UNUSED_SECONDS

    def end(self) -> None:
        """The client is gone, or is sent away."""
        self.is_over = True
        self._posted.put_nowait(b"")
        for stream in (self._connection, *self._sessions.values()):
            stream.end()
        for waiting in self._answered.values():
            waiting.cancel()
        self._changed.set()

    async def aclose(self) -> None:
        """Flush for at most FLUSH_SECONDS, then end; may be called again."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while self.buffered and not self.is_over:
                    await self._change()
        except TimeoutError:
            pass  # nobody reads it
        finally:
            self.end()


def _event(line: bytes, position: int | None = None) -> bytes:
    """A line as an event (HTML standard, server-sent events), with its position as the id."""
    return (
        b"data: %b\n\n" % line if position is None else b"id: %d\ndata: %b\n\n" % (position, line)
    )
