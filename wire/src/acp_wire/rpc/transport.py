"""The parts of a connection that a Peer needs: to read bytes, to write bytes, and to close it.

The room `transports` implements it: pipes, sockets, programs, memory. It is declared here because
`rpc` is below that room, and must not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


class Transport(Protocol):
    """A duplex byte stream. Chunks fall anywhere: a message may span many, a chunk hold many."""

    async def receive(self) -> bytes:
        """Return the next chunk as read; b"" once the other side has ended or gone, and ever after.

        Nothing is read while no call waits: that is the back pressure on the other side.
        """

    def send(self, data: bytes) -> None:
        """Queue `data` and write what can be written now; never blocks, never raises. After the
        other side has gone it is dropped.
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
    """A transport that can hand over its reads without waking the task in `receive`."""

    @property
    def is_read(self) -> bool:
        """True if the other side may still read us, as far as is known."""

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        """While a task waits in `receive`, offer each chunk to `take`, in the step that reads it.

        If it returns False, the chunk is received. Its exceptions are raised by `receive`.
        """
