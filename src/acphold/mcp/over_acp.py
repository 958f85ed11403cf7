"""MCP over ACP, on the agent's side: requests to servers that the client provides itself.

UNSTABLE: from a draft in which a request is `mcp/message` to the client, with the client's
`serverId` and our `requestId`, and the server's messages meanwhile are notifications of the same
name and ids. Source: ACP v1, unstable schema, MessageMcpRequest, MessageMcpResponse and
MessageMcpNotification.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UNSET, Struct, UnsetType

from acphold.errors import METHOD_NOT_FOUND, AcpholdError
from acphold.mcp.faults import FaultError, LostError
from acphold.mcp.servers import MCP_MESSAGE

Ask = Callable[[str, bytes], Awaitable[bytes]]
"""Sends an ACP request to the client; params and result are JSON bytes; raises AcpholdError."""

Hear = Callable[[str, dict[str, object] | None], None]
"""Called with the method and params of a server's message during one request."""


class InnerError(Struct):
    """A server's MCP error, unchanged."""

    code: int
    message: str
    data: object = None


class Channel:
    """The way to all servers of one client; every request on it has its own id."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._ids = itertools.count(1)
        self._active: dict[tuple[str, str], Hear] = {}

    async def request(
        self, server_id: str, method: str, params: dict[str, object] | None, hear: Hear
    ) -> dict[str, object] | InnerError:
        """Return the server's answer; `hear` gets its earlier messages, in order.

        Cancelling it cancels the request at the client. Raises LostError if the client cannot pass
        it on, FaultError if the answer is not MCP.
        """
        request_id = str(next(self._ids))
        message: dict[str, object] = {
            "serverId": server_id,
            "requestId": request_id,
            "method": method,
        }
        if params is not None:
            message["params"] = params
        self._active[server_id, request_id] = hear
        try:
            raw = await self._ask(MCP_MESSAGE, msgspec.json.encode(message))
        except AcpholdError as exc:
            words = f"does not pass `{MCP_MESSAGE}` on: {exc}"
            if exc.code == METHOD_NOT_FOUND:
                words = f"does not know `{MCP_MESSAGE}`"
            raise LostError(f"its client {words}") from None
        finally:
            del self._active[server_id, request_id]
        try:
            answer = msgspec.json.decode(raw, type=_AcpAnswer)
            if answer.result is not UNSET:  # preferred if both are present
                return msgspec.json.decode(answer.result, type=dict[str, object])
            if answer.error is not UNSET:
                return msgspec.json.decode(answer.error, type=InnerError)
        except msgspec.MsgspecError as exc:
            raise FaultError(f"its answer is not MCP: {exc}") from None
        raise FaultError(f"its client answered `{MCP_MESSAGE}` with neither `result` nor `error`")

    def hear(self, params: bytes) -> bool:
        """Take an `mcp/message` notification; return True if a request is waiting for it."""
        try:
            said = msgspec.json.decode(params or b"{}", type=_McpNotification)
        except msgspec.MsgspecError:
            return False
        hear = self._active.get((said.server_id, said.request_id))
        if hear is None:
            return False  # it came after the answer, or matches no request of ours
        hear(said.method, said.params)
        return True


class _McpNotification(Struct, rename="camel"):
    server_id: str
    request_id: str
    method: str
    params: dict[str, object] | None = None


class _AcpAnswer(Struct):
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET
