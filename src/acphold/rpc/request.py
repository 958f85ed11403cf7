"""A request of the other side, until it is answered, refused or abandoned.

A handler may answer a request at once, or keep it and answer later. The waiting requests are
counted here, so that a peer that sends them without end can be held up, or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from acphold.errors import ConnectionLostError
from acphold.rpc.events import RequestReceived
from acphold.rpc.protocol import Protocol
from acphold.rpc.wire_errors import to_wire

REQUEST_BYTES = 4 * 1024
"""Bytes that a request counts beside its params: a waiting one takes 3 KiB here alone."""


class Request:
    """A request of the other side, until it is answered.

    `params` is JSON bytes, b"" if absent. Code that keeps the request beyond the end of its handler
    sets `on_cancel`: it is called when the answer is no longer waited for.
    """

    __slots__ = ("_open", "_send", "id", "method", "on_cancel", "params", "size", "task")

    def __init__(
        self, received: RequestReceived, send: Callable[[bytes], None], open_: OpenRequests
    ) -> None:
        self.id: bytes = received.id
        self.method: str = received.method
        self.params: bytes = received.params
        self.size: int = len(received.params) + REQUEST_BYTES
        self.on_cancel: Callable[[], None] | None = None
        self.task: asyncio.Task[None] | None = None
        self._send = send
        self._open = open_
        open_.add(self)

    def answer(self, result: bytes) -> None:
        """Send the result, JSON bytes, now: later messages come behind it. Only once."""
        if self._open.remove(self):
            self.on_cancel = None  # it refers to this request: break the cycle
            self._send(Protocol.result(self.id, result))

    def refuse(self, error: Exception) -> None:
        """Send an error instead of a result; does nothing if it is answered already."""
        if self._open.remove(self):
            self.on_cancel = None
            self._send(Protocol.error(self.id, to_wire(error)))

    def reply(self, answer: bytes | Exception) -> None:
        """Answer with a result, or refuse with an error."""
        if isinstance(answer, bytes):
            self.answer(answer)
        else:
            self.refuse(answer)

    def abandon(self) -> None:
        """Drop it without an answer: nobody waits for one."""
        on_cancel, self.on_cancel = self.on_cancel, None
        if self._open.remove(self) and on_cancel is not None:
            on_cancel()


async def hand_on(request: Request, ask: Callable[[str, bytes], Awaitable[bytes]]) -> bytes | None:
    """Return the answer of the client that `ask` leads to; None once that client has gone.

    A client that has gone has refused nothing, so nobody answers for it: an error would stand for a
    decision that no person has made. The other side sees the connection end next. That withdraws
    all of this client's questions, and leaves them to the others.
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

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._requests))
