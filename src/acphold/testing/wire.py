"""A connection in memory: the client's end of it, the agent behind it, and all that was said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict

from acphold.client import RemoteAgent
from acphold.client.duties import Answers, Asking, Duties
from acphold.client.endpoints import TransportEndpoint
from acphold.client.turn_feed import typed
from acphold.client.uplink import Settings, Uplink
from acphold.history.raw_update import PROMPT_BEGUN
from acphold.journal import default_location
from acphold.journal.stores import open_journal
from acphold.schema import ClientCapabilities, Implementation
from acphold.serve_options import AgentOptions
from acphold.testing.received import Received
from acphold.transports.memory import memory_pair

if TYPE_CHECKING:
    from acphold.library.agent import Agent
    from acphold.schema import Update
    from acphold.testing.person import Person

T = TypeVar("T")

DEADLINE = 30.0
"""Seconds any single wait may take: a test that hangs says so."""


class Wire:
    """Carries what a client and `agent` say to each other, and keeps what came.

    `agent` is the agent as its client has it; `asked` has every request of the agent by method and
    params, `notified` its notifications that are no updates.
    """

    def __init__(
        self,
        served: Agent,
        options: AgentOptions,
        capabilities: ClientCapabilities,
        person: Person,
    ) -> None:
        self.agent: RemoteAgent
        self.person = person
        self.journal = Path(options.journal or default_location())
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self._served = served
        self._options = options
        self._settings = Settings(
            client_info=Implementation(name="acphold.testing", version="1"),
            capabilities=capabilities,
            on_update=self._hear_update,
            on_notification=self._hear_notification,
            start_timeout=DEADLINE,
            silence=DEADLINE,
            cancel_grace=2 * options.cancel_grace,
        )
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Event()
        self._uplink: Uplink | None = None
        self._serving: asyncio.Task[None] | None = None
        self._kills = 0

    async def in_time(self, asked: Coroutine[Any, Any, T]) -> T:
        """What the agent answers, before the deadline."""
        async with asyncio.timeout(DEADLINE):
            return await asked

    def received(self, session_id: str, *, since: int = 0) -> Received:
        """See `Client.received`."""
        known = self._updates.get(session_id, [])[since:]
        return Received(tuple(update for _, update in known), tuple(raw for raw, _ in known))

    def forget(self, session_id: str) -> None:
        """Drop the updates of a session: it is opened anew."""
        self._updates.pop(session_id, None)

    async def until(self, found: Callable[[], T | None]) -> T:
        """See `Client.until`."""
        async with asyncio.timeout(DEADLINE):
            while (value := found()) is None:
                self._news.clear()
                await self._news.wait()
            return value

    # -- what the agent says --------------------------------------------------------------

    def _hear_update(self, session_id: str, raw: bytes) -> None:
        if raw == PROMPT_BEGUN:
            return  # acphold's own word to its client library: the author's agent has not said it
        self._updates.setdefault(session_id, []).append((raw, typed(raw)))
        self._news.set()

    def _hear_notification(self, method: str, params: Any) -> None:
        self.notified.append((method, params))
        self._news.set()

    def hear_request(self, method: str, params: Any) -> None:
        """The agent asks something; the answer may take a while."""
        self.asked.append((method, params))
        self.person.hear(method, params)
        self._news.set()

    # -- from its start to its end --------------------------------------------------------

    async def start(self) -> None:
        """Start the agent and introduce this client."""
        theirs, ours = memory_pair()
        self._serving = asyncio.create_task(
            self._served.serve(theirs, **{**asdict(self._options), "journal": self.journal}),
            name="agent",
        )
        duties = _WatchedDuties(self.person.answers(), self.hear_request)
        self._uplink = Uplink(TransportEndpoint(ours), duties, self._settings)
        await self._uplink.start()
        self.agent = RemoteAgent(self._uplink, cwd=str(self.journal.parent))

    async def stop(self) -> None:
        """Leave, and wait for the agent's end."""
        if self._uplink is not None:
            await self._uplink.aclose()
        if self._serving is not None:
            async with asyncio.timeout(DEADLINE):
                await self._serving

    async def restart(self, *, kill: bool = False) -> None:
        """See `Client.restart`."""
        if kill:
            self._kills += 1
            copy = self.journal.with_name(f"journal-{self._kills}.db")
            opened = open_journal(self.journal, create=False)
            try:
                if opened.file is not None:
                    await opened.file.copy_to(str(copy))
            finally:
                await opened.aclose()
            self.journal = copy
        await self.stop()
        await self.start()


class _WatchedDuties(Duties):
    """Answers what the agent asks, and tells that it was asked."""

    def __init__(self, answers: Answers, tell: Callable[[str, Any], None]) -> None:
        super().__init__(answers)
        self._tell = tell

    async def answer(self, method: str, params: bytes, session: Asking | None) -> bytes:
        self._tell(method, msgspec.json.decode(params or b"null"))
        return await super().answer(method, params, session)
