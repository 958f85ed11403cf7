"""The line to another process, byte for byte; the test plays the owner's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.peer import UNREAD
from acp_wire.rpc.requests import Request
from acp_wire.tasks import TaskSet, beside
from acp_wire.transports.streams import memory_pair
from acphold.errors import (
    AcpError,
    HeldElsewhereError,
    InvalidParamsError,
    JournalUnavailableError,
)
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.lines.line import OpenSession
from acphold.live.server import bounds
from acphold.live.server.far_line import FarLine

DEADLINE = 30.0

SECOND = {"acphold/seq": 2}


class Client:
    """A client that takes whatever it is told (hub.Client)."""

    offer = ClientOffer()
    buffered = 0
    is_lost = False

    def __init__(self) -> None:
        self.told: list[int] = []
        self.sent: list[bytes] = []

    def send(self, lines: bytes) -> None:
        self.sent.append(lines)

    async def drain(self) -> None:
        """There is always room."""

    async def ask(self, method: str, params: bytes) -> bytes:
        return b"{}"

    def tell(self, method: str, params: bytes) -> None:
        self.told.append(len(params))


class Owner:
    """Answers everything (rpc.Receiver)."""

    async def on_request(self, request: Request) -> bytes:
        return b"{}"

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


@asynccontextmanager
async def line_to(
    limit: int, client: Client, owner: Peer, near: Transport
) -> AsyncIterator[FarLine]:
    """A line of the client to the owner, which has answered over it."""

    async def dial() -> Transport:
        raise AssertionError("the connection holds")

    line = FarLine(client, dial, "there", limit, near, "process", introduction=b"{}")
    line.follow("s", OpenSession(b"{}", 1))
    async with (
        connected(owner),
        beside(line.run(), "line") as running,
        asyncio.timeout(DEADLINE),
    ):
        while not line.is_connected:  # noqa: ASYNC110 - in a few steps
            await asyncio.sleep(0)
        yield line
        assert not running.done()


async def test_client_and_owner_can_both_say_much_at_once() -> None:
    near, far = memory_pair()
    client, limit = Client(), 2 * UNREAD
    owner = Peer(far, Owner(), name="client", limit=limit)
    async with line_to(limit, client, owner, near) as line:
        much = json.dumps({"sessionId": "s", "text": "x" * (UNREAD + 1_000_000)}).encode()
        line.tell("said", much)
        far.send(b'{"jsonrpc":"2.0","method":"said","params":%b}\n' % much)
        await line.call("asked", b"{}")
        assert client.told == [len(much)]


async def test_what_an_owner_adds_to_a_message_of_just_the_size_limit_fits() -> None:
    near, far = memory_pair()
    client, limit = Client(), 100_000
    owner = Peer(far, Owner(), name="client")
    async with line_to(limit + bounds.ADDED_BYTES, client, owner, near) as line:
        params = json.dumps({"text": "x" * limit, "_meta": {"acphold/seq": 7}}).encode()
        far.send(b'{"jsonrpc":"2.0","method":"said","params":%b}\n' % params)
        await line.call("asked", b"{}")
        assert client.told == [len(params)]


async def test_what_only_looks_like_a_position_moves_and_hides_nothing() -> None:
    near, far = memory_pair()
    client, opened = Client(), OpenSession(b"{}", 1)
    async with line_to(100_000, client, Peer(far, Owner(), name="client"), near) as line:
        line.follow("t", opened)
        nothing = {"sessionUpdate": "session_info_update"}
        for method, params in (
            ("_x", {"sessionId": "t", "x": {"acphold/seq": 99}}),
            ("session/update", {"update": {"sessionUpdate": "tool_call", "rawInput": nothing}}),
            ("session/update", {"update": nothing}),
        ):
            whole = params if method == "_x" else {"sessionId": "t", **params, "_meta": SECOND}
            told = {"jsonrpc": "2.0", "method": method, "params": whole}
            far.send(json.dumps(told, separators=(",", ":")).encode() + b"\n")
        await line.call("asked", b"{}")
        assert opened.position == 2
        assert len(client.told) == 2  # the last one is only a position


@pytest.mark.parametrize(
    ("session", "meta"),
    [("s", {"acphold/seq": 7}), ("a child of it", {"acphold/parent": "s", "acphold/seq": 7})],
)
async def test_what_is_too_long_is_told_in_the_session_that_it_belongs_to(
    session: str, meta: dict[str, Any]
) -> None:
    near, far = memory_pair()
    client, limit = Client(), 100_000
    owner = Peer(far, Owner(), name="client")
    async with line_to(limit, client, owner, near) as line:
        client.sent.clear()  # that updates are missing: this owner knows no positions
        update = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x" * 2 * limit}
        params = json.dumps({"sessionId": session, "update": update, "_meta": meta})
        sent = params.replace('": ', '":').replace(', "', ',"').encode()
        for told in (sent, b'{"sessionId":"no","update":"%b"}' % (b"x" * 2 * limit)):
            far.send(b'{"jsonrpc":"2.0","method":"session/update","params":%b}\n' % told)
        forged = b'{"t":"%b","x":{"acphold/parent":"s","acphold/seq":99}}' % (b"x" * 2 * limit)
        far.send(b'{"jsonrpc":"2.0","method":"_x","params":%b}\n' % forged)
        await line.call("asked", b"{}")
        [said] = [json.loads(lines)["params"] for lines in client.sent]
        assert said["sessionId"] == "s"
        assert "is over the limit" in said["update"]["description"]
        assert line._line.sessions["s"].position == 7


class Opening:
    """An owner that refuses to open the session, each time with the next of these errors."""

    def __init__(self, *refusals: AcpError) -> None:
        self.refusals = [*refusals]
        self.resumed: list[dict[str, Any]] = []
        self.pumps = TaskSet()

    async def dial(self) -> Transport:
        near, far = memory_pair()
        self.pumps.start(Peer(far, self, name="client").pump(), "owner")
        return near

    async def on_request(self, request: Request) -> bytes:
        if request.method == "initialize":
            return b'{"agentCapabilities":{"_meta":{"acphold/positions":true}}}'
        self.resumed.append(json.loads(request.params))
        if self.refusals:
            raise self.refusals.pop(0)
        return b"{}"

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        return None


@pytest.mark.parametrize(
    ("refusal", "is_followed", "again"),
    [
        (JournalUnavailableError("the disk is full"), True, {"acphold/after": 5}),
        (JournalUnavailableError("the disk is full"), False, None),
        (HeldElsewhereError("s", "process 1", 1), True, {"acphold/after": 5}),
        (HeldElsewhereError("s", "process 1", 1), False, None),
        (InvalidParamsError("merged since"), True, {}),
    ],
)
async def test_a_session_is_asked_for_again_where_that_may_help_and_never_at_an_older_position(
    refusal: AcpError, is_followed: bool, again: dict[str, Any] | None
) -> None:
    client, owner = Client(), Opening(refusal)
    line = FarLine(
        client,
        owner.dial,
        "there",
        10_000,
        None,
        "process",
        introduction=b"{}",
        follows_owner=is_followed,
    )
    line.follow("s", OpenSession(b'{"_meta":{"acphold/after":1}}', 5))
    async with asyncio.timeout(DEADLINE), beside(line.run(), "line"):
        while not line.is_connected:  # noqa: ASYNC110 - there may be a pause before it
            await asyncio.sleep(0.01)
        assert ("s" in line._line.sessions) == (again is not None)
    asked = [params.get("_meta", {}) for params in owner.resumed]
    assert asked == [{"acphold/after": 5}, *([] if again is None else [again])]
    await owner.pumps.aclose()


async def test_an_update_that_arrives_with_the_answer_to_resume_moves_the_position() -> None:
    near, far = memory_pair()
    opened = OpenSession(b"{}", 1)

    async def dial() -> Transport:
        raise AssertionError("the connection holds")

    async def owner() -> None:
        knows = b'{"agentCapabilities":{"_meta":{"acphold/positions":true}}}'
        for result in (knows, b"{}"):
            asked = json.loads(await far.receive())
            lines = b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (asked["id"], result)
            if asked["method"] == "session/resume":
                params = b'{"sessionId":"s","update":{},"_meta":{"acphold/seq":2}}'
                lines += b'{"jsonrpc":"2.0","method":"session/update","params":%b}\n' % params
            far.send(lines)

    line = FarLine(Client(), dial, "there", 10_000, near, "process", introduction=b"{}")
    line.follow("s", opened)
    async with asyncio.timeout(DEADLINE), beside(line.run(), "line"), beside(owner(), "owner"):
        while not line.is_connected:  # noqa: ASYNC110 - in a few steps
            await asyncio.sleep(0)
        assert opened.position == 2
