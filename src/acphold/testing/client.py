"""The client in memory and its sessions: the library's own client, watched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from acphold.errors import UnknownSessionError
from acphold.schema import PROMPT, SET_SESSION_MODE, PromptRequest, SetSessionModeRequest
from acphold.testing.received import Received, Result

if TYPE_CHECKING:
    from acphold.client import RemoteSession
    from acphold.client.prompt_content import Content
    from acphold.client.remote_session import ConfigOption
    from acphold.schema import (
        InitializeResponse,
        McpServer,
        RequestPermissionRequest,
        SessionInfo,
        SessionModeState,
    )
    from acphold.schema.methods import Method
    from acphold.testing.wire import Wire

P = TypeVar("P")
R = TypeVar("R")


class Client:
    """A client that is connected to an agent; made by `connect`.

    `journal` is the path of the agent's journal.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def agent(self) -> InitializeResponse:
        """What the agent answered to `initialize`."""
        return self._wire.agent.initialized

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
        made = self._wire.agent.new_session(
            cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
        )
        return ClientSession(self._wire, await self._wire.in_time(made))

    async def load_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation after its replay, which is `replayed` in the result."""
        self._wire.forget(session_id)
        cwd = await self._folder(session_id)
        opened = self._wire.agent.load_session(session_id, cwd, mcp_servers=mcp_servers)
        return ClientSession(self._wire, await self._wire.in_time(opened))

    async def resume_session(
        self, session_id: str, *, mcp_servers: Sequence[McpServer] = ()
    ) -> ClientSession:
        """Go on with a conversation without a replay."""
        self._wire.forget(session_id)
        cwd = await self._folder(session_id)
        opened = self._wire.agent.resume_session(session_id, cwd, mcp_servers=mcp_servers)
        return ClientSession(self._wire, await self._wire.in_time(opened))

    async def sessions(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionInfo]:
        """All sessions, newest first; those of one folder with `cwd`."""
        return [info async for info in self._wire.agent.sessions(cwd)]

    async def _folder(self, session_id: str) -> str:
        for info in await self.sessions():
            if info.session_id == session_id:
                return info.cwd
        raise UnknownSessionError(session_id)

    # -- everything else ------------------------------------------------------------------

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Any request, typed; RemoteError when it is refused."""
        return await self._wire.in_time(self._wire.agent.ask(method, params))

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Any request, as JSON: an extension method for instance."""
        return await self._wire.in_time(self._wire.agent.call(method, params))

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Any notification, as JSON."""
        self._wire.agent.notify(method, params)

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

    `id` and `cwd` are its id and folder; `modes` and `options` are what the agent answered when it
    was opened; `replayed` is what a load replayed.
    """

    def __init__(self, wire: Wire, session: RemoteSession) -> None:
        self.id = session.id
        self.cwd = session.cwd
        self.modes: SessionModeState | None = session.modes
        self.options: tuple[ConfigOption, ...] = session.options
        self.replayed = wire.received(session.id)
        self._session = session
        self._wire = wire

    @property
    def received(self) -> Received:
        """All updates this client was sent of the session so far, replayed ones included."""
        return self._wire.received(self.id)

    async def prompt(self, *content: Content) -> Result:
        """Run a turn to its end; RemoteError when it failed."""

        async def run() -> str:
            if self._session.in_turn:  # what the client refuses to send, a test may want to
                blocks = self._session.blocks(*content)
                request = PromptRequest(session_id=self.id, prompt=blocks)
                return (await self._wire.agent.ask(PROMPT, request)).stop_reason
            return (await self._session.prompt(*content)).stop_reason or ""

        before = len(self.received.raws)
        reason = await self._wire.in_time(run())
        told = self._wire.received(self.id, since=before)
        return Result(told.updates, told.raws, reason)

    def begin(self, *content: Content) -> asyncio.Task[Result]:
        """Start a turn; `cancel` it, or await the task for its result."""
        return asyncio.create_task(self.prompt(*content), name="prompt")

    async def cancel(self) -> None:
        """Cancel the turn that runs."""
        self._session.cancel()

    async def until(self, holds: Callable[[Received], object]) -> Received:
        """Wait until what was told fits, looked at with each update."""
        return await self._wire.until(lambda: self.received if holds(self.received) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, in this session at any time."""
        await self.until(lambda told: text in told.text)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode, by that method; RemoteError for an unknown one."""
        request = SetSessionModeRequest(session_id=self.id, mode_id=mode_id)
        await self._wire.in_time(self._wire.agent.ask(SET_SESSION_MODE, request))

    async def set_option(self, option_id: str, value: str | bool) -> tuple[ConfigOption, ...]:
        """Change a config option; all of them as they stand then."""
        return await self._wire.in_time(self._session.set_option(option_id, value))

    async def close(self) -> None:
        """Close it; it can be loaded again."""
        await self._wire.in_time(self._session.close())

    async def delete(self) -> None:
        """Delete it for good."""
        await self._wire.in_time(self._wire.agent.delete_session(self.id))
