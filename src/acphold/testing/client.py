"""The client in memory and its sessions, and the agent on its other end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from acphold.errors import UnknownSessionError
from acphold.schema import (
    CANCEL,
    CLOSE_SESSION,
    DELETE_SESSION,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    RESUME_SESSION,
    SET_SESSION_CONFIG_OPTION,
    SET_SESSION_MODE,
    CancelNotification,
    CloseSessionRequest,
    DeleteSessionRequest,
    InitializeResponse,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    RequestPermissionRequest,
    ResumeSessionRequest,
    SetSessionConfigOptionRequest,
    SetSessionModeRequest,
    TextContent,
    encode,
)
from acphold.testing.received import Received, Result

if TYPE_CHECKING:
    from acphold.schema import (
        ContentBlock,
        McpServer,
        SessionConfigOption,
        SessionInfo,
        SessionModeState,
    )
    from acphold.schema.methods import Method
    from acphold.testing.wire import Wire

P = TypeVar("P")
R = TypeVar("R")

DEADLINE = 30.0
"""Seconds any single wait may take: a test that hangs says so."""


class Client:
    """A client that is connected to an agent; made by `connect`.

    `journal` is the path of the agent's journal.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def agent(self) -> InitializeResponse:
        """What the agent answered to `initialize`."""
        return self._wire.hello

    @property
    def journal(self) -> Path:
        """The path of the agent's journal."""
        return self._wire.journal

    @property
    def asked(self) -> list[tuple[str, Any]]:
        """Every request of the agent, by method and params."""
        return self._wire.asked

    @property
    def notified(self) -> list[tuple[str, Any]]:
        """The agent's notifications that are no updates, by method and params."""
        return self._wire.notified

    @property
    def permissions(self) -> list[RequestPermissionRequest]:
        """The permission requests so far."""
        return self._wire.person.permissions

    @property
    def buffers(self) -> dict[str, str] | None:
        """Files that are open in the client, path to text, with what is not saved yet."""
        return self._wire.person.buffers

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
            self._wire, made.session_id, folder, modes=made.modes, options=made.config_options
        )

    async def load_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation after its replay, which is `replayed` in the result."""
        self._wire.forget(session_id)
        cwd = await self._folder(session_id)
        request = LoadSessionRequest(session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers))
        opened = await self.ask(LOAD_SESSION, request)
        return ClientSession(
            self._wire, session_id, cwd, modes=opened.modes, options=opened.config_options
        )

    async def resume_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation without a replay."""
        self._wire.forget(session_id)
        cwd = await self._folder(session_id)
        request = ResumeSessionRequest(
            session_id=session_id, cwd=cwd, mcp_servers=tuple(mcp_servers)
        )
        opened = await self.ask(RESUME_SESSION, request)
        return ClientSession(
            self._wire, session_id, cwd, modes=opened.modes, options=opened.config_options
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

    # -- everything else ------------------------------------------------------------------

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Any request, typed; RemoteError when it is refused."""
        return await self._wire.ask(method, params)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Any request, as JSON: an extension method for instance."""
        return await self._wire.call(method, params)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Any notification, as JSON."""
        self._wire.peer.tell(method, encode(dict(params)))

    def received(self, session_id: str, *, since: int = 0) -> Received:
        """The updates of a session from number `since` on."""
        return self._wire.received(session_id, since=since)

    async def until(self, found: Callable[[], R | None]) -> R:
        """Wait until `found()` is not None, asked again with everything that comes."""
        return await self._wire.until(found)

    async def restart(self, *, kill: bool = False) -> None:
        """End the agent and start it again on the same journal; sessions have to be loaded.

        With `kill` it gets no chance to put anything in order, as with SIGKILL: what is found
        afterwards is what the journal had at this instant.
        """
        await self._wire.restart(kill=kill)


class ClientSession:
    """A session as the client holds it.

    `modes` and `options` are what the agent answered when it was opened; `replayed` is what a load
    replayed.
    """

    def __init__(
        self,
        wire: Wire,
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
        self.replayed = wire.received(session_id)
        self._wire = wire

    @property
    def received(self) -> Received:
        """All updates this client was sent of the session so far, replayed ones included."""
        return self._wire.received(self.id)

    async def prompt(self, *content: str | ContentBlock) -> Result:
        """Run a turn to its end; RemoteError when it failed."""
        before = len(self.received.raws)
        blocks = tuple(TextContent(text=it) if isinstance(it, str) else it for it in content)
        answer = await self._wire.ask(PROMPT, PromptRequest(session_id=self.id, prompt=blocks))
        told = self._wire.received(self.id, since=before)
        return Result(told.updates, told.raws, answer.stop_reason)

    def begin(self, *content: str | ContentBlock) -> asyncio.Task[Result]:
        """Start a turn; `cancel` it, or await the task for its result."""
        return asyncio.create_task(self.prompt(*content), name="prompt")

    async def cancel(self) -> None:
        """Cancel the turn that runs."""
        await self._wire.peer.notify(CANCEL, CancelNotification(session_id=self.id))

    async def until(self, holds: Callable[[Received], object]) -> Received:
        """Wait until what was told fits, looked at with each update."""
        return await self._wire.until(lambda: self.received if holds(self.received) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, in this session at any time."""
        await self.until(lambda told: text in told.text)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode; RemoteError for an unknown one."""
        request = SetSessionModeRequest(session_id=self.id, mode_id=mode_id)
        await self._wire.ask(SET_SESSION_MODE, request)

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
        answer = await self._wire.ask(SET_SESSION_CONFIG_OPTION, request)
        return answer.config_options

    async def close(self) -> None:
        """Close it; it can be loaded again."""
        await self._wire.ask(CLOSE_SESSION, CloseSessionRequest(session_id=self.id))

    async def delete(self) -> None:
        """Delete it for good."""
        await self._wire.ask(DELETE_SESSION, DeleteSessionRequest(session_id=self.id))
