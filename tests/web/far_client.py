"""A client far away that is nobody's library; a test answers what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.transports import http_client, websocket
from acp_wire.transports.route import Route

ALL_AGENTS: Final = {"acphold/allAgents": True}
POSITIONS: Final = {"acphold/positions": True}

PERMISSION: Final = {
    "toolCall": {"toolCallId": "t"},
    "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
}

YES: Final = {"outcome": {"outcome": "selected", "optionId": "yes"}}


def steps(*steps: object) -> list[dict[str, str]]:
    """A prompt that has the scripted agent do this."""
    return [{"type": "text", "text": json.dumps(steps)}]


def asks(session_id: str) -> list[dict[str, str]]:
    """A prompt that has the agent ask for permission."""
    return steps({"ask": ["session/request_permission", {**PERMISSION, "sessionId": session_id}]})


class FarClient:
    """It remembers all that it is told; `asked` has each question, and what its answer is set to,
    unless it `says_yes` to all."""

    def __init__(self, transport: Transport, *, says_yes: bool = False) -> None:
        self.peer = Peer(transport, self)
        self.says_yes = says_yes
        self.asked: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[bytes]]] = asyncio.Queue()
        self.told: list[str] = []
        self.introduced: dict[str, Any] = {}
        """The answer to its `initialize`."""
        self._heard = asyncio.Event()

    async def on_request(self, request: Request) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.says_yes:
            answer.set_result(json.dumps(YES).encode())
        await self.asked.put((json.loads(request.params), answer))
        return await answer

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        self.told += [told.params.decode() for told in batch]
        self._heard.set()

    async def until(self, word: str) -> None:
        """Wait until it was told this."""
        async with asyncio.timeout(30):
            while not any(word in told for told in self.told):
                self._heard.clear()
                await self._heard.wait()

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        raw = await self.peer.call_raw(method, json.dumps(params).encode(), seconds=60)
        answer: dict[str, Any] = json.loads(raw)
        return answer

    async def introduce(self, can: Mapping[str, bool], **params: object) -> None:
        offered = {"_meta": can}
        self.introduced = await self.ask(
            "initialize", protocolVersion=1, clientCapabilities=offered, **params
        )

    async def new(self, folder: Path, **meta: object) -> dict[str, Any]:
        named = {"_meta": meta} if meta else {}
        return await self.ask("session/new", cwd=str(folder), mcpServers=[], **named)

    async def say(self, session_id: str, text: str) -> dict[str, Any]:
        prompt = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", sessionId=session_id, prompt=prompt)


@asynccontextmanager
async def far_client(
    url: str,
    token: str,
    can: Mapping[str, bool] = {},
    *,
    http: bool = False,
    says_yes: bool = False,
    **params: object,
) -> AsyncIterator[FarClient]:
    """One that has introduced itself with these `_meta` of its capabilities, and these params."""
    route = Route(url, token=token, seconds=30, limit=1 << 20)
    transport = await (http_client if http else websocket).connect(route)
    client = FarClient(transport, says_yes=says_yes)
    async with connected(client.peer):
        await client.introduce(can, **params)
        yield client
