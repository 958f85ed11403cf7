"""The two streams of messages that the SDK wants, over ACP. UNSTABLE, see `mcp.channel`.

Needs the SDK: imported only after `loading.load_sdk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from acphold.mcp.channel import Channel, InnerError
from acphold.mcp.faults import FaultError, LostError
from acphold.mcp.guarding import MARK, REFUSED
from acphold.mcp.servers import McpServerAcp
from acphold.mcp.streams import Arriving, Leaving, Reading, Wire, Writing, pumped


class AcpWire(Wire):
    """Each request is one of ACP, which a task waits for; a client that fails one ends it all.

    The draft has no message for a notification to the server, nor for a request of it. So only
    `notifications/cancelled` has an effect, which is to cancel the request over ACP.
    """

    def __init__(self, server: McpServerAcp, channel: Channel, over: asyncio.Event) -> None:
        super().__init__(over)
        self._server = server
        self._channel = channel
        self._asking: dict[object, asyncio.Task[None]] = {}
        # What came, in the order of the wire: a report stays before the answer it belongs to.
        self._came: asyncio.Queue[SessionMessage] = asyncio.Queue()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Reading, Writing]]:
        try:
            async with pumped(self._read, self._write) as streams:
                yield streams
        finally:
            for task in (asking := tuple(self._asking.values())):
                task.cancel()
            if asking:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(asking)

    async def _read(self, arriving: Arriving) -> None:
        while True:
            await arriving.send(await self._came.get())

    async def _write(self, leaving: Leaving) -> None:
        async for sent in leaving:
            match sent.message:
                case JSONRPCRequest() as request:
                    task = asyncio.create_task(self._ask(request), name=f"mcp {request.method}")
                    self._asking[request.id] = task
                case JSONRPCNotification(method="notifications/cancelled", params=dict() as told):
                    if (asked := self._asking.get(told.get("requestId"))) is not None:
                        asked.cancel()

    async def _ask(self, request: JSONRPCRequest) -> None:
        try:
            outcome = await self._channel.request(
                self._server.server_id, request.method, request.params, self._hear
            )
        except LostError as exc:
            self._break(str(exc))
        except FaultError as exc:
            # Not the server's own word: MARK tells that to whoever waits.
            fault = ErrorData(code=INTERNAL_ERROR, message=str(exc), data={MARK: REFUSED})
            self._take(JSONRPCError(jsonrpc="2.0", id=request.id, error=fault))
        else:
            self._take(_answer(request, outcome))
        finally:
            del self._asking[request.id]

    def _hear(self, method: str, params: dict[str, object] | None) -> None:
        if params is None:
            self._take(JSONRPCNotification(jsonrpc="2.0", method=method))
        else:
            self._take(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))

    def _take(self, message: JSONRPCResponse | JSONRPCError | JSONRPCNotification) -> None:
        self._came.put_nowait(SessionMessage(message))


def _answer(
    request: JSONRPCRequest, outcome: dict[str, object] | InnerError
) -> JSONRPCResponse | JSONRPCError:
    if isinstance(outcome, InnerError):
        error = ErrorData(code=outcome.code, message=outcome.message, data=outcome.data)
        return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
    return JSONRPCResponse(jsonrpc="2.0", id=request.id, result=outcome)
