"""The line to another process, byte for byte; the test plays the owner's end."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from acp_wire.rpc import NotificationReceived, Peer, connected
from acp_wire.rpc.peer import UNREAD
from acp_wire.rpc.requests import Request
from acp_wire.transports.streams import memory_pair
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.hub.agent_session import Setup
from acphold.live.server.owner_line import Opened, OwnerLine
from acphold.record.journal.access import SCOPES, Scope

DEADLINE = 30.0


class Client:
    """A client that takes whatever it is told (hub.Client)."""

    offer = ClientOffer()
    info = b""
    buffered = 0
    sees_all = True

    def owns(self, tenant: str) -> bool:
        return True

    def scopes_in(self, session_id: str) -> frozenset[Scope]:
        return frozenset(SCOPES)

    only_joins = False

    async def hang_up(self) -> None:
        return None

    def only_watches(self, session_id: str) -> bool:
        return False

    def __init__(self) -> None:
        self.known_prompts: set[str] = set()
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


async def test_client_and_owner_can_both_say_much_at_once() -> None:
    near, far = memory_pair()
    client, limit = Client(), 2 * UNREAD
    line = OwnerLine(near, client, limit, SimpleNamespace(lost=print))
    async with (
        connected(Peer(far, Owner(), name="client", limit=limit)) as pump,
        asyncio.timeout(DEADLINE),
    ):
        assert not pump.done()
        await line.start(b"{}")
        much = json.dumps({"sessionId": "s", "text": "x" * (UNREAD + 1_000_000)}).encode()
        line.peer.tell("said", much)
        far.send(b'{"jsonrpc":"2.0","method":"said","params":%b}\n' % much)
        assert await line.peer.call_raw("asked", b"{}") == b"{}"
        assert client.told == [len(much)]
        await line.aclose()


async def test_what_an_owner_adds_to_a_message_of_just_the_size_limit_fits() -> None:
    near, far = memory_pair()
    client, limit = Client(), 100_000
    line = OwnerLine(near, client, limit, SimpleNamespace(lost=print))
    async with connected(Peer(far, Owner(), name="client")), asyncio.timeout(DEADLINE):
        await line.start(b"{}")
        params = json.dumps({"text": "x" * limit, "_meta": {"acphold/seq": 7}}).encode()
        far.send(b'{"jsonrpc":"2.0","method":"said","params":%b}\n' % params)
        assert await line.peer.call_raw("asked", b"{}") == b"{}"
        assert client.told == [len(params)]
        await line.aclose()


@pytest.mark.parametrize(
    ("session", "meta"),
    [("s", {"acphold/seq": 7}), ("a child of it", {"acphold/parent": "s", "acphold/seq": 7})],
)
async def test_what_is_too_long_is_told_in_the_session_that_it_belongs_to(
    session: str, meta: dict[str, Any]
) -> None:
    near, far = memory_pair()
    client, limit = Client(), 100_000
    line = OwnerLine(near, client, limit, SimpleNamespace(lost=print))
    line.opened["s"] = Opened(Setup("/", (), b"{}"), 1)
    async with connected(Peer(far, Owner(), name="client")), asyncio.timeout(DEADLINE):
        await line.start(b"{}")
        update = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x" * 2 * limit}
        params = json.dumps({"sessionId": session, "update": update, "_meta": meta})
        sent = params.replace('": ', '":').replace(', "', ',"').encode()
        for told in (sent, b'{"sessionId":"no","update":"%b"}' % (b"x" * 2 * limit)):
            far.send(b'{"jsonrpc":"2.0","method":"session/update","params":%b}\n' % told)
        assert await line.peer.call_raw("asked", b"{}") == b"{}"
        [said] = [json.loads(lines)["params"] for lines in client.sent]
        assert said["sessionId"] == "s"
        assert "is over the limit" in said["update"]["description"]
        assert line.opened["s"].position == 7
        await line.aclose()
