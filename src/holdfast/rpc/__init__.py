"""JSON-RPC 2.0: a protocol without I/O, and the Peer that drives it over a Transport."""

from holdfast.rpc.events import (
    Event,
    MalformedReceived,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
    WireError,
)
from holdfast.rpc.peer import Peer, Receiver, connected, to_wire
from holdfast.rpc.protocol import MAX_MESSAGE, Protocol, wire_error
from holdfast.rpc.transport import Transport

__all__ = [
    "MAX_MESSAGE",
    "Event",
    "MalformedReceived",
    "NotificationReceived",
    "Peer",
    "Protocol",
    "Receiver",
    "RequestReceived",
    "ResponseReceived",
    "Transport",
    "WireError",
    "connected",
    "to_wire",
    "wire_error",
]
