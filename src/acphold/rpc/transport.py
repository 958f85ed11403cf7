"""What a Peer needs of a connection: to read bytes, to write bytes, and to close it.

The room `transports` has what fulfils this: pipes, sockets, programs, memory. It is declared here
because `rpc` stands below that room, and may import nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


class Transport(Protocol):
    """A duplex byte stream. Chunks fall anywhere: a message may span many, a chunk hold many."""

    async def receive(self) -> bytes:
        """The next chunk as read; b"" once the other side has ended or gone, and ever after.

        While nobody receives, nothing is read: that is the back pressure on the other side.
        """

    def send(self, data: bytes) -> None:
        """Queue `data` and write what can be written now; never blocks, never raises.

        After the other side has gone the data is dropped; `drain` and `receive` tell.
        """

    @property
    def buffered(self) -> int:
        """Bytes queued here that the operating system has not taken yet."""

    async def drain(self) -> None:
        """Wait until few bytes are buffered; ConnectionLostError if the other side has gone."""

    async def aclose(self) -> None:
        """Flush for a bounded time, then close both directions; may be called twice."""


@runtime_checkable
class OfferingTransport(Transport, Protocol):
    """One that can hand over what it reads without waking the task that waits for it."""

    @property
    def is_read(self) -> bool:
        """Whether the other side may still read us, as far as is known."""

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """While somebody waits in `receive`, offer each chunk to `take`, in the step that reads it.

        What it refuses, with False, is received. What it raises is raised by `receive`.
        """
