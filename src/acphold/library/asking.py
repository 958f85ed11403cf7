"""What an agent asks of its client, with types on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from acphold.errors import (
    METHOD_NOT_FOUND,
    ConnectionLostError,
    MethodNotFoundError,
    RemoteError,
)
from acphold.schema import Method, decode, encode

if TYPE_CHECKING:
    from acphold.agents.interface import Listener

P = TypeVar("P")
R = TypeVar("R")

UNANSWERED = (MethodNotFoundError, ConnectionLostError)
"""What `ask` raises when there is no client now that can answer: a reason to do it oneself."""


async def ask(listener: Listener, method: Method[P, R], params: P) -> R:
    """The client's answer. Raises RemoteError when it refuses, one of UNANSWERED if none can."""
    try:
        raw = await listener.on_request(method.name, encode(params))
    except RemoteError as exc:
        if exc.code == METHOD_NOT_FOUND:
            raise MethodNotFoundError(method.name) from exc
        raise
    return decode(method.result, b"{}" if raw == b"null" else raw).value
