"""The rules of the remote transport: a WebSocket, and Streamable HTTP, at one address.

A server may have only the first. These rules are about statuses and streams; the other rules are
about the messages, over any transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from acphold.conformance.catalogue import EXPECTED, MUST, SHOULD, Rules
from acphold.conformance.http_probe import (
    CONNECTION_ID,
    EVENTS,
    INITIALIZE,
    NOBODY,
    SESSION_ID,
    UNKNOWN,
    connection,
    http_of,
    listening,
    message_of,
)
from acphold.conformance.record import Json, line
from acphold.conformance.stage import Stage
from acphold.conformance.subject import ServerSubject
from acphold.conformance.verdicts import NotObservable, Reach, RuleSource, Violation

if TYPE_CHECKING:  # for a server alone, and of an extra: what needs it imports it late
    from websockets.asyncio.client import ClientConnection

RULES = Rules(only=Reach.SERVER)

RFD = "RFD: Streamable HTTP & WebSocket Transport"
ROUTING = RuleSource(RFD, "Unified Endpoint Routing")
VALIDATION = RuleSource(RFD, "Content Negotiation and Validation")
FLOW = RuleSource(RFD, "Streamable HTTP Message Flow")
UPGRADE = RuleSource(RFD, "Connection Establishment (GET with Upgrade)")
MESSAGING = RuleSource(RFD, "Bidirectional Messaging")


@RULES.case("http.initialize", MUST, FLOW)
async def initialize(stage: Stage) -> None:
    """`initialize` is answered with 200, the answer as JSON, and `Acp-Connection-Id`."""
    async with http_of(stage) as http:
        found = http.hello
        found.expect(200)
        if not found.headers.get("content-type", "").startswith("application/json"):
            raise Violation("the answer is not application/json", *found.lines)
        if not http.connection:
            raise Violation(f"the header {CONNECTION_ID} is missing", *found.lines)
        answer = line(1, 0.0, "agent", found.body)
        if answer.message.get("id") != 1 or "result" not in answer.message:
            raise Violation("the body is not the answer", *found.lines)


@RULES.case("http.accepted", MUST, FLOW)
async def accepted(stage: Stage) -> None:
    """Any other message is answered with 202 and nothing else; its answer comes on the connection's
    stream.
    """
    async with connection(stage) as http, listening(http) as streams:
        id, found = await http.post("check/no_such_method", {})
        found.expect(202)
        if found.body.strip():
            raise Violation("the answer to the POST is not empty", *found.lines)
        if await streams.answer(id) is None:
            raise Violation("its answer does not come", *found.lines)


@RULES.case("http.connection-ids", MUST, FLOW)
async def connection_ids(stage: Stage) -> None:
    """Each connection has an `Acp-Connection-Id` of its own."""
    async with connection(stage) as http, http_of(stage) as other:
        if http.connection == other.connection:
            raise Violation("two connections have the same", *http.hello.lines, *other.hello.lines)


@RULES.case("http.own-answers", MUST, FLOW)
async def own_answers(stage: Stage) -> None:
    """Connections do not mix: each gets its own answers, whatever ids others use."""
    async with connection(stage) as http, http_of(stage) as other:
        if http.connection == other.connection:
            raise NotObservable("two connections have the same id")
        async with listening(http) as streams, listening(other) as others:
            for one in (http, other):
                await one.post("check/no_such_method", {})
            id, found = await other.post("check/no_such_method", {})
            if await others.answer(id) is None or await streams.answer(id - 1) is None:
                raise NotObservable("requests are not answered", *found.lines)
            if streams.answers(id) or len(streams.answers(id - 1)) > 1:
                raise Violation("an answer came on the stream of another connection", *found.lines)


@RULES.case("http.http2", SHOULD, ROUTING)
async def http2(stage: Stage) -> None:
    """The server speaks HTTP/2, or a proxy in front of it does."""
    async with connection(stage) as http:
        if http.hello.version != "HTTP/2":
            raise NotObservable(f"it speaks {http.hello.version} here; a proxy may speak HTTP/2")


@RULES.case("http.media-types", EXPECTED, VALIDATION)
async def media_types(stage: Stage) -> None:
    """`application/json` may have a charset, and `text/event-stream` stand among others."""
    async with connection(stage) as http:
        sent = {**http.connection, "Content-Type": "application/json; charset=utf-8"}
        (await http.ask("POST", sent, UNKNOWN)).expect(202)
        sent = {**http.connection, "Accept": "application/json, text/event-stream"}
        (await http.ask("GET", sent)).expect(200)


@RULES.case("http.not-json", EXPECTED, VALIDATION)
async def not_json(stage: Stage) -> None:
    """A body that is not JSON is answered with 400, or accepted and reported on the stream."""
    async with connection(stage) as http:
        (await http.ask("POST", http.connection, b"{check")).expect(400, 422, 202)


@RULES.case("http.unknown-session", SHOULD, ROUTING)
async def unknown_session(stage: Stage) -> None:
    """A GET with an unknown `Acp-Session-Id` is answered with 404."""
    async with connection(stage) as http:
        sent = EVENTS | http.connection | {SESSION_ID: "check-no-such-session"}
        (await http.ask("GET", sent)).expect(404)


@RULES.case("http.content-type", MUST, VALIDATION)
async def content_type(stage: Stage) -> None:
    """A POST that is not `application/json` is answered with 415."""
    async with connection(stage) as http:
        sent = {**http.connection, "Content-Type": "text/plain"}
        (await http.ask("POST", sent, UNKNOWN)).expect(415)


@RULES.case("http.accept", MUST, VALIDATION)
async def accept(stage: Stage) -> None:
    """A GET that does not accept `text/event-stream` is answered with 406."""
    async with connection(stage) as http:
        sent = {**http.connection, "Accept": "application/json"}
        (await http.ask("GET", sent)).expect(406)


@RULES.case("http.no-connection", MUST, ROUTING)
async def no_connection(stage: Stage) -> None:
    """A request without `Acp-Connection-Id` is answered with 400."""
    async with connection(stage) as http:
        (await http.ask("POST", body=UNKNOWN)).expect(400)
        (await http.ask("GET", EVENTS)).expect(400)
        (await http.ask("DELETE")).expect(400)


@RULES.case("http.unknown-connection", MUST, ROUTING)
async def unknown_connection(stage: Stage) -> None:
    """A request with an unknown `Acp-Connection-Id` is answered with 404."""
    async with connection(stage) as http:
        (await http.ask("POST", NOBODY, UNKNOWN)).expect(404)
        (await http.ask("GET", {**NOBODY, **EVENTS})).expect(404)


@RULES.case("http.batch", MUST, VALIDATION)
async def batch(stage: Stage) -> None:
    """An array of messages is answered with 501."""
    async with connection(stage) as http:
        several = b"[%b]" % message_of("check/no_such_method", {}, id=2)
        (await http.ask("POST", http.connection, several)).expect(501)


@RULES.case("http.delete", MUST, FLOW)
async def delete(stage: Stage) -> None:
    """DELETE is answered with 202 and ends the connection, its stream, and no other connection."""
    async with connection(stage) as http, http_of(stage) as other:
        async with listening(http) as streams:
            (await http.ask("DELETE", http.connection)).expect(202)
            if not await streams.until(lambda: "" in streams.ended):
                raise Violation("the stream goes on")
        (await http.ask("POST", http.connection, UNKNOWN)).expect(404)
        if other.connection != http.connection:
            (await other.ask("POST", other.connection, UNKNOWN)).expect(202)


# -- WebSocket ------------------------------------------------------------------------------


@asynccontextmanager
async def _socket(stage: Stage) -> AsyncIterator[ClientConnection]:
    subject = stage.subject
    assert isinstance(subject, ServerSubject)
    from websockets.asyncio import client
    from websockets.exceptions import WebSocketException

    route = subject.new_route()
    try:
        async with client.connect(
            route.socket_url,
            additional_headers=route.headers(),
            ssl=route.context(),
            open_timeout=stage.settings.timeout,
        ) as found:
            yield found
    except (OSError, WebSocketException) as error:
        raise Violation(f"the WebSocket was refused, or lost: {error}") from None


@RULES.case("websocket.connection-id", MUST, UPGRADE)
async def connection_id(stage: Stage) -> None:
    """The answer to the upgrade has `Acp-Connection-Id`."""
    async with _socket(stage) as socket:
        assert socket.response is not None
        if not socket.response.headers.get(CONNECTION_ID):
            raise Violation(f"the header {CONNECTION_ID} is missing")


@RULES.case("websocket.connection-ids", MUST, UPGRADE)
async def socket_ids(stage: Stage) -> None:
    """Each WebSocket has an id of its own."""
    async with _socket(stage) as socket, _socket(stage) as other:
        assert socket.response is not None
        assert other.response is not None
        ids = [it.headers.get(CONNECTION_ID) for it in (socket.response, other.response)]
        if None in ids:
            raise NotObservable(f"the header {CONNECTION_ID} is missing")
        if ids[0] == ids[1]:
            raise Violation(f"two have {ids[0]!r}")


@RULES.case("websocket.text", MUST, MESSAGING)
async def text_frames(stage: Stage) -> None:
    """Each message is one text frame."""
    async with _socket(stage) as socket:
        for id, method, params in (
            (1, "initialize", INITIALIZE),
            (2, "session/new", stage.params()),
            (3, "check/no_such_method", {}),
        ):
            await socket.send(message_of(method, params, id).decode())
            try:
                async with asyncio.timeout(stage.settings.timeout):
                    while (await _frame(socket)).get("id") != id:
                        pass
            except TimeoutError:
                raise NotObservable(f"{method} was not answered") from None


async def _frame(socket: ClientConnection) -> Json:
    """Return the next message; raises Violation if the frame is none."""
    said = await socket.recv()
    told = line(1, 0.0, "agent", _bytes(said))
    if not isinstance(said, str):
        raise Violation("it came in a binary frame", told)
    if told.problem:
        raise Violation(f"a frame is no message: {told.problem}", told)
    return told.message


@RULES.case("websocket.binary", MUST, MESSAGING)
async def binary(stage: Stage) -> None:
    """Binary frames are ignored."""
    async with _socket(stage) as socket:
        await socket.send(b"\x00check")
        await socket.send(message_of("initialize", INITIALIZE, IN_BINARY))
        asked = message_of("initialize", INITIALIZE)
        await socket.send(asked.decode())
        loop, is_answered = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(stage.settings.timeout) as wait:
                while True:
                    told = line(1, 0.0, "agent", _bytes(await socket.recv()))
                    answered = told.message.get("id")
                    if answered == IN_BINARY:
                        raise Violation("a request in a binary frame was answered", told)
                    if answered == 1:
                        is_answered = True
                        wait.reschedule(loop.time() + OVERTAKEN_SECONDS)
        except TimeoutError:
            if not is_answered:
                why = "`initialize` was not answered behind it"
                raise Violation(why, line(0, 0.0, "client", asked)) from None


OVERTAKEN_SECONDS: Final = 0.5
"""Requests are answered in any order: the answer to an earlier one may still come this long."""

IN_BINARY: Final = "in a binary frame"
"""The id of a request that nobody should read."""


def _bytes(said: str | bytes) -> bytes:
    return said.encode() if isinstance(said, str) else said
