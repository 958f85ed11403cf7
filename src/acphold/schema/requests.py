"""What belongs to no session: ids of requests, errors in answers, taking a request back."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET

from acphold.schema.shapes import Extensible, Known, OrDefault, Shape

RequestId: TypeAlias = int | str | None
"""The id of a JSON-RPC request, chosen by its sender."""

ErrorCode: TypeAlias = Annotated[
    int,
    Known((-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002)),
]
"""A JSON-RPC error code; ACP gives these a meaning, see `acphold.errors`."""


class WireError(Shape, frozen=True):
    """The `error` of a JSON-RPC response; `data` is any JSON, UNSET when not sent."""

    code: ErrorCode
    message: str
    data: OrDefault[object] = UNSET


class CancelRequestNotification(Extensible, frozen=True):
    """`$/cancel_request`: the sender of a request no longer needs its answer."""

    request_id: RequestId
