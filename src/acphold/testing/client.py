"""The client in memory and its sessions, and the agent on its other end."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from acphold.errors import UnknownSessionError
from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.peer import Request
from acphold.schema import (
    CANCEL,
    CLOSE_SESSION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    PROTOCOL_VERSION,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    CancelNotification,
    ClientCapabilities,
    CloseSessionRequest,
    DeleteSessionRequest,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    RequestPermissionRequest,
    ResumeSessionRequest,
    SessionNotification,
    SetSessionConfigOptionRequest,
    SetSessionModeRequest,
    TextContent,
    decode,
    encode,
)
from acphold.schema.splice import members
from acphold.testing.told import Result, Told
from acphold.transports.memory import memory_pair

if TYPE_CHECKING:
    from acphold.library.agent import Agent
    from acphold.schema import (
        ContentBlock,
        McpServer,
        SessionConfigOption,
        SessionInfo,
        SessionModeState,
        Update,
    )
    from acphold.schema.methods import Method
    from acphold.testing.person import Person

P = TypeVar("P")
R = TypeVar("R")

DEADLINE = 30.0
"""Seconds any single wait may take: a test that hangs says so."""


class Client:
    """A client that is connected to an agent; made by `connect`.

    `agent` is what it answered to `initialize`; `asked` has every request of the agent by method
    and params, `notified` its notifications that are no updates.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Path,
        capabilities: ClientCapabilities,
        *,
        person: Person,
        mcp_timeout: float,
        cancel_grace: float,
    ) -> None:
        self.agent: InitializeResponse
        self.peer: Peer
        self.journal = journal
        self.asked: list[tuple[str, Any]] = []
        self.notified: list[tuple[str, Any]] = []
        self._agent = agent
        self._capabilities = capabilities
        self._person = person
        self._mcp_timeout = mcp_timeout
        self._cancel_grace = cancel_grace
        self._updates: dict[str, list[tuple[bytes, Update]]] = {}
        self._news = asyncio.Condition()
        self._running = AsyncExitStack()
        self._serving: asyncio.Task[None]
        self._kills = 0

    @property
    def permissions(self) -> list[RequestPermissionRequest]:
        """The permission requests so far."""
        return self._person.permissions

    @property
    def buffers(self) -> dict[str, str] | None:
        """Files that are open in the client, path to text, with what is not saved yet."""
        return self._person.buffers

    # -- sessions -------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str | os.PathLike[str] | None = None,
        *,
        additional_directories: Sequence[str | os.PathLike[str]] = (),
        mcp_servers: Sequence[McpServer] = (),
    ) -> ClientSession:
        """Begin a conversation, by default in the folder that the journal is in."""
        folder = os.fspath(cwd or self.journal.parent)
        request = NewSessionRequest(
            cwd=folder,
            mcp_servers=tuple(mcp_servers),
            additional_directories=tuple(os.fspath(path) for path in additional_directories),
        )
        made = await self.ask(NEW_SESSION, request)
        return ClientSession(
            self, made.session_id, folder, modes=made.modes, options=made.config_options
        )

    async def load_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation after its replay, which is `replayed` in the result."""
        self._updates.pop(session_id, None)
        cwd = await self._folder(session_id)
        request = LoadSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers))
        opened = await self.ask(LOAD_SESSION, request)
        return ClientSession(
            self, session_id, cwd, modes=opened.modes, options=opened.config_options
        )

    async def resume_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation without a replay."""
        self._updates.pop(session_id, None)
        cwd = await self._folder(session_id)
        request = ResumeSessionRequest(
            session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers)
        )
        opened = await self.ask(RESUME_SESSION, request)
        return ClientSession(
            self, session_id, cwd, modes=opened.modes, options=opened.config_options
        )

    async def sessions(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionInfo]:
        """All sessions, newest first; those of one folder with `cwd`."""
        found: list[SessionInfo] = []
        folder, cursor = None if cwd is None else os.fspath(cwd), None
        while True:
            page = await self.ask(LIST_SESSIONS, ListSessionsRequest(cwd=folder, cursor=cursor))
            found += page.sessions
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor

    async def _folder(self, session_id: str) -> str:
        for info in await self.sessions():
            if info.session_id == session_id:
                return info.cwd
        raise UnknownSessionError(session_id)

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Any request, typed; RemoteError when it is refused."""
        async with asyncio.timeout(DEADLINE):
            return await self.peer.call(method, params)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Any request, as JSON: an extension method for instance."""
        async with asyncio.timeout(DEADLINE):
            return msgspec.json.decode(await self.peer.call_raw(method, encode(dict(params))))

    # -- what came ------------------------------------------------------------------------

    def told(self, session_id: str, *, since: int = 0) -> Told:
        """The updates of a session from number `since` on."""
        known = self._updates.get(session_id, [])[since:]
        return Told(tuple(update for _, update in known), tuple(raw for raw, _ in known))

    async def until(self, found: Callable[[], R | None]) -> R:
        """Wait until `found()` is not None, asked again with everything that comes."""
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
        self._person.hear(request.method, request.params)
        await self._tell_news()
        return await self._person.answer(request.method, request.params)

    async def _tell_news(self) -> None:
        async with self._news:
            self._news.notify_all()

    # -- running --------------------------------------------------------------------------

    async def restart(self, *, kill: bool = False) -> None:
        """End the agent and start it again on the same journal; sessions have to be loaded.

        With `kill` it gets no chance to put anything in order, as with SIGKILL: what is found
        afterwards is what the journal had at this instant.
        """
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
        self.agent = await self.ask(
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


class ClientSession:
    """A session as the client holds it.

    `modes` and `options` are what the agent answered when it was opened; `replayed` is what a load
    replayed.
    """

    def __init__(
        self,
        client: Client,
        session_id: str,
        cwd: str,
        *,
        modes: SessionModeState | None,
        options: tuple[SessionConfigOption, ...] | None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.modes = modes
        self.options = options or ()
        self.replayed = client.told(session_id)
        self._client = client

    @property
    def told(self) -> Told:
        """All updates this client was sent of the session so far, replayed ones included."""
        return self._client.told(self.id)

    async def prompt(self, *content: str | ContentBlock) -> Result:
        """Run a turn to its end; RemoteError when it failed."""
        before = len(self.told.raws)
        blocks = tuple(TextContent(text=it) if isinstance(it, str) else it for it in content)
        answer = await self._client.ask(PROMPT, PromptRequest(session_id=self.id, prompt=blocks))
        told = self._client.told(self.id, since=before)
        return Result(told.updates, told.raws, answer.stop_reason)

    def begin(self, *content: str | ContentBlock) -> asyncio.Task[Result]:
        """Start a turn; `cancel` it, or await the task for its result."""
        return asyncio.create_task(self.prompt(*content), name="prompt")

    async def cancel(self) -> None:
        """Cancel the turn that runs."""
        await self._client.peer.notify(CANCEL, CancelNotification(session_id=self.id))

    async def until(self, holds: Callable[[Told], object]) -> Told:
        """Wait until what was told fits, looked at with each update."""
        return await self._client.until(lambda: self.told if holds(self.told) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, in this session at any time."""
        await self.until(lambda told: text in told.text)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode; RemoteError for an unknown one."""
        request = SetSessionModeRequest(session_id=self.id, mode_id=mode_id)
        await self._client.ask(SET_SESSION_MODE, request)

    async def set_option(
        self, option_id: str, value: str | bool
    ) -> tuple[SessionConfigOption, ...]:
        """Change a config option; all of them as they stand then."""
        request = (
            SetSessionConfigOptionRequest(
                session_id=self.id, config_id=option_id, value=value, type="boolean"
            )
            if isinstance(value, bool)
            else SetSessionConfigOptionRequest(session_id=self.id, config_id=option_id, value=value)
        )
        answer = await self._client.ask(SET_SESSION_CONFIG_OPTION, request)
        return answer.config_options

    async def close(self) -> None:
        """Close it; it can be loaded again."""
        await self._client.ask(CLOSE_SESSION, CloseSessionRequest(session_id=self.id))

    async def delete(self) -> None:
        """Delete it for good."""
        await self._client.ask(DELETE_SESSION, DeleteSessionRequest(session_id=self.id))


def _copy(journal: Path, copy: Path) -> None:
    source, target = sqlite3.connect(journal), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
