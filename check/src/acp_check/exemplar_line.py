"""The exemplar's end of its connection: lines, and requests of both sides.

Everything a fault changes is a method of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable

import msgspec

from acp_check import bounds
from acp_check.errands import ExemplarTurn, InVainError, Memory
from acp_check.record import Json
from acp_wire.errors import INVALID_REQUEST, PARSE_ERROR, AcpError, ConnectionLostError
from acp_wire.rpc.framing import LineBuffer, Oversize
from acp_wire.rpc.transport import Transport
from acp_wire.tasks import TaskSet, timeout


class ExemplarLine:
    """The connection to one client; `turns` are those that run, by session."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        self.memory = memory
        self.turns: dict[str, ExemplarTurn] = {}
        self._transport = transport
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._tasks = TaskSet()

    async def result(self, method: str, request: Json) -> object:
        """Return the result of a request; raises RefusalError."""
        raise NotImplementedError

    async def end_servers(self) -> None:
        """End the MCP servers of all sessions."""
        raise NotImplementedError

    # -- lines ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve until the client leaves."""
        lines = LineBuffer(bounds.LINE_BYTES)
        try:
            while chunk := await self._transport.receive():
                for raw in lines.feed(chunk):
                    await self.take(raw.head if isinstance(raw, Oversize) else raw)
        except ConnectionLostError:
            pass
        finally:
            await self._tasks.aclose()
            await self.end_servers()
            await self._transport.aclose()

    async def take(self, raw: bytes) -> None:
        """Handle one line of the client."""
        try:
            message = msgspec.json.decode(raw)
        except (ValueError, RecursionError):  # of JSON, or of UTF-8
            self.send({"id": None, "error": {"code": PARSE_ERROR, "message": "not JSON"}})
            return
        match message:
            case {"method": str(), "id": _}:
                self.start(self.answer(message))
                await asyncio.sleep(0)  # requests begin in the order of arrival
            case {"method": str()}:
                self.hear(message)
            case {"result": _} | {"error": _} if "method" not in message:
                self.hear_answer(message)
            case _:
                self.send({"id": None, "error": {"code": INVALID_REQUEST, "message": "no request"}})

    def start(self, work: Awaitable[None]) -> None:
        """Run this as a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    def send(self, message: Json) -> None:
        """Save the sessions, then write a message."""
        self.memory.save()
        self.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def write(self, line: bytes) -> None:
        """Write a line."""
        self._transport.send(line + b"\n")

    async def drain(self) -> None:
        """Wait until the client reads again."""
        await self._transport.drain()

    # -- the client's messages ----------------------------------------------------------------

    def hear_answer(self, message: Json) -> None:
        """Take a response of the client."""
        id = message.get("id")
        asked = self._asked.get(id) if isinstance(id, int) else None
        if asked is not None and not asked.done():
            asked.set_result(message)

    def hear(self, message: Json) -> None:
        """Handle a notification."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message["method"] == "session/cancel":
            self.cancel(str(params.get("sessionId", "")))
        elif message["method"] == "$/cancel_request":
            self.cancel_request(params.get("requestId"))

    def cancel(self, session_id: str) -> None:
        """Cancel the turn of a session."""
        turn = self.turns.get(session_id)
        if turn is not None:
            turn.cancel()

    def cancel_request(self, request_id: object) -> None:
        """Cancel the turn that answers this request."""
        for turn in self.turns.values():
            if turn.request["id"] == request_id:
                self.cancel(turn.session_id)

    async def answer(self, request: Json) -> None:
        """Answer a request."""
        try:
            result = await self.result(request["method"], request)
        except AcpError as error:
            self.refuse(request, error.code, str(error))
        else:
            self.reply(request, result)

    def reply(self, request: Json, result: object) -> None:
        """Answer a request with a result."""
        self.send({"id": request["id"], "result": result})

    def refuse(self, request: Json, code: int, message: str) -> None:
        """Answer a request with an error."""
        self.send({"id": request["id"], "error": {"code": code, "message": message}})

    # -- to the client --------------------------------------------------------------------------

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        """Ask the client and return its result, empty for null.

        Raises InVainError for an error, and if there is no answer.
        """
        turn = self.turns.get(params.get("sessionId", ""))
        waits: set[asyncio.Timeout] = set() if turn is None else turn.waits
        is_cancelled = turn is not None and turn.cancelled
        takes_person = method in ("session/request_permission", "elicitation/create")
        seconds = bounds.PERSON_SECONDS if takes_person else bounds.ANSWER_SECONDS
        number = next(self._ids)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"id": number, "method": method, "params": params})
        try:
            limit = bounds.CANCELLED_ANSWER_SECONDS if is_cancelled else seconds
            async with timeout(limit) as wait:
                waits.add(wait)
                message = await asked
        except TimeoutError:
            raise InVainError(f"the client did not answer {method}") from None
        finally:
            waits.discard(wait)
            del self._asked[number]
        if "error" in message:
            error = message["error"]
            reason = error.get("message") if isinstance(error, dict) else error
            raise InVainError(f"{method} was refused: {' '.join(str(reason).split())}")
        result = message["result"]
        return result if isinstance(result, dict) else {}
