"""The client of a session, for an agent of the library: what it can do, and asking it.

Source: spec v1, overview; extensibility.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from acphold.agents.interface import Asked, Notified
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
    from acphold.agents.interface import Listener
    from acphold.library.outbox import Outbox
    from acphold.schema import ClientCapabilities, Implementation

P = TypeVar("P")
R = TypeVar("R")

UNANSWERED = (MethodNotFoundError, ConnectionLostError)
"""What `ask` raises when there is no client now that can answer: a reason to do it oneself."""


class ClientSide:
    """Whoever is on the other end of session `session_id`.

    `capabilities` and `info` are what the client said of itself at `initialize`. What leaves here
    leaves behind what the author said in the session before, which is in `outbox`.
    """

    def __init__(
        self,
        session_id: str,
        listener: Listener,
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
        """The client's answer.

        Raises RemoteError when it refuses or cannot be read, UNANSWERED if no client can.
        """
        raw = await self.ask_raw(method.name, encode(params))
        try:
            return decode(method.result, b"{}" if raw == b"null" else raw).value
        except InvalidParamsError as exc:
            said = f"the client's answer to {method.name} cannot be read: {exc}"
            raise RemoteError(INTERNAL_ERROR, said) from exc

    async def ask_raw(self, method: str, params: bytes) -> bytes:
        """Like `ask`, JSON in and out."""
        await self._outbox.leave()
        try:
            return await self._listener.answer(Asked(method, params))
        except RemoteError as exc:
            if exc.code == METHOD_NOT_FOUND:
                raise MethodNotFoundError(method) from exc
            raise

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification that is no update."""
        await self._outbox.leave()
        await self._listener.hear(Notified(method, params))
