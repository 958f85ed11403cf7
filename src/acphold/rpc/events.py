"""Events of a connection, after the bytes have been cut into lines and decoded.

`Protocol.feed` returns these values, in wire order. Ids and params stay JSON bytes: most of them
are only passed on.
"""

from __future__ import annotations

from msgspec import Struct

from acphold.rpc.wire_errors import WireError


class RequestReceived(Struct, frozen=True, gc=False):
    """A request of the other side.

    `id` is its JSON bytes, to be given back exactly so; `params` is JSON bytes, b"" if absent.
    """

    id: bytes
    method: str
    params: bytes


class NotificationReceived(Struct, frozen=True, gc=False):
    """A notification of the other side; it gets no answer. `params` as in RequestReceived."""

    method: str
    params: bytes


class ResponseReceived(Struct, frozen=True, gc=False):
    """The answer to a request of ours: `result` as JSON bytes, or `error`."""

    id: int
    result: bytes
    error: WireError | None = None


class CutNotification(Struct, frozen=True, gc=False):
    """The parts that are kept of a notification over a limit.

    `params` has the members of its params that are complete at the beginning, and `tail` is the end
    of the line.
    """

    method: str
    problem: str
    params: dict[str, bytes]
    tail: bytes


class MalformedReceived(Struct, frozen=True, gc=False):
    """A line that is no message. `reply` is the line that is owed for it, b"" for none.

    `asked` is True if the line has an id: then the reply is waited for. `cut` is what is kept of
    it, if it is a notification.
    """

    problem: str
    excerpt: bytes
    reply: bytes = b""
    asked: bool = False
    cut: CutNotification | None = None


Event = RequestReceived | NotificationReceived | ResponseReceived | MalformedReceived
