"""A request of the other side, until it is answered, refused or abandoned.

Who handles a request may answer it at once, or keep it and answer later. Here is counted how much
waits, so that a peer that asks without end can be held up, or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from acphold.rpc.events import RequestReceived
from acphold.rpc.protocol import Protocol
from acphold.rpc.wire_errors import to_wire

REQUEST_BYTES = 4 * 1024
"""What a request counts beside its params: while one waits, it takes 3 KiB here alone."""


class Request:
    """A request of the other side, until it is answered.

    `params` is JSON bytes, b"" when absent. `on_cancel` is set by who keeps the request beyond the
    end of its handler: it is called when nobody waits for the answer any more.
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
        """Send the result, JSON bytes, now: what is sent next comes behind it. Only once."""
        if self._open.remove(self):
            self.on_cancel = None  # whom it tells knows this request: a circle is collected late
            self._send(Protocol.result(self.id, result))

    def refuse(self, error: Exception) -> None:
        """Send an error instead of a result; does nothing when it is answered already."""
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
        """Nobody waits for the answer, which is not sent."""
        on_cancel, self.on_cancel = self.on_cancel, None
        if self._open.remove(self) and on_cancel is not None:
            on_cancel()


class OpenRequests:
    """The requests of the other side that are not answered; `size` is bytes, more or less.

    `answered` is how many are, and `changed` is set by each.
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
        """It is answered; False when it was before."""
        if request not in self._requests:
            return False
        self._requests.remove(request)
        self.size -= request.size
        self.answered += 1
        self.changed.set()
        return True

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._requests))
