"""One end of a connection: drives a Protocol over a Transport.

Everything inbound passes one lane, in the order of the wire. Notifications and responses take
effect there, one after the other; a request is started there and then runs as its own task. So an
update that came before a response has been handled when that response resolves, even if its
handler had to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol as Interface
from typing import TypeVar
from uuid import uuid4

import msgspec

from acphold.errors import (
    INTERNAL_ERROR,
    AcpholdError,
    ConnectionLostError,
    RemoteError,
    RequestCancelledError,
)
from acphold.rpc.events import (
    Event,
    MalformedReceived,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
    WireError,
)
from acphold.rpc.protocol import MAX_MESSAGE, Protocol, wire_error
from acphold.rpc.transport import Transport
from acphold.schema.decode import decode, encode
from acphold.schema.methods import CANCEL_REQUEST, Method, Notification

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

HIGH_WATER = 256 * 1024
"""Bytes buffered towards a peer above which callers wait before they send more."""

UNREAD = 16 * 1024 * 1024
"""Bytes buffered towards a peer above which nothing more is read from it: it does not listen."""

Answer = bytes | AcpholdError
"""The result of a call as JSON bytes; or RemoteError, or ConnectionLostError."""

OnAnswer = Callable[[Answer], Awaitable[None]]
"""Called in the inbound lane with the answer of a call, before anything that came behind it."""


class Receiver(Interface):
    """Who answers what the other side asks and hears what it tells."""

    async def on_request(self, request: RequestReceived) -> bytes:
        """The result as JSON bytes. A AcpholdError becomes the error with its code."""

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        """All notifications that came in a row in one read; called in the inbound lane."""


class Peer:
    """See the module. Make one with `connected`, which also runs and ends it."""

    def __init__(
        self,
        transport: Transport,
        receiver: Receiver,
        *,
        name: str = "peer",
        limit: int = MAX_MESSAGE,
        reply_to_garbage: bool = True,
    ) -> None:
        self.name = name
        self._transport = transport
        self._receiver = receiver
        self._protocol = Protocol(limit)
        # A program that prints by accident is not helped by error lines on its stdin; a request
        # that cannot be read is refused in any case.
        self._reply_to_garbage = reply_to_garbage
        self._calls: dict[int, OnAnswer] = {}
        self._running: dict[asyncio.Task[None], bytes] = {}
        self._starting = 0
        self._cancelled: set[asyncio.Task[None]] = set()
        self._ended = False

    # -- asking and telling ---------------------------------------------------------------

    async def call(self, method: Method[P, R], params: P) -> R:
        """Ask and wait; RemoteError when refused, ConnectionLostError when the other side goes."""
        raw = await self.call_raw(method.name, encode(params))
        return decode(method.result, b"{}" if raw == b"null" else raw).value

    async def notify(self, notification: Notification[P], params: P) -> None:
        """Tell; waits only for room to write, never for an answer."""
        await self.notify_raw(notification.name, encode(params))

    async def call_raw(
        self, method: str, params: bytes, on_answer: OnAnswer | None = None
    ) -> bytes:
        """Like `call`, JSON bytes in and out. `on_answer` sees the answer in the order of the wire.

        Cancelling it sends `$/cancel_request` (spec v1, cancellation) and does not wait.
        """
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def settle(outcome: Answer) -> None:
            if on_answer is not None:
                try:
                    await on_answer(outcome)
                except AcpholdError as exc:
                    outcome = exc
            if answer.done():
                return
            if isinstance(outcome, bytes):
                answer.set_result(outcome)
            else:
                answer.set_exception(outcome)

        id_ = self.begin(method, params, settle)
        try:
            await self._room()
            return await answer
        finally:
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen: also when there was no room to wait for it
            if self._calls.pop(id_, None) is not None:
                self.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % id_)

    def begin(self, method: str, params: bytes, on_answer: OnAnswer) -> int:
        """Send a request and return its id; `on_answer` is called once, in the inbound lane.

        Raises ConnectionLostError when the other side has gone already.
        """
        if self._ended:
            raise ConnectionLostError(f"the {self.name} has gone")
        id_, line = self._protocol.request(method, params)
        self._calls[id_] = on_answer
        self._transport.send(line)
        return id_

    async def notify_raw(self, method: str, params: bytes) -> None:
        """Like `notify`, JSON bytes; waits for room to write."""
        self.tell(method, params)
        await self._room()

    def tell(self, method: str, params: bytes) -> None:
        """Like `notify_raw` without waiting for room: for the few words that must not wait."""
        self._transport.send(self._protocol.notification(method, params))

    def send(self, lines: bytes) -> None:
        """Queue lines that are framed already; who sends many watches `buffered`."""
        self._transport.send(lines)

    @property
    def buffered(self) -> int:
        """Bytes queued towards the other side."""
        return self._transport.buffered

    async def drain(self) -> None:
        """Wait until few bytes are queued; ConnectionLostError if the other side has gone."""
        await self._transport.drain()

    async def _room(self) -> None:
        if self._transport.buffered > HIGH_WATER:
            await self._transport.drain()

    # -- the inbound lane -----------------------------------------------------------------

    async def pump(self) -> None:
        """Read until the other side ends; then whatever still waits fails."""
        try:
            while chunk := await self._transport.receive():
                await self._take(self._protocol.feed(chunk))
                if self._transport.buffered > UNREAD:
                    await self._transport.drain()
        except ConnectionLostError:
            pass  # while it was waited for: the same end
        except Exception:  # nobody awaits this task; what depends on it is told below
            log.exception("the connection to the %s is given up", self.name)
        finally:
            await self._end()

    async def _take(self, events: list[Event]) -> None:
        batch: list[NotificationReceived] = []
        garbage: list[MalformedReceived] = []
        for event in events:
            if self._starting:
                # A request starts in the order of the wire: its task takes its first step before
                # the next message is looked at.
                await asyncio.sleep(0)
            if isinstance(event, NotificationReceived) and event.method != CANCEL_REQUEST.name:
                batch.append(event)
                continue
            if batch:
                await self._hear(batch)
                batch = []
            match event:
                case RequestReceived():
                    self._start(event)
                case ResponseReceived():
                    await self._settle(event)
                case NotificationReceived():
                    self._cancel(event)
                case MalformedReceived():
                    self._complain(event)
                    garbage.append(event)
        if batch:
            await self._hear(batch)
        if garbage:
            first, more = garbage[0], len(garbage) - 1
            behind = f", and {more} more such lines" if more else ""
            # What a client says may hold the secrets of an MCP server: that is not written down.
            said = "" if self._reply_to_garbage else f": {first.excerpt!r}"
            log.warning("from the %s: %s%s%s", self.name, first.problem, said, behind)

    async def _hear(self, batch: list[NotificationReceived]) -> None:
        try:
            await self._receiver.on_notifications(batch)
        except Exception:  # one notification must not end the connection; nobody awaits it
            log.exception("a notification from the %s could not be handled", self.name)

    async def _settle(self, event: ResponseReceived) -> None:
        on_answer = self._calls.pop(event.id, None)
        if on_answer is None:
            return  # cancelled meanwhile: nobody waits any more
        error = event.error
        if error is None:
            await self._tell_answer(on_answer, event.result)
        else:
            await self._tell_answer(on_answer, RemoteError(error.code, error.message, error.raw))

    async def _tell_answer(self, on_answer: OnAnswer, answer: Answer) -> None:
        try:
            await on_answer(answer)
        except Exception:  # one answer must not end the connection
            log.exception("an answer from the %s could not be handled", self.name)

    def _complain(self, event: MalformedReceived) -> None:
        listens = self._reply_to_garbage and self._transport.buffered < HIGH_WATER
        if event.reply and (event.asked or listens):
            self._transport.send(event.reply)

    # -- what the other side asks ---------------------------------------------------------

    def _start(self, request: RequestReceived) -> None:
        task = asyncio.create_task(self._answer(request), name=f"{self.name} {request.method}")
        self._running[task] = request.id
        task.add_done_callback(self._finished)
        self._starting += 1

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._cancelled.discard(task)

    async def _answer(self, request: RequestReceived) -> None:
        self._starting -= 1
        try:
            line = self._protocol.result(request.id, await self._receiver.on_request(request))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling() and task not in self._cancelled:
                raise
            # As it was asked for; or something that the handler waited for was cancelled.
            line = self._protocol.error(request.id, to_wire(RequestCancelledError("cancelled")))
        except Exception as exc:  # the one place where a handler's failure becomes an answer
            line = self._protocol.error(request.id, to_wire(exc))
        self._transport.send(line)

    def _cancel(self, event: NotificationReceived) -> None:
        try:
            request_id = bytes(msgspec.json.decode(event.params, type=_CancelParams).request_id)
        except msgspec.MsgspecError:
            log.warning("from the %s: $/cancel_request without a requestId", self.name)
            return
        for task, id_ in self._running.items():
            if id_ == request_id and not task.done():
                self._cancelled.add(task)
                task.cancel()

    # -- the end --------------------------------------------------------------------------

    async def _end(self) -> None:
        self._ended = True
        self._protocol.forget()
        waiting, self._calls = list(self._calls.values()), {}
        for on_answer in waiting:
            await self._tell_answer(on_answer, ConnectionLostError(f"the {self.name} has gone"))

    async def aclose(self) -> None:
        """End what runs for the other side, fail what waits for it, close the transport."""
        await self._end()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._transport.aclose()


class _CancelParams(msgspec.Struct, rename="camel"):
    request_id: msgspec.Raw


def to_wire(error: Exception) -> WireError:
    """The error object for an exception: our own speak; others are logged and stay silent."""
    if isinstance(error, RemoteError) and error.raw:
        return WireError(error.code, error.message, error.raw)
    if isinstance(error, AcpholdError):
        return wire_error(error.code, str(error), error.data)
    incident = uuid4().hex[:8]
    log.error("handler failed, incident %s", incident, exc_info=error)
    return wire_error(INTERNAL_ERROR, "internal error", {"incident": incident})


@asynccontextmanager
async def connected(peer: Peer) -> AsyncIterator[asyncio.Task[None]]:
    """Run `peer` for the block, which gets the task that reads; leaving it ends everything."""
    pump = asyncio.create_task(peer.pump(), name=f"{peer.name} pump")
    try:
        yield pump
    finally:
        pump.cancel()
        await asyncio.wait([pump])
        await peer.aclose()
