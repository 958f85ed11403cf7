"""Our end of Streamable HTTP at a server that does all by the book, and in the worst order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from acp_wire.errors import ConnectionLostError, RemoteRefusalError
from acp_wire.rpc import Transport
from acp_wire.transports import http_client
from acp_wire.transports.http_client import connect
from acp_wire.transports.route import Route

STREAM = "Content-Type: text/event-stream\r\n"


class Came(NamedTuple):
    """A request, as the server got it."""

    method: str
    headers: dict[str, str]
    message: dict[str, Any]


class Book:
    """The server. `status` is the status of its first answer. Unless it `attaches`, it does not
    know sessions that were loaded, like a server on the Python SDK."""

    def __init__(self) -> None:
        self.came: list[Came] = []
        self.status = "400 Bad Request"
        self.attaches = True
        self.answers_strange = False
        self.streams: dict[str, asyncio.StreamWriter] = {}
        self.port = 0

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, message = head[0].split()[0], json.loads(body or b"{}")
        self.came.append(Came(method, headers, message))
        match method, message.get("method") if isinstance(message, dict) else None:
            case "GET", _ if "acp-connection-id" not in headers:
                self.answer(writer, self.status, "Set-Cookie: place=here\r\n")
            case _ if not self.attaches and "acp-session-id" in headers:
                self.answer(writer, "404 Not Found")
            case "GET", _:
                self.answer(writer, "200 OK", STREAM)
                session_id = headers.get("acp-session-id", "")
                self.streams[session_id] = writer
                if session_id == "n":  # a new session gets updates at once
                    for number in range(3):
                        params = {"sessionId": "n", "n": number}
                        self.say("n", {"method": "session/update", "params": params})
                return  # it stays open
            case "POST", "initialize":
                told = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}})
                self.answer(writer, "200 OK", "Acp-Connection-Id: one\r\n", told)
            case "POST", "session/load":
                update = {"method": "session/update", "params": {"sessionId": "s", "n": 1}}
                if not self.attaches:
                    self.say("", update)
                # The answer overtakes the replay.
                self.say("", {"id": message["id"], "result": {}})
                if not self.attaches:
                    self.answer(writer, "202 Accepted")
                    writer.close()
                    return
                self.say("s", update)
                self.say("s", {"id": 7, "method": "ask", "params": {"sessionId": "s"}})
                self.answer(writer, "202 Accepted")
            case "POST", "session/new":
                self.say("", {"id": message["id"], "result": {"sessionId": "n"}})
                self.answer(writer, "202 Accepted")
            case "POST", "session/prompt" if self.answers_strange:
                session_id = message["params"]["sessionId"]
                error = {"code": -32002, "message": "no such session"}
                self.say(session_id, {"id": message["id"], "error": error})
                self.answer(writer, "202 Accepted")
            case "POST", "too/long":
                self.answer(writer, "413 Content Too Large")
            case _ if not isinstance(message, dict):
                error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}
                self.answer(writer, "501 Not Implemented", "", json.dumps(error))
            case _:
                self.answer(writer, "202 Accepted")
        writer.close()

    def answer(
        self, writer: asyncio.StreamWriter, status: str, headers: str = "", body: str = ""
    ) -> None:
        length = "" if headers == STREAM else f"Content-Length: {len(body)}\r\n"
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}{length}\r\n"
        writer.write((head + body).encode())

    def say(self, session_id: str, message: dict[str, Any]) -> None:
        event = f": here\n\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"
        self.streams[session_id].write(event.encode())


@asynccontextmanager
async def book() -> AsyncIterator[Book]:
    made = Book()
    async with await asyncio.start_server(made.attend, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
        for writer in made.streams.values():
            writer.close()


def route_to(server: Book) -> Route:
    url = f"http://127.0.0.1:{server.port}/acp"
    return Route(url, seconds=10, limit=1 << 20, token="secret")


@asynccontextmanager
async def met(**server_is: bool) -> AsyncIterator[tuple[Book, Transport]]:
    """A server, and a connection to it that is initialized."""
    async with book() as server:
        for name, value in server_is.items():
            setattr(server, name, value)
        transport = await connect(route_to(server))
        say(transport, id=1, method="initialize", params={})
        assert (await heard(transport))["id"] == 1
        yield server, transport
        await transport.aclose()


def say(transport: Transport, **message: Any) -> None:
    transport.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def heard(transport: Transport) -> dict[str, Any]:
    async with asyncio.timeout(30):
        message: dict[str, Any] = json.loads(await transport.receive())
        return message


async def test_a_session_is_loaded_asked_in_and_left_as_the_book_has_it() -> None:
    async with met() as (server, transport):
        say(transport, id=2, method="session/load", params={"sessionId": "s"})
        assert (await heard(transport))["params"]["n"] == 1
        assert (await heard(transport))["method"] == "ask"
        assert (await heard(transport))["id"] == 2  # nothing of the replay is behind it
        say(transport, id=7, result={"outcome": "yes"})
        say(transport, id=3, method="too/long", params={"sessionId": "s"})
        refused = await heard(transport)
        assert refused["id"] == 3
        assert "HTTP 413" in refused["error"]["message"]
    assert all(it.headers["authorization"] == "Bearer secret" for it in server.came)
    assert all(it.headers["cookie"] == "place=here" for it in server.came[1:])
    assert all(it.headers["acp-connection-id"] == "one" for it in server.came[2:])
    told = [
        (
            it.method,
            it.message.get("method") or it.message.get("id"),
            it.headers.get("acp-session-id"),
        )
        for it in server.came
    ]
    assert told == [
        ("GET", None, None),
        ("POST", "initialize", None),
        ("GET", None, None),
        ("GET", None, "s"),
        ("POST", "session/load", "s"),
        ("POST", 7, "s"),
        ("POST", "too/long", "s"),
        ("DELETE", None, None),
    ]


async def test_what_is_no_message_is_answered_by_the_server_and_ends_nothing() -> None:
    async with met() as (_, transport):
        transport.send(b"[1, 2]\n")
        assert (await heard(transport))["error"]["code"] == -32600
        say(transport, id=3, method="too/long", params={"sessionId": "s"})
        assert (await heard(transport))["id"] == 3


async def test_a_server_that_knows_no_loaded_session_replays_it_and_refuses_the_rest() -> None:
    async with met(attaches=False) as (_, transport):
        say(transport, id=2, method="session/load", params={"sessionId": "s"})
        assert (await heard(transport))["params"]["n"] == 1
        assert (await heard(transport))["id"] == 2
        say(transport, id=3, method="session/prompt", params={"sessionId": "s"})
        refused = await heard(transport)
        assert refused["id"] == 3
        assert "HTTP 404" in refused["error"]["message"]


async def test_a_loaded_session_that_is_never_quiet_is_open_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "REPLAY_SECONDS", 0.3)
    async with met() as (server, transport), asyncio.timeout(30):
        say(transport, id=2, method="session/load", params={"sessionId": "s"})
        while (await heard(transport)).get("id") != 2:
            server.say("s", {"method": "session/update", "params": {"sessionId": "s", "n": 2}})


async def test_what_a_new_session_says_comes_behind_the_answer_that_names_it() -> None:
    for _ in range(10):
        async with met() as (_, transport):
            say(transport, id=2, method="session/new", params={})
            assert (await heard(transport))["result"]["sessionId"] == "n"
            assert [(await heard(transport))["params"]["n"] for _ in range(3)] == [0, 1, 2]


async def test_a_prompt_to_an_unknown_session_is_answered_and_ends_nothing() -> None:
    async with met(answers_strange=True) as (server, transport):
        say(transport, id=2, method="session/prompt", params={"sessionId": "nobody's"})
        assert (await heard(transport))["error"]["code"] == -32002
        server.streams["nobody's"].close()
        say(transport, id=3, method="session/load", params={"sessionId": "s"})
        assert (await heard(transport))["params"]["n"] == 1


async def test_a_stream_that_ends_ends_the_connection() -> None:
    for ends in ("", "s"):
        async with met() as (server, transport):
            say(transport, id=2, method="session/load", params={"sessionId": "s"})
            for _ in range(3):
                await heard(transport)
            server.streams[ends].close()
            async with asyncio.timeout(30):
                assert await transport.receive() == b""


async def test_who_is_not_let_in_is_told_so_before_anything_is_sent() -> None:
    async with book() as server:
        server.status = "401 Unauthorized"
        with pytest.raises(RemoteRefusalError, match="it does not accept our token"):
            await connect(route_to(server))
        server.status = "502 Bad Gateway"
        with pytest.raises(ConnectionLostError, match="HTTP 502"):
            await connect(route_to(server))
