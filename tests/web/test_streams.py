"""Streamable HTTP: the status of each answer, and the messages of each stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from acp_wire.rpc import Transport
from acphold.live.server.principals import THIS_USER, Principal
from acphold.web.connections import Receive, Scope, Send
from acphold.web.exchange import HttpExchange, RefusedError
from acphold.web.gate import Admitted
from acphold.web.http_clients import HttpClients
from tests.web.conftest import Served
from tests.web.in_process import Answer, answered, site

Json = dict[str, Any]


class HttpClient:
    """A client that is nobody's library: it posts, and reads streams."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.connection: dict[str, str] = {}
        self._ids = iter(range(100))

    async def post(self, method: str, params: Json, **headers: str) -> httpx2.Response:
        said = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        sent = {**self.connection, **{name.replace("_", "-"): it for name, it in headers.items()}}
        return await self.http.post("/acp", json=said, headers=sent)

    async def initialize(self) -> Json:
        answer = await self.post("initialize", {"protocolVersion": 1})
        assert answer.status_code == 200
        self.connection = {"Acp-Connection-Id": answer.headers["acp-connection-id"]}
        found: Json = answer.json()
        return found

    @asynccontextmanager
    async def stream(self, **headers: str) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
        """Events of a stream: the id, and the message, {} for none."""
        sent = {**self.connection, "Accept": "text/event-stream"}
        sent |= {name.replace("_", "-"): it for name, it in headers.items()}
        async with self.http.stream("GET", "/acp", headers=sent) as response:
            assert response.status_code == 200, await response.aread()
            yield events(response)


async def events(response: httpx2.Response) -> AsyncIterator[tuple[str, Json]]:
    id_, data = "", ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name == "id":
            id_ = value.strip()
        elif name == "data":
            data = value
        elif not line and (id_ or data):
            yield id_, json.loads(data) if data else {}
            id_, data = "", ""


async def until(stream: AsyncIterator[tuple[str, Json]], words: str) -> tuple[str, Json]:
    """The first event in which these words are."""
    async with asyncio.timeout(30):
        async for id_, message in stream:
            if words in json.dumps(message):
                return id_, message
    raise AssertionError(f"the stream has ended without {words!r}")


@pytest_asyncio.fixture
async def client(shared: Served) -> AsyncIterator[HttpClient]:
    headers = {"Authorization": f"Bearer {shared.token()}"}
    async with httpx2.AsyncClient(
        base_url=shared.url,
        headers=headers,
        timeout=30,
    ) as http:
        yield HttpClient(http)


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


async def opened(client: HttpClient, served: Served) -> str:
    """A new session, whose id comes on the connection's stream."""
    async with client.stream() as stream:
        posted = await client.post("session/new", {"cwd": str(served.folder), "mcpServers": []})
        assert (posted.status_code, posted.content) == (202, b"")
        _, answer = await until(stream, "sessionId")
        session_id: str = answer["result"]["sessionId"]
        return session_id


async def test_what_was_missed_while_a_stream_was_gone_follows_from_the_journal(
    shared: Served, client: HttpClient
) -> None:
    await client.initialize()
    session_id = await opened(client, shared)
    async with client.stream(Acp_Session_Id=session_id) as stream:
        prompt = {"sessionId": session_id, "prompt": text("quick: one")}
        await client.post("session/prompt", prompt)
        position, _ = await until(stream, "You said: quick: one")
        await until(stream, "end_turn")
    prompt = {"sessionId": session_id, "prompt": text("quick: two")}
    await client.post("session/prompt", prompt)
    async with client.stream(Acp_Session_Id=session_id, Last_Event_ID=position) as stream:
        async with asyncio.timeout(30):
            async for _, message in stream:
                assert "You said: quick: one" not in json.dumps(message)
                if "You said: quick: two" in json.dumps(message):
                    break


async def test_a_newer_stream_takes_the_place_of_the_older(
    shared: Served, client: HttpClient
) -> None:
    await client.initialize()
    session_id = await opened(client, shared)
    async with (
        client.stream(Acp_Session_Id=session_id) as older,
        client.stream(Acp_Session_Id=session_id) as newer,
    ):
        async with asyncio.timeout(30):
            assert [event async for event in older] == []  # it ends
        prompt = {"sessionId": session_id, "prompt": text("quick: here")}
        await client.post("session/prompt", prompt)
        await until(newer, "You said: quick: here")


async def test_requests_that_cannot_be_are_told_apart_by_their_status(
    shared: Served, client: HttpClient
) -> None:
    http = client.http
    assert (await client.post("session/list", {})).status_code == 400  # no connection
    await client.initialize()
    stranger = {"Acp-Connection-Id": "x"}
    assert (await client.post("session/list", {}, Acp_Connection_Id="x")).status_code == 404
    wrong = await client.post("session/prompt", {"sessionId": "a"}, Acp_Session_Id="b")
    assert wrong.status_code == 400
    assert (await http.post("/acp", content=b"{}", headers=client.connection)).status_code == 415
    array = await http.post("/acp", json=[], headers=client.connection)
    assert (array.status_code, array.json()["error"]["code"]) == (501, -32600)
    torn = {**client.connection, "Content-Type": "application/json"}
    assert (await http.post("/acp", content=b"{", headers=torn)).status_code == 400
    assert (await http.get("/acp", headers=client.connection)).status_code == 406
    takes = {"Accept": "text/event-stream"}
    assert (await http.get("/acp", headers=takes)).status_code == 400
    assert (await http.get("/acp", headers={**takes, **stranger})).status_code == 404
    assert (await http.put("/acp", headers=client.connection)).status_code == 405
    endless = {**takes, **client.connection, "Last-Event-ID": "1" * 5000}
    async with http.stream("GET", "/acp", headers=endless) as answer:
        assert answer.status_code == 200  # as without a position
    assert (await http.post("/acp/nobody", json={})).status_code == 404


async def test_a_connection_ends_with_delete_and_is_nobody_elses(
    shared: Served, client: HttpClient
) -> None:
    await client.initialize()
    other = {"Authorization": f"Bearer {shared.token()}", **client.connection}
    assert (await client.http.delete("/acp", headers=other)).status_code == 404
    async with client.stream() as stream:
        assert (await client.http.delete("/acp", headers=client.connection)).status_code == 202
        async with asyncio.timeout(30):
            assert [event async for event in stream] == []
    assert (await client.post("session/list", {})).status_code == 404


async def test_a_connection_is_over_with_the_answer_to_delete_though_its_agent_is_not_done(
    tmp_path: Path,
) -> None:
    class Slow:
        def limit(self, name: str) -> int:
            return 1 << 20

        async def attend(
            self, name: str, transport: Transport, principal: Principal, headers: Mapping[str, str]
        ) -> None:
            line = await transport.receive()
            transport.send(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % json.loads(line)["id"])
            await left.wait()

    left = asyncio.Event()
    async with site(tmp_path) as place, HttpClients(Slow(), place.gate) as clients:

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = HttpExchange(scope, receive, send)
            await clients.serve(exchange, "slow", Admitted(THIS_USER, "token"))

        async def asked(method: str, **headers: str) -> Answer:
            body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
            named = {"content_type": "application/json", **headers}
            return await answered(app, place.scope("/acp", None, method, named), body)

        connection = (await asked("POST")).headers["acp-connection-id"]
        assert (await asked("DELETE", acp_connection_id=connection)).status == 202
        with pytest.raises(RefusedError, match="unknown connection"):
            await asked("POST", acp_connection_id=connection)
        left.set()
