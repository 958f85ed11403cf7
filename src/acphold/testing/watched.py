"""The library's own client for a test: with a record of everything, and a restart of the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from acphold.client import RemoteAgent, RemoteSession, RemoteTurn
from acphold.client.advertised import served
from acphold.errors import UnknownSessionError
from acphold.testing.recorded_connection import Received

if TYPE_CHECKING:
    from acphold.client.advertised import Advertised, Folder
    from acphold.client.prompt_content import Content
    from acphold.client.session_feed import SessionFeed
    from acphold.client.turn_feed import TurnFeed
    from acphold.client.uplink import Uplink
    from acphold.schema import McpServer, RequestPermissionRequest, SessionInfo, Update
    from acphold.testing.recorded_connection import Recording

R = TypeVar("R")


class WatchedAgent(RemoteAgent):
    """The agent under test, as from `acphold.connect`, with a record of what came.

    Made by `acphold.testing.connect`.
    """

    def __init__(
        self, recording: Recording, files: Mapping[str, str] | None, *, serves_files: bool
    ) -> None:
        super().__init__(recording.uplink, cwd=str(recording.journal.parent))
        self._recording = recording
        self._files = files
        self._serves_files = serves_files

    @property
    def journal(self) -> Path:
        """The path of the agent's journal."""
        return self._recording.journal

    @property
    def asked(self) -> list[tuple[str, Any]]:
        """Every request of the agent, by method and params."""
        return self._recording.asked

    @property
    def notified(self) -> list[tuple[str, Any]]:
        """The agent's notifications other than updates, by method and params."""
        return self._recording.notified

    @property
    def permissions(self) -> list[RequestPermissionRequest]:
        """The permission requests so far."""
        return self._recording.permissions

    @property
    def files(self) -> Mapping[str, str]:
        """The files given to `connect`, by path, with their current texts."""
        return self._files or {}

    def received(self, session_id: str, *, since: int = 0) -> Received:
        """Return the updates of a session from number `since` on."""
        return self._recording.received(session_id)(since)

    async def until(self, found: Callable[[], R | None]) -> R:
        """Wait until `found()` is not None; it is called again for everything that arrives."""
        return await self._recording.until(found)

    async def restart(self, *, kill: bool = False) -> None:
        """End the agent and start it again on the same journal; sessions have to be loaded again.

        With `kill` it gets no chance to clean up, as with SIGKILL: afterwards there is exactly what
        the journal had at this instant.
        """
        await self._recording.restart(kill=kill)
        self._uplink = self._recording.uplink

    # -- sessions -------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] = (),
    ) -> WatchedSession:
        """Begin a conversation, by default in the folder that the journal is in."""
        if self._serves_files and cwd is not None:
            served(cwd)
        made = await super().new_session(
            cwd, mcp_servers=mcp_servers, additional_directories=additional_directories
        )
        return self._watched(made)

    async def load_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] | None = None,
        agent: str | None = None,
    ) -> WatchedSession:
        """Continue a conversation, by default in its folder; see `RemoteAgent.load_session`."""
        known = await self._listed(session)
        self._recording.forget(known.session_id)
        opened = await super().load_session(
            known,
            cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
            agent=agent,
        )
        return self._watched(opened)

    async def resume_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] | None = None,
        agent: str | None = None,
    ) -> WatchedSession:
        """Continue a conversation without a replay; otherwise as `load_session`."""
        known = await self._listed(session)
        self._recording.forget(known.session_id)
        opened = await super().resume_session(
            known,
            cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
            agent=agent,
        )
        return self._watched(opened)

    async def _listed(self, session: str | SessionInfo) -> SessionInfo:
        if not isinstance(session, str):
            return session
        async for info in self.sessions():
            if info.session_id == session:
                return info
        raise UnknownSessionError(session)

    def _session(self, feed: SessionFeed) -> WatchedSession:
        return WatchedSession(feed, self._uplink, self._advertised, self._recording)

    def _watched(self, session: RemoteSession) -> WatchedSession:
        assert isinstance(session, WatchedSession)  # `_session` makes only these
        return session


class WatchedSession(RemoteSession):
    """A session of the agent under test, with a record of it."""

    def __init__(
        self,
        feed: SessionFeed,
        uplink: Uplink,
        advertised: Callable[[], Advertised],
        recording: Recording,
    ) -> None:
        super().__init__(feed, uplink, advertised)
        self._recording = recording

    @property
    def received(self) -> Received:
        """All updates of the session so far, including a load's replay."""
        return self._recording.received(self.id)(0)

    def prompt(self, *content: Content, timeout: float | None = None) -> WatchedTurn:
        """Begin a turn: see `RemoteSession.prompt`. It ends within the deadline of the test."""
        since = len(self.received.raws)
        turn = self._begin(content, self._recording.deadline if timeout is None else timeout)
        return WatchedTurn(turn, self._recording, self._recording.received(self.id), since)

    async def until(self, holds: Callable[[Received], object]) -> Received:
        """Wait until the received updates satisfy `holds`, called for each update."""
        return await self._recording.until(lambda: self.received if holds(self.received) else None)

    async def until_said(self, text: str) -> None:
        """Wait until the agent has said this, at any time in this session."""
        await self.until(lambda received: text in received.text)


class WatchedTurn(RemoteTurn):
    """A turn of the agent under test, with a record of it.

    An exception of the agent's code is raised at its end.
    """

    def __init__(
        self,
        turn: TurnFeed,
        recording: Recording,
        received: Callable[[int], Received],
        since: int,
    ) -> None:
        super().__init__(turn)
        self._recording = recording
        self._received = received
        self._since = since

    @property
    def received(self) -> Received:
        """All updates of the session since the prompt."""
        return self._received(self._since)

    async def __anext__(self) -> Update:
        with self._recording.raising():
            return await super().__anext__()

    async def take_all(self) -> list[bytes]:
        with self._recording.raising():
            return await super().take_all()
