"""Requests in both directions: ours and the other side's, until they are answered.

A request of ours, which a `PendingCall` waits for:

event                               the caller                the other side
----------------------------------  ------------------------  ----------------------------
the answer arrives                  gets it, or it is raised  -
the peer goes                       ConnectionLostError,      -
                                    which counts as answer
it takes too long                   TimeoutError              gets `$/cancel_request`
the caller is cancelled             CancelledError            gets `$/cancel_request`
an answer arrives after these two   - (it is dropped)         -

A handler may answer a request of the other side at once, or keep it and answer later. OpenRequests
counts them, so that a peer that sends them without end can be held up, or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from acp_wire.errors import AcpError, ConnectionLostError
from acp_wire.rpc.protocol import Protocol, RequestReceived, refusal
from acp_wire.rpc.wire_errors import to_wire
from acp_wire.tasks import timeout

Answer = bytes | AcpError
"""The result of a call as JSON bytes; or RemoteError, or ConnectionLostError."""

SILENCE_CHECKS = 8
"""Checks for a sign of life within the time that a peer may be silent."""


class PendingCall:
    """Waits for the answer to a request of ours. The sender of the request calls `take` with the
    answer, in the inbound lane. `on_result` is called there with the result, before later messages
    are handled; its exception is raised in the waiting call."""

    def __init__(self, on_result: Callable[[bytes], object] = bool) -> None:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._on_result = on_result

    @property
    def is_awaited(self) -> bool:
        """True until there is an answer, or the caller has stopped waiting."""
        return not self._answer.done()

    def take(self, answer: Answer) -> None:
        """Deliver the answer; dropped if the caller has stopped waiting."""
        if not self.is_awaited:
            return
        try:
            if isinstance(answer, AcpError):
                raise answer
            self._on_result(answer)
        except Exception as error:
            self._answer.set_exception(error)
            self._answer.exception()  # mark it as retrieved, also if the caller is cancelled first
        else:
            self._answer.set_result(answer)

    async def answer(
        self,
        withdraw: Callable[[], object],
        seconds: float | None = None,
        heard: Callable[[], int] | None = None,
    ) -> bytes:
        """Return the result; `withdraw` is called if there is none in time, or we are cancelled.

        `seconds` is the longest wait; with `heard`, which counts messages from the peer, the
        longest silence. None: the caller has its own timeout.
        """
        try:
            if heard is None:
                async with timeout(seconds):
                    return await self._answer
            # In several steps: if our process was paused, messages that have arrived meanwhile are
            # counted before the silence is.
            silent_checks, before = 0, heard()
            while not self._answer.done():
                if silent_checks == SILENCE_CHECKS:
                    raise TimeoutError
                await asyncio.wait([self._answer], timeout=(seconds or 0) / SILENCE_CHECKS)
                silent_checks = silent_checks + 1 if before == heard() else 0
                before = heard()
            return self._answer.result()
        finally:
            if not self._answer.done() or self._answer.cancelled():
                self._answer.cancel()
                withdraw()


REQUEST_BYTES = 4 * 1024
"""Bytes that a request counts beside its params: a waiting one takes 3 KiB here alone."""


class Request:
    """A request of the other side, until it is answered.

    `params` is JSON bytes, b"" if absent. Code that keeps the request beyond the end of its handler
    sets `on_cancel`: it is called when the answer is no longer waited for. `adapt` makes of the
    answer what the other side gets.
    """

    __slots__ = ("_open", "_send", "adapt", "id", "method", "on_cancel", "params", "size", "task")

    def __init__(
        self, received: RequestReceived, send: Callable[[bytes], None], open_: OpenRequests
    ) -> None:
        self.id: bytes = received.id
        self.method: str = received.method
        self.params: bytes = received.params
        self.size: int = len(received.params) + REQUEST_BYTES
        self.on_cancel: Callable[[], None] | None = None
        self.adapt: Callable[[bytes | Exception], bytes | Exception] | None = None
        self.task: asyncio.Task[None] | None = None
        self._send = send
        self._open = open_
        open_.add(self)

    @property
    def is_answered(self) -> bool:
        """True once it is answered, or not waited for any more."""
        return self not in self._open

    def answer(self, result: bytes) -> None:
        """Send the result, JSON bytes, now: before later messages. Only once."""
        self.reply(result)

    def refuse(self, error: Exception) -> None:
        """Send an error instead of a result; does nothing if the request is answered already."""
        self.reply(error)

    def reply(self, answer: bytes | Exception) -> None:
        """Answer with a result, or refuse with an error."""
        if not self._open.remove(self):
            return
        adapt, self.adapt = self.adapt, None
        self.on_cancel = None  # these two may refer to this request: break the cycle
        if adapt is not None:
            answer = adapt(answer)
        if isinstance(answer, bytes):
            self._send(Protocol.result(self.id, answer))
        else:
            self._send(refusal(self.id, to_wire(answer)))

    def abandon(self) -> None:
        """Drop it without an answer: nobody waits for one."""
        on_cancel, self.on_cancel = self.on_cancel, None
        if self._open.remove(self) and on_cancel is not None:
            on_cancel()


async def hand_on(request: Request, ask: Callable[[str, bytes], Awaitable[bytes]]) -> bytes | None:
    """Return the answer of the client that `ask` leads to; None once that client has gone.

    A client that has gone has decided nothing, so the request stays unanswered: an error would look
    like a decision of a person. The other side sees the connection end next, and leaves all
    questions of this client to the others.
    """
    try:
        return await ask(request.method, request.params)
    except ConnectionLostError:
        request.abandon()
        return None


class OpenRequests:
    """The unanswered requests of the other side; `size` is bytes, more or less.

    `answered` is the number of answered ones; each sets `changed`.
    """

    def __init__(self) -> None:
        self.size: int = 0
        self.answered: int = 0
        self.changed: asyncio.Event = asyncio.Event()
        self._requests: set[Request] = set()

    def add(self, request: Request) -> None:
        self._requests.add(request)
        self.size += request.size

    def remove(self, request: Request) -> bool:
        """Remove an answered request; False if it was removed before."""
        if request not in self._requests:
            return False
        self._requests.remove(request)
        self.size -= request.size
        self.answered += 1
        self.changed.set()
        return True

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._requests))
