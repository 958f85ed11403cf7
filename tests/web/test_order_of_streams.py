"""All that is about a session stays on one stream, in its order, whatever its client opens when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from acphold.web import bounds
from acphold.web.http_clients import HttpTransport, read

Json = dict[str, Any]


class Reader:
    """Reads the answer to one GET as it comes."""

    def __init__(self, transport: HttpTransport, session_id: str | None = None) -> None:
        events = transport.stream(session_id, None)
        assert events is not None
        self.said = b""
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._read(events))

    async def _read(self, events: AsyncIterator[bytes]) -> None:
        async for event in events:
            self.said += event
            self._news.set()

    @property
    def heard(self) -> list[Json]:
        lines = self.said.split(b"\n")
        return [json.loads(it[6:]) for it in lines if it.startswith(b"data: ")]

    async def until(self, count: int) -> list[Json]:
        """The first so many messages."""
        async with asyncio.timeout(30):
            while len(self.heard) < count:
                self._news.clear()
                await self._news.wait()
        return self.heard


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    made = HttpTransport("token")
    yield made
    made.end()


async def post(transport: HttpTransport, method: str, id_: int = 1, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    line = json.dumps(message).encode()
    await transport.post(line + b"\n", read(line))


def say(transport: HttpTransport, **message: Any) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
    transport.send(text.encode() + b"\n")


def update(transport: HttpTransport, number: object, session_id: str = "s") -> None:
    params = {"sessionId": session_id, "update": {"n": number}}
    say(transport, method="session/update", params=params)


def order(messages: list[Json]) -> list[object]:
    """The numbers of updates and answers."""
    return [
        it["params"]["update"]["n"] if it.get("method") == "session/update" else it.get("id")
        for it in messages
    ]


async def test_the_answer_to_a_load_is_said_behind_the_replay_on_the_same_stream(
    transport: HttpTransport,
) -> None:
    connection, session = Reader(transport), Reader(transport, "s")
    await post(transport, "session/load", 7, sessionId="s")
    for number in range(3):
        update(transport, number)
    say(transport, id=7, result={})
    update(transport, "live")
    assert order(await session.until(5)) == [0, 1, 2, 7, "live"]
    assert connection.heard == []


async def test_a_session_that_is_loaded_without_a_stream_stays_on_the_connections(
    transport: HttpTransport,
) -> None:
    connection = Reader(transport)
    await post(transport, "session/load", 7, sessionId="s")
    update(transport, 0)
    session = Reader(transport, "s")  # as the Python SDK opens it, once it hears of the session
    update(transport, 1)
    say(transport, id=7, result={})
    await post(transport, "session/prompt", 8, sessionId="s")
    update(transport, 2)
    say(transport, id=8, result={})
    assert order(await connection.until(5)) == [0, 1, 7, 2, 8]
    assert session.heard == []
    await post(transport, "session/load", 9, sessionId="s")  # now it is there in time
    update(transport, 3)
    say(transport, id=9, result={})
    assert order(await session.until(2)) == [3, 9]


async def test_of_a_new_session_nothing_is_said_before_its_stream_is_there(
    transport: HttpTransport,
) -> None:
    connection = Reader(transport)
    await post(transport, "session/new", 1)
    say(transport, id=1, result={"sessionId": "s"})
    update(transport, 0)
    assert order(await connection.until(1)) == [1]
    session = Reader(transport, "s")
    update(transport, 1)
    assert order(await session.until(2)) == [0, 1]
    assert order(connection.heard) == [1]


@pytest.mark.parametrize("how", ["it asks", "in time"])
async def test_of_a_new_session_without_a_stream_all_is_said_on_the_connections(
    transport: HttpTransport, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STREAM_OPEN_SECONDS", 0.01 if how == "in time" else 3600)
    connection = Reader(transport)
    await post(transport, "session/new", 1)
    say(transport, id=1, result={"sessionId": "s"})
    update(transport, 0)
    if how == "it asks":
        await post(transport, "session/prompt", 2, sessionId="s")
    assert order(await connection.until(2)) == [1, 0]
    session = Reader(transport, "s")
    update(transport, 1)
    assert order(await connection.until(3)) == [1, 0, 1]
    assert session.heard == []
    monkeypatch.setattr(bounds, "QUIET_SECONDS", 0.0)
    if how == "it asks":
        say(transport, id=2, result={})
        await connection.until(4)
    await post(transport, "session/prompt", 3, sessionId="s")  # all is read, and it is quiet
    update(transport, 2)
    assert order(await session.until(1)) == [2]


async def test_a_client_with_one_stream_waits_for_nothing() -> None:
    transport = HttpTransport("token", has_one_stream=True)
    connection = Reader(transport)
    await post(transport, "session/new", 1)
    say(transport, id=1, result={"sessionId": "s"})
    update(transport, 0)
    assert order(await connection.until(2)) == [1, 0]
    transport.end()


async def test_a_question_is_taken_back_where_it_was_asked_and_a_sub_agent_speaks_there(
    transport: HttpTransport,
) -> None:
    Reader(transport)
    session = Reader(transport, "s")
    await post(transport, "session/resume", 7, sessionId="s")
    say(transport, id="q", method="session/request_permission", params={"sessionId": "s"})
    say(transport, method="$/cancel_request", params={"requestId": "q"})
    meta = {"acphold/parent": "s", "acphold/seq": 4}
    child = {"sessionId": "child", "update": {"n": 1}, "_meta": meta}
    say(transport, method="session/update", params=child)
    heard = await session.until(3)
    assert [it["method"] for it in heard] == [
        "session/request_permission",
        "$/cancel_request",
        "session/update",
    ]


async def test_who_comes_back_names_the_lineage_and_is_sent_away_where_it_is_another(
    transport: HttpTransport,
) -> None:
    Reader(transport)
    session = Reader(transport, "s")
    await post(transport, "session/load", 7, sessionId="s")
    say(transport, id=7, result={"_meta": {"acphold/lineage": "first"}})
    await session.until(1)
    assert json.loads(await transport.receive())["id"] == 7
    events = transport.stream("s", 3)
    assert events is not None
    asked = json.loads(await transport.receive())
    assert asked["params"]["_meta"] == {"acphold/after": 3, "acphold/lineage": "first"}
    say(transport, id=asked["id"], error={"code": -32602, "message": "another lineage"})
    async with asyncio.timeout(30):
        assert [it async for it in events] == []
