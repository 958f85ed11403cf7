"""The client's end of a connection, and the agent on its other end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.peer import Request
from acphold.schema import (
    INITIALIZE,
    PROTOCOL_VERSION,
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    SessionNotification,
    decode,
    encode,
)
from acphold.schema.splice import members
from acphold.testing.received import Received
from acphold.transports.memory import memory_pair

if TYPE_CHECKING:
    from acphold.library.agent import Agent
    from acphold.schema import Update
    from acphold.schema.methods import Method
    from acphold.testing.person import Person

P = TypeVar("P")
R = TypeVar("R")

DEADLINE = 30.0
"""Seconds any single wait may take: a test that hangs says so."""


class Wire:
    """Carries what a client and `agent` say to each other, and keeps what came.

    `hello` is the answer to `initialize`; `asked` has every request of the agent by method and
    params, `notified` its notifications that are no updates.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Path,
        capabilities: ClientCapabilities,
        person: Person,
        *,
        mcp_timeout: float,
        cancel_grace: float,
    ) -> None:
        self.hello: InitializeResponse
        self.peer: Peer
        self.person = person
        self.journal = journal
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self._agent = agent
        self._capabilities = capabilities
        self._mcp_timeout = mcp_timeout
        self._cancel_grace = cancel_grace
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Condition()
        self._running = AsyncExitStack()
        self._serving: asyncio.Task[None]
        self._kills = 0

    async def ask(self, method: Method[P, R], params: P) -> R:
        """See `Client.ask`."""
        async with asyncio.timeout(DEADLINE):
            return await self.peer.call(method, params)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """See `Client.call`."""
        async with asyncio.timeout(DEADLINE):
            return msgspec.json.decode(await self.peer.call_raw(method, encode(dict(params))))

    def received(self, session_id: str, *, since: int = 0) -> Received:
        """See `Client.received`."""
        known = self._updates.get(session_id, [])[since:]
        return Received(tuple(update for _, update in known), tuple(raw for raw, _ in known))

    def forget(self, session_id: str) -> None:
        """Drop the updates of a session: it is opened anew."""
        self._updates.pop(session_id, None)

    async def until(self, found: Callable[[], R | None]) -> R:
        """See `Client.until`."""
        async with asyncio.timeout(DEADLINE), self._news:
            while (value := found()) is None:
                await self._news.wait()
            return value

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        """Called by the Peer."""
        for notification in batch:
            if notification.method == "session/update":
                told = decode(SessionNotification, notification.params).value
                raw = members(notification.params)["update"]
                self._updates.setdefault(told.session_id, []).append((raw, told.update))
            else:
                params = msgspec.json.decode(notification.params or b"null")
                self.notified.append((notification.method, params))
        await self._tell_news()

    async def on_request(self, request: Request) -> bytes:
        """Called by the Peer."""
        self.asked.append((request.method, msgspec.json.decode(request.params or b"null")))
        self.person.hear(request.method, request.params)
        await self._tell_news()
        return await self.person.answer(request.method, request.params)

    async def _tell_news(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def restart(self, *, kill: bool = False) -> None:
        """See `Client.restart`."""
        if kill:
            self._kills += 1
            copy = self.journal.with_name(f"journal-{self._kills}.db")
            _copy(self.journal, copy)
            self.journal = copy
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the agent and introduce this client."""
        theirs, ours = memory_pair()
        self._serving = asyncio.create_task(
            self._agent.serve(
                theirs,
                journal=self.journal,
                mcp_timeout=self._mcp_timeout,
                cancel_grace=self._cancel_grace,
            ),
            name="agent",
        )
        self.peer = Peer(ours, self, name="agent")
        await self._running.enter_async_context(connected(self.peer))
        self.hello = await self.ask(
            INITIALIZE,
            InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=self._capabilities,
                client_info=Implementation(name="acphold.testing", version="1"),
            ),
        )

    async def stop(self) -> None:
        """Leave, and wait for the agent's end."""
        await self._running.aclose()
        async with asyncio.timeout(DEADLINE):
            await self._serving


def _copy(journal: Path, copy: Path) -> None:
    source, target = sqlite3.connect(journal), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
