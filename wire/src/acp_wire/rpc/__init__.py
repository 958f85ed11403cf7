"""JSON-RPC 2.0: a protocol without I/O, and the Peer that drives it over a Transport."""

from acp_wire.rpc.peer import Peer, Receiver, connected
from acp_wire.rpc.protocol import (
    MAX_MESSAGE,
    CutNotification,
    Event,
    MalformedReceived,
    NotificationReceived,
    Protocol,
    RequestReceived,
    ResponseReceived,
)
from acp_wire.rpc.transport import Transport
from acp_wire.rpc.wire_errors import WireError, to_wire, wire_error

__all__ = [
    "MAX_MESSAGE",
    "CutNotification",
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
