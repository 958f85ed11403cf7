"""A connection in memory: the client's end, the agent behind it, and a record of all messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from acphold.client.duties import Answers, AskingSession, Duties
from acphold.client.endpoints import TransportEndpoint
from acphold.client.turn_feed import typed
from acphold.client.uplink import Endpoint, Uplink, UplinkSettings
from acphold.errors import RemoteError
from acphold.history.entries import UPDATE, Entry
from acphold.history.fold import SessionState, fold
from acphold.history.raw_update import PROMPT_BEGUN
from acphold.history.timeline import Message, ToolCall, shortened
from acphold.journal import default_location
from acphold.journal.stores import open_journal
from acphold.rpc.wire_errors import on_incident
from acphold.schema import REQUEST_PERMISSION, RequestPermissionRequest, decode
from acphold.transports.memory import memory_pair

if TYPE_CHECKING:
    from acphold.library.agent import Agent
    from acphold.schema import Update
    from acphold.serve_options import AgentOptions

T = TypeVar("T")


class Received(Struct, frozen=True):
    """A session's received updates, in order; `raws` are their bytes, unchanged."""

    updates: tuple[Update, ...]
    raws: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<Received {len(self.raws)} updates: {shortened(self.text)!r}>"

    @property
    def text(self) -> str:
        """All text of the agent's messages."""
        return self._said("agent")

    @property
    def thoughts(self) -> str:
        """All text of the agent's thoughts."""
        return self._said("thought")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Each tool call in its final state."""
        return [item for item in self.state.timeline if isinstance(item, ToolCall)]

    @property
    def state(self) -> SessionState:
        """All of it, folded."""
        return fold(Entry(seq, UPDATE, 0, raw) for seq, raw in enumerate(self.raws, 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind (`plan`, `notice`, `tool_call_update` …), as JSON."""
        found = [msgspec.json.decode(raw, type=dict[str, Any]) for raw in self.raws]
        return [update for update in found if update["sessionUpdate"] == kind]

    def _said(self, role: str) -> str:
        items = [item for item in self.state.timeline if isinstance(item, Message)]
        return "".join(item.text for item in items if item.role == role)


class Recording:
    """Connects a client and `agent`, and records what arrives.

    `asked` has every request of the agent by method and params, `notified` its notifications other
    than updates, `permissions` the requests for permission. No wait takes more than `deadline`
    seconds. With `raises`, exceptions of the agent's code are raised where its answer is waited
    for.
    """

    def __init__(
        self,
        agent: Agent,
        options: AgentOptions,
        settings: UplinkSettings,
        answers: Answers,
        *,
        deadline: float,
        raises: bool,
    ) -> None:
        self.uplink: Uplink
        self.deadline = deadline
        self.journal: Path = Path(options.journal or default_location())
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self.permissions: list[RequestPermissionRequest] = []
        self._agent = agent
        self._options = options
        self._settings = msgspec.structs.replace(
            settings, on_update=self._hear_update, on_notification=self._hear_notification
        )
        self._answers = answers
        self._raises = raises
        self._incidents: dict[str, Exception] = {}
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._kills = 0

    def received(self, session_id: str) -> Callable[[int], Received]:
        """Return a function for its updates from a number on, since it was last opened.

        See `WatchedAgent.received`.
        """
        told = self._updates.setdefault(session_id, [])

        def since(number: int) -> Received:
            known = told[number:]
            return Received(tuple(update for _, update in known), tuple(raw for raw, _ in known))

        return since

    def forget(self, session_id: str) -> None:
        """Drop the updates of a session, because it is opened again."""
        self._updates.pop(session_id, None)

    async def until(self, found: Callable[[], T | None]) -> T:
        """See `WatchedAgent.until`."""
        async with asyncio.timeout(self.deadline):
            while (value := found()) is None:
                self._news.clear()
                await self._news.wait()
            return value

    # -- from the agent -------------------------------------------------------------------

    def _hear_update(self, session_id: str, raw: bytes) -> None:
        if raw == PROMPT_BEGUN:
            return  # acphold's own message to its client library, not the agent's
        self._updates.setdefault(session_id, []).append((raw, typed(raw)))
        self._news.set()

    def _hear_notification(self, method: str, params: Any) -> None:
        self.notified.append((method, params))
        self._news.set()

    def _hear_request(self, method: str, params: bytes) -> None:
        self.asked.append((method, msgspec.json.decode(params or b"null")))
        if method == REQUEST_PERMISSION.name:
            self.permissions.append(decode(RequestPermissionRequest, params).value)
        self._news.set()

    # -- exceptions of its code, or of a callback of the test ----------------------------

    def _note(self, incident: str, raised: BaseException) -> None:
        if self._raises and isinstance(raised, Exception):  # others would end the test
            self._incidents[incident] = raised

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise the original exception, for the block, instead of the error that reports it."""
        try:
            yield
        except RemoteError as error:
            data = msgspec.json.decode(error.raw or b"{}").get("data")
            incident = data.get("incident", "") if isinstance(data, dict) else ""
            raised = self._incidents.pop(incident, None)
            if raised is None:
                raise
            raise raised from None

    def raise_left(self) -> None:
        """Raise an exception that nobody waited for: from a hook, or a notification."""
        for raised in self._incidents.values():
            raise raised

    # -- start and end -------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent and initialize the connection."""
        theirs, ours = memory_pair()
        token = on_incident.set(self._note)  # for tasks that begin here
        try:
            self._serving = asyncio.create_task(
                self._agent.serve(theirs, **{**asdict(self._options), "journal": self.journal}),
                name="agent",
            )
            duties = _WatchedDuties(self._answers, self._hear_request)
            endpoint = TransportEndpoint(ours)
            self.uplink = _WatchedUplink(endpoint, duties, self._settings, self.raising)
            await self.uplink.start()
        finally:
            on_incident.reset(token)

    async def stop(self) -> None:
        """Disconnect, and wait for the agent's end."""
        if self._serving is not None:
            await self.uplink.aclose()
            async with asyncio.timeout(self.deadline):
                await self._serving

    async def restart(self, *, kill: bool = False) -> None:
        """See `WatchedAgent.restart`."""
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


class _WatchedUplink(Uplink):
    """Raises exceptions of the agent's code in place of an answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        duties: Duties,
        settings: UplinkSettings,
        raising: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(endpoint, duties, settings)
        self._raising = raising

    async def ask_raw(
        self,
        method: str,
        params: bytes,
        *,
        on_result: Callable[[bytes], object] = bool,
        again: bool = True,
    ) -> bytes:
        with self._raising():
            return await super().ask_raw(method, params, on_result=on_result, again=again)


class _WatchedDuties(Duties):
    """Answers the agent's requests, and reports them."""

    def __init__(self, answers: Answers, tell: Callable[[str, bytes], None]) -> None:
        super().__init__(answers)
        self._tell = tell

    async def answer(self, method: str, params: bytes, session: AskingSession | None) -> bytes:
        self._tell(method, params)
        return await super().answer(method, params, session)
