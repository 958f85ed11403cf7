"""The client of a session, for an agent of the library: its capabilities, and requests to it.

Source: spec v1, overview; extensibility.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from acphold.agents.interface import AgentRequest, Notified
from acphold.errors import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ConnectionLostError,
    InvalidParamsError,
    MethodNotFoundError,
    RemoteError,
)
from acphold.schema import Method, decode, encode

if TYPE_CHECKING:
    from acphold.agents.interface import AgentListener
    from acphold.library.outbox import Outbox
    from acphold.schema import ClientCapabilities, Implementation

P = TypeVar("P")
R = TypeVar("R")

UNANSWERED = (MethodNotFoundError, ConnectionLostError)
"""Raised by `ask` when no client can answer now: do it yourself then."""


class ClientSide:
    """The client on the other end of session `session_id`.

    The client sent `capabilities` and `info` with `initialize`. A request leaves after everything
    that the author said before it, which is in `outbox`.
    """

    def __init__(
        self,
        session_id: str,
        listener: AgentListener,
        capabilities: ClientCapabilities,
        info: Implementation | None,
        outbox: Outbox,
    ) -> None:
        self.session_id = session_id
        self.capabilities = capabilities
        self.info = info
        self._listener = listener
        self._outbox = outbox

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Return the client's answer.

        Raises RemoteError when the client refuses or the answer cannot be read, and one of
        UNANSWERED if no client can answer.
        """
        raw = await self.ask_raw(method.name, encode(params))
        try:
            return decode(method.result, b"{}" if raw == b"null" else raw).value
        except InvalidParamsError as exc:
            said = f"the client's answer to {method.name} cannot be read: {exc}"
            raise RemoteError(INTERNAL_ERROR, said) from exc

    async def ask_raw(self, method: str, params: bytes) -> bytes:
        """Like `ask`, with JSON in and out."""
        await self._outbox.leave()
        try:
            return await self._listener.answer(AgentRequest(method, params))
        except RemoteError as exc:
            if exc.code == METHOD_NOT_FOUND:
                raise MethodNotFoundError(method) from exc
            raise

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification other than an update."""
        await self._outbox.leave()
        await self._listener.hear(Notified(method, params))
