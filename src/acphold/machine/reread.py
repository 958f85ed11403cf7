"""A transport whose first bytes were read already, and are received once more."""

from __future__ import annotations

from acp_wire.rpc import Transport
from acp_wire.rpc.transport import OfferingTransport


def reread(transport: Transport, data: bytes) -> Transport:
    """Return the transport with these bytes, which were read from it, unread."""
    if isinstance(transport, OfferingTransport):
        return _RereadOffering(transport, data)
    return _Reread(transport, data)


class _Reread:
    def __init__(self, transport: Transport, first: bytes) -> None:
        self._transport = transport
        self._first = first
        self.send = transport.send
        self.drain = transport.drain
        self.aclose = transport.aclose

    @property
    def buffered(self) -> int:
        return self._transport.buffered

    async def receive(self) -> bytes:
        first, self._first = self._first, b""
        return first or await self._transport.receive()


class _RereadOffering(_Reread):
    """The same for a transport that delivers data in the step that reads it."""

    def __init__(self, transport: OfferingTransport, first: bytes) -> None:
        super().__init__(transport, first)
        self._offering = transport
        self.offer_to = transport.offer_to

    @property
    def is_read(self) -> bool:
        return self._offering.is_read
