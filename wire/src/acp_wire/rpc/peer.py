"""One end of a connection: drives a Protocol over a Transport.

Everything inbound passes one lane, in wire order. Notifications and responses are handled there,
one after the other. A request is begun there; if its handler has to wait, it goes on in a task of
its own. So when a response resolves, every update that came before it has been handled, even if
that handler had to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from math import inf
from time import monotonic
from typing import Protocol as Interface, TypeVar

import msgspec

from acp_wire import errors
from acp_wire.rpc import protocol
from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.rpc.requests import Answer, OpenRequests, PendingCall, Request
from acp_wire.rpc.transport import OfferingTransport, Transport
from acp_wire.rpc.wire_errors import to_wire
from acp_wire.schema.decode import decode, encode
from acp_wire.schema.methods import CANCEL_REQUEST, Method
from acp_wire.schema.splice import json_value
from acp_wire.tasks import beside, end, finish, timeout

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")
V = TypeVar("V")

HIGH_WATER = 256 * 1024
"""Bytes buffered towards a peer above which callers wait before they send more."""

UNREAD = 16 * 1024 * 1024
"""Bytes buffered towards a client above which nothing more is read from it: it does not read.

Never towards an agent: one that writes to the end before it reads would hang for ever.
"""

UNANSWERED = 16 * 1024 * 1024
"""Most bytes of requests from a peer that may wait for answers. An agent that requests more is held
up until they are fewer. A client is refused: its next message may cancel them all."""

HOLD_SECONDS = 30.0
"""Seconds an agent is held up while none of its requests are answered. An answer may depend on a
later message of the agent; after this time we read on, and refuse its further requests."""

DEAF = 3
"""The connection to an agent is closed when this many times the largest message waits for it.
Prompts stop at two; the rest is answers that it requested and does not read."""

UNREADABLE_BYTES = 1024

MALFORMED_LOGGED = 100
"""Unreadable lines that are all logged, before only some are: a peer may send nothing else."""

AT_ONCE = 16
AT_ONCE_SECONDS = 0.01
"""After AT_ONCE requests of one read the event loop gets a turn, if they took AT_ONCE_SECONDS: if
hundreds of turns begin at once, running ones must continue."""

LONG = 1 << 20
"""Bytes of a request from which on others get a turn between its decoding and its handling."""

UNHANDLED = "a message from the %s could not be handled"

OnAnswer = Callable[[Answer], Awaitable[None] | None]
"""Called in the inbound lane with the answer of a call, before later messages are handled; returns
no coroutine if there is nothing to wait for."""


class Receiver(Interface):
    """Answers the requests of the other side and handles its notifications."""

    def on_request(self, request: Request) -> Awaitable[bytes | None] | None:
        """Return the result as JSON bytes; None if `request` is answered, or will be answered
        later.

        Without anything to wait for, return no coroutine: that saves a task. An AcpError
        becomes the error with its code.
        """

    def on_notifications(
        self, batch: list[protocol.NotificationReceived]
    ) -> Awaitable[None] | None:
        """Handle all consecutive notifications of one read; called in the inbound lane."""


class Peer:
    """See the module. Make one with `connected`, which also runs and ends it."""

    def __init__(
        self,
        transport: Transport,
        receiver: Receiver,
        *,
        name: str = "peer",
        limit: int = protocol.MAX_MESSAGE,
        parts: float = inf,
        is_agent: bool = False,
        on_cut: Callable[[protocol.CutNotification], Awaitable[None] | None] = lambda _: None,
    ) -> None:
        """`on_cut` is called, in the inbound lane, for each notification over the limit."""
        self.name = name
        self.send: Callable[[bytes], None] = transport.send
        """Queue lines that are framed already; callers with many lines have to watch `buffered`."""
        self._transport = transport
        self._offers = transport if isinstance(transport, OfferingTransport) else None
        self._receiver = receiver
        self._on_cut = on_cut
        self._protocol = protocol.Protocol(limit, parts)
        # An agent that prints by accident gets no error lines on its stdin (but an unreadable
        # request is always refused), and we keep reading it even if it does not read itself.
        self._is_agent = is_agent
        self._full = max(UNREAD, DEAF * limit) if is_agent else UNREAD
        self._malformed = 0
        self.unreadable = b""
        """The first lines that were no messages, up to UNREADABLE_BYTES."""
        self._calls: dict[int, OnAnswer] = {}
        self._open = OpenRequests()
        self._holds = is_agent
        self._held_in_vain: int | None = None  # the number of answers when holding last failed
        self._running: dict[asyncio.Task[None], Request] = {}
        self._cancelled: set[asyncio.Task[None]] = set()
        self._tasks = EagerTasks()
        self._lane: asyncio.Task[None] | None = None
        self._ended = False

    # -- sending --------------------------------------------------------------------------

    async def call(self, method: Method[P, R], params: P) -> R:
        """Send a request and wait; RemoteError if refused, ConnectionLostError if the other side
        goes."""
        raw = await self.call_raw(method.name, encode(params))
        return decode(method.result, raw).value

    async def call_raw(self, method: str, params: bytes, *, seconds: float | None = None) -> bytes:
        """Like `call`, JSON bytes in and out.

        SilentPeerError after `seconds` without an answer; that, and being cancelled, sends
        `$/cancel_request` (spec v1, cancellation).
        """
        call = PendingCall()
        id_ = self.begin(method, params, call.take)
        try:
            return await call.answer(lambda: self.withdraw(id_), seconds)
        except TimeoutError:
            why = f"the {self.name} did not answer {method} within {seconds or 0:g} s"
            raise errors.SilentPeerError(why) from None

    def begin(self, method: str, params: bytes, on_answer: OnAnswer) -> int:
        """Send a request and return its id; `on_answer` is called once, in the inbound lane.

        Raises ConnectionLostError if the other side has gone and cannot get it.
        """
        if not self._ended:
            id_, line = self._protocol.request(method, params)
            self._transport.send(line)
            if not self.is_lost:
                self._calls[id_] = on_answer
                return id_
        raise errors.ConnectionLostError(f"the {self.name} has gone")

    def withdraw(self, id_: int) -> None:
        """Drop a request; if it is not answered yet, send the other side `$/cancel_request`."""
        if self._calls.pop(id_, None) is not None:
            self.tell(CANCEL_REQUEST.name, b'{"requestId":%d}' % id_)

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification, JSON bytes; whoever tells much waits in `drain` for room."""
        self._transport.send(self._protocol.notification(method, params))

    @property
    def is_lost(self) -> bool:
        """True if the other side has gone."""
        return self._ended or not (self._offers is None or self._offers.is_read)

    @property
    def buffered(self) -> int:
        """Bytes queued towards the other side."""
        return self._transport.buffered

    async def drain(self) -> None:
        """Wait until few bytes are queued; ConnectionLostError if the other side has gone."""
        await self._transport.drain()

    # -- the inbound lane -----------------------------------------------------------------

    async def pump(self) -> None:
        """Read until the other side ends; then fail all open calls."""
        if self._offers is not None:
            self._offers.offer_to(self._take_at_once)
        try:
            while chunk := await self._transport.receive():
                await self._lane_is_free()
                if self._is_agent and self._is_full:
                    log.error(
                        "the %s does not read its messages; closing the connection", self.name
                    )
                    break
                await self._wait_for(self._handle(self._protocol.feed(chunk)))
                if self._is_full and not self._is_agent:
                    await self._transport.drain()
            await self._lane_is_free()
        except errors.ConnectionLostError:
            pass  # while waiting: the same end
        except Exception:  # nobody awaits this task; `_end` fails the open calls
            log.exception("closing the connection to the %s after an error", self.name)
        finally:
            await end(self._lane)
            await self._end()

    def _take_at_once(self, chunk: bytes) -> bool:
        """Handle a read in the step that made it; False if earlier reads still wait."""
        if self._lane is not None or self._transport.buffered > self._full:
            return False
        steps = self._handle(self._protocol.feed(chunk))
        if (step := next(steps, None)) is not None:
            self._lane = self._tasks.begin(
                self._wait_for(chain((step,), steps)), f"{self.name} lane"
            )
            if self._lane is not None:
                self._lane.add_done_callback(self._leave_lane)
        return True

    def _leave_lane(self, lane: asyncio.Task[None]) -> None:
        if not lane.cancelled() and lane.exception() is None:
            self._lane = None  # one that failed stays, and ends the pump

    async def _lane_is_free(self) -> None:
        """Wait until all earlier reads are handled."""
        if (lane := self._lane) is not None:
            await asyncio.wait([lane])
            lane.result()

    @property
    def _is_full(self) -> bool:
        """True if more is queued than we allow: then a client is not read any further, and the
        connection to an agent is closed."""
        return self._transport.buffered > self._full

    def _handle(self, events: list[protocol.Event]) -> Iterator[Awaitable[object]]:
        """Handle events in wire order; yield each step that the inbound lane has to await."""
        batch: list[protocol.NotificationReceived] = []
        malformed: list[protocol.MalformedReceived] = []
        started, since = 0, monotonic()
        for event in events:
            if (
                isinstance(event, protocol.NotificationReceived)
                and event.method != CANCEL_REQUEST.name
            ):
                batch.append(event)
                continue
            if batch:
                if (rest := self._call(self._receiver.on_notifications, batch)) is not None:
                    yield rest
                batch = []
            match event:
                case protocol.RequestReceived():
                    if self._is_to_hold:
                        yield self._hold()
                    if len(event.params) >= LONG:
                        yield asyncio.sleep(0)
                    self._start(event)
                    started += 1
                    if started % AT_ONCE == 0 and monotonic() - since >= AT_ONCE_SECONDS:
                        yield asyncio.sleep(0)
                        since = monotonic()
                case protocol.ResponseReceived(id=id_, result=result, error=error):
                    if (on_answer := self._calls.pop(id_, None)) is None:
                        continue  # withdrawn meanwhile
                    answer: Answer = result
                    if error is not None:
                        answer = errors.RemoteError(error.code, error.message, error.raw)
                    if (handling := self._begin_answer(on_answer, answer)) is not None:
                        yield self._to_its_end(handling)
                case protocol.NotificationReceived():
                    self._cancel(event)
                case protocol.MalformedReceived():
                    malformed.append(event)
                    # Refuse a request in any case, other lines only if the reply is likely read.
                    is_read = not self._is_agent and self._transport.buffered < HIGH_WATER
                    if event.reply and (event.asked or is_read):
                        self._transport.send(event.reply)
                    if event.cut and (rest := self._call(self._on_cut, event.cut)) is not None:
                        yield rest
        if batch and (rest := self._call(self._receiver.on_notifications, batch)) is not None:
            yield rest
        if malformed:
            self._log_malformed(malformed)

    def _log_malformed(self, lines: Sequence[protocol.MalformedReceived]) -> None:
        """Log unreadable lines: the first MALFORMED_LOGGED, then whenever their number doubles."""
        before, self._malformed = self._malformed, self._malformed + len(lines)
        if len(self.unreadable) < UNREADABLE_BYTES:
            said = b"\n".join([self.unreadable, *(line.excerpt for line in lines)])
            self.unreadable = said[:UNREADABLE_BYTES].lstrip()
        if before >= MALFORMED_LOGGED and self._malformed.bit_length() == before.bit_length():
            return
        first, more = lines[0], len(lines) - 1
        counts = f", and {more} more such lines" if more else ""
        if before >= MALFORMED_LOGGED:
            counts += f"; {self._malformed:,} so far"
        # A client's message may hold the secrets of an MCP server: do not log it.
        excerpt = f": {first.excerpt!r}" if self._is_agent else ""
        log.warning("from the %s: %s%s%s", self.name, first.problem, excerpt, counts)

    def _begin_answer(self, on_answer: OnAnswer, answer: Answer) -> asyncio.Task[None] | None:
        rest = self._call(on_answer, answer)
        if rest is None:
            return None
        return self._tasks.begin(self._wait_for((rest,)), f"{self.name} has answered")

    def _call(
        self, handle: Callable[[V], Awaitable[None] | None], what: V
    ) -> Awaitable[None] | None:
        """Call `handle`, logging an exception; return what it returns to be awaited."""
        try:
            return handle(what)
        except Exception:
            log.exception(UNHANDLED, self.name)
            return None

    async def _wait_for(self, steps: Iterable[Awaitable[object]]) -> None:
        """Await the steps one after the other. One that fails does not end the connection."""
        for step in steps:
            try:
                await step
            except Exception:
                log.exception(UNHANDLED, self.name)

    async def _to_its_end(self, handling: asyncio.Task[None]) -> None:
        """Wait for this task even if the pump is cancelled: nobody else has the answer."""
        try:
            await asyncio.wait([handling])
        except asyncio.CancelledError:
            await asyncio.wait([handling])
            raise

    # -- requests of the other side -------------------------------------------------------

    @property
    def _is_to_hold(self) -> bool:
        """True if so many requests of this agent are unanswered that we stop reading it."""
        is_much = self._holds and self._open.size > UNANSWERED
        return is_much and self._held_in_vain != self._open.answered

    async def _hold(self) -> None:
        """Stop reading an agent until enough requests are answered, or none for HOLD_SECONDS."""
        while self._is_to_hold:
            self._open.changed.clear()
            try:
                async with timeout(HOLD_SECONDS):
                    await self._open.changed.wait()
            except TimeoutError:
                log.warning("no request of the %s was answered for long; reading on", self.name)
                self._held_in_vain = self._open.answered

    def hold_no_more(self) -> None:
        """Read to the end: the other side has ended."""
        self._holds = False
        self._open.changed.set()

    def _start(self, received: protocol.RequestReceived) -> None:
        if self._ended:
            return
        if self._open.size > UNANSWERED:
            waiting = f"{self._open.size} bytes of earlier requests are still unanswered"
            error = to_wire(errors.AcpError(f"{received.method}: {waiting}; try again later"))
            self._transport.send(protocol.refusal(received.id, error))
            return
        request = Request(received, self.send, self._open)
        try:
            work = self._receiver.on_request(request)
        except Exception as exc:
            request.refuse(exc)
            return
        if work is not None:
            self.continue_with(request, work)

    def continue_with(self, request: Request, work: Awaitable[bytes | None]) -> None:
        """Let `work` answer a request of the other side, like the receiver's `on_request`."""
        task = self._tasks.begin(self._answer(request, work), f"{self.name} {request.method}")
        if task is not None:
            request.task = task
            self._running[task] = request
            task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._cancelled.discard(task)

    async def _answer(self, request: Request, work: Awaitable[bytes | None]) -> None:
        try:
            result = await work
            if result is not None:
                request.answer(result)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling() and task not in self._cancelled:
                request.abandon()
                raise
            # The peer cancelled it; or something that the handler waited for was cancelled.
            request.refuse(errors.RequestCancelledError("cancelled"))
        except Exception as exc:  # here and in `_start` a handler's failure becomes an answer
            request.refuse(exc)

    def _cancel(self, event: protocol.NotificationReceived) -> None:
        if (cancelled := json_value(event.params, _CancelParams)) is None:
            log.warning("from the %s: $/cancel_request without a requestId", self.name)
            return
        request_id = bytes(cancelled.request_id)
        for request in self._open:
            if request.id != request_id:
                continue
            if (on_cancel := request.on_cancel) is not None:
                request.refuse(errors.RequestCancelledError("cancelled"))
                on_cancel()
            elif request.task is not None and not request.task.done():
                self._cancelled.add(request.task)
                request.task.cancel()

    # -- the end --------------------------------------------------------------------------

    async def _end(self) -> None:
        self._ended = True
        self._protocol.forget()
        if self._is_agent:  # a client in a shell pipe closes its side, and still wants answers
            for task in self._running:
                task.cancel()
        while self._calls:  # one at a time: if this is cancelled, `aclose` fails the rest
            on_answer = self._calls.pop(next(iter(self._calls)))
            lost = errors.ConnectionLostError(f"the {self.name} has gone")
            handling = self._begin_answer(on_answer, lost)
            if handling is not None:
                await self._to_its_end(handling)

    def refuse_all(self, error: errors.AcpError) -> None:
        """Answer all requests of the other side with this error: they will get no other answer."""
        for request in self._open:
            request.refuse(error)

    def part(self) -> None:
        """Answer the other side nothing more, as if it had gone: it is to ask somebody else."""
        self._ended = True
        for request in self._open:
            request.abandon()

    async def finish(self, seconds: float, *, but: str) -> None:
        """Wait until the requests of the other side are answered, except those of method `but`."""
        running = [task for task, asked in self._running.items() if asked.method != but]
        if running:
            await asyncio.wait(running, timeout=seconds)

    async def aclose(self) -> None:
        """End the tasks for the other side, fail its requests, close the transport."""
        await self._end()
        await end(*self._running)
        for request in self._open:
            request.abandon()
        self._tasks.close()
        await self._transport.aclose()


class _CancelParams(msgspec.Struct, rename="camel"):
    request_id: msgspec.Raw


@asynccontextmanager
async def connected(peer: Peer) -> AsyncIterator[asyncio.Task[None]]:
    """Run `peer` for the block, which gets the task that reads; leaving it ends everything."""
    try:
        async with beside(peer.pump(), f"{peer.name} pump") as pump:
            yield pump
    finally:
        await finish(peer.aclose)
