"""Clients over Streamable HTTP, from `initialize` to the end of their connection.

    POST     one message: 200 with the answer for `initialize`, 202 for all others
    GET      a stream of events, of the connection, or of the session that a header names
    DELETE   the end of the connection

Source: ACP RFD, Streamable HTTP & WebSocket transport; for where we are liberal see `web.streams`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from msgspec import MsgspecError

from acphold.errors import INVALID_REQUEST, PARSE_ERROR
from acphold.rpc.protocol import Protocol
from acphold.rpc.wire_errors import wire_error
from acphold.schema import INITIALIZE
from acphold.schema.slow_json import repaired
from acphold.tasks import END_SECONDS, TaskSet, end
from acphold.transports.urls import ONE_STREAM
from acphold.web.endpoints import Attending
from acphold.web.exchange import HttpExchange
from acphold.web.gate import Admitted, Gate, RefusedError
from acphold.web.sockets import Headers
from acphold.web.streams import HttpTransport, read

log = logging.getLogger(__name__)

CONNECTION_ID: Final = "acp-connection-id"
SESSION_ID: Final = "acp-session-id"
LAST_EVENT_ID: Final = "last-event-id"

CONNECTIONS: Final = 64
"""Most connections of one token."""

LOOK_SECONDS: Final = 10.0
"""Seconds between two checks for unused connections."""


class HttpClients:
    """Serves HTTP clients; an async context manager. At its end all connections end."""

    def __init__(self, agents: Attending, gate: Gate) -> None:
        self._agents = agents
        self._gate = gate
        self._transports: dict[str, HttpTransport] = {}
        self._tasks = TaskSet()

    async def __aenter__(self) -> HttpClients:
        self._looking = asyncio.create_task(self._look(), name="look at connections")
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in tuple(self._transports.values()):
            transport.end()
        await end(self._looking)
        await self._tasks.aclose(END_SECONDS)

    async def serve(self, exchange: HttpExchange, name: str, admitted: Admitted) -> None:
        """Answer one request to the endpoint of an agent; raises RefusedError."""
        match exchange.method:
            case "POST":
                await self._post(exchange, name, admitted)
            case "GET":
                await self._get(exchange, admitted)
            case "DELETE":
                self._transport(exchange, admitted).end()
                await exchange.answer(202)
            case _:
                raise RefusedError(405, "use POST, GET or DELETE")

    async def _post(self, exchange: HttpExchange, name: str, admitted: Admitted) -> None:
        if not exchange.is_json:
            raise RefusedError(415, "the content type must be application/json")
        body = await exchange.body(self._agents.limit(name))
        line = body.replace(b"\n", b" ").strip() + b"\n"
        if line.startswith(b"["):
            error = wire_error(INVALID_REQUEST, "arrays of messages are not taken")
            await exchange.answer(501, raw=Protocol.error(b"null", error))
            return
        try:
            try:
                message = read(line)
            except MsgspecError:  # half of a surrogate pair, perhaps
                line = repaired(line)
                message = read(line)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            error = wire_error(PARSE_ERROR, str(exc))
            await exchange.answer(400, raw=Protocol.error(b"null", error))
            return
        if message.method == INITIALIZE.name and CONNECTION_ID not in exchange.headers:
            transport = self._connected(name, admitted, exchange.headers)
        else:
            transport = self._transport(exchange, admitted)
        named = exchange.headers.get(SESSION_ID)
        if named is not None and message.session_id not in (None, named):
            raise RefusedError(400, f"{SESSION_ID} and params.sessionId are not the same")
        try:
            answer = await transport.post(line, message)
        except asyncio.CancelledError:
            if not transport.is_over:
                raise
            raise RefusedError(503, "the connection has ended") from None
        if answer is None:
            await exchange.answer(202)
        else:
            head = [
                (CONNECTION_ID.encode(), transport.id.encode()),
                (ONE_STREAM.encode(), b"true"),
            ]
            await exchange.answer(200, headers=head, raw=answer)

    async def _get(self, exchange: HttpExchange, admitted: Admitted) -> None:
        if "text/event-stream" not in exchange.headers.get("accept", ""):
            raise RefusedError(406, "a client of this takes text/event-stream")
        transport = self._transport(exchange, admitted)
        session_id = exchange.headers.get(SESSION_ID)
        if admitted.principal.session_id not in (None, session_id) and session_id is not None:
            raise RefusedError(404, "there is no such session")
        position = exchange.headers.get(LAST_EVENT_ID, "")
        after = int(position) if position.isdecimal() else None
        events = transport.stream(session_id, after, exchange.say_at_once)
        if events is None:
            raise RefusedError(429, "too many streams")
        await exchange.stream(events)

    def _transport(self, exchange: HttpExchange, admitted: Admitted) -> HttpTransport:
        """Return the transport of the connection that a request names; raises RefusedError."""
        id_ = exchange.headers.get(CONNECTION_ID)
        if id_ is None:
            raise RefusedError(400, f"{CONNECTION_ID} is missing; initialize first")
        transport = self._transports.get(id_)
        if transport is None or transport.is_over or transport.token != admitted.token:
            raise RefusedError(404, "there is no such connection; initialize again")
        return transport

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._transports)

    def _connected(self, name: str, admitted: Admitted, headers: Headers) -> HttpTransport:
        of_token = [it for it in self._transports.values() if it.token == admitted.token]
        if len(of_token) >= CONNECTIONS:
            raise RefusedError(429, "too many connections of this token")
        transport = HttpTransport(admitted.token, has_one_stream=ONE_STREAM in headers)
        self._transports[transport.id] = transport
        self._tasks.start(self._attend(name, transport, admitted, headers), "attend")
        return transport

    async def _attend(
        self, name: str, transport: HttpTransport, admitted: Admitted, headers: Headers
    ) -> None:
        key = self._gate.connected(admitted, lambda _: transport.end())
        log.info("%s has come for %s", admitted.principal.name, name)
        try:
            await self._agents.attend(name, transport, admitted.principal, headers)
        except Exception:  # one connection must not end the others; nobody awaits this task
            log.exception("a connection was given up")
        finally:
            self._gate.disconnected(key)
            del self._transports[transport.id]
            transport.end()

    async def _look(self) -> None:
        """End connections whose clients have left without a word."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for transport in tuple(self._transports.values()):
                if transport.is_unused(loop.time()):
                    transport.end()
