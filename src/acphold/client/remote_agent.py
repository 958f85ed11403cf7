"""An agent as its client sees it: its name, its capabilities, and its sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from acp_wire.schema import (
    AUTHENTICATE,
    DELETE_SESSION,
    LIST_SESSIONS,
    LOAD_SESSION,
    LOGOUT,
    NEW_SESSION,
    RESUME_SESSION,
    AgentCapabilities,
    AuthMethodTerminal,
    Implementation,
    InitializeResponse,
    ListSessionsRequest,
    LoadSessionRequest,
    McpServer,
    NewSessionRequest,
    ResumeSessionRequest,
    SessionInfo,
    decode,
    encode,
)
from acp_wire.schema.initialize import AuthMethod
from acphold.client import bounds
from acphold.client.advertised import Folder, OpenOptions, absolute
from acphold.client.remote_session import RemoteSession
from acphold.client.session_feed import SessionFeed
from acphold.errors import AcpError, AgentError, CapabilityError, ConnectionLostError
from acphold.live.hub.annotations import AGENT

if TYPE_CHECKING:
    from acp_wire.schema import Method
    from acphold.client.uplink import Uplink

    Continuing = Method[LoadSessionRequest, Any] | Method[ResumeSessionRequest, Any]

P = TypeVar("P")
R = TypeVar("R")


class RemoteAgent:
    """An agent that we are connected to; made by `acphold.connect`.

    All methods raise CapabilityError, before anything is sent, if the agent did not advertise it;
    RemoteError if it refuses, AuthRequiredError if it requires a sign-in; AgentExitedError or
    ConnectionLostError if it has gone; AgentTimeoutError after two minutes of silence. Relative
    paths start at this program's folder.
    """

    def __init__(self, uplink: Uplink, *, cwd: str) -> None:
        self._uplink = uplink
        self._cwd = cwd

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.name!r}{' that is lost' if self.is_lost else ''}>"

    # -- who it is ------------------------------------------------------------------------

    @property
    def initialized(self) -> InitializeResponse:
        """Its answer to `initialize`."""
        return self._uplink.hello

    @property
    def info(self) -> Implementation | None:
        """Its introduction."""
        return self._uplink.hello.agent_info

    @property
    def name(self) -> str:
        """Its name for people."""
        return self._uplink.advertised.name

    @property
    def capabilities(self) -> AgentCapabilities:
        """Its advertised capabilities."""
        return self._uplink.hello.agent_capabilities

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:
        """The ways to sign in that it offers."""
        return self._uplink.hello.auth_methods

    @property
    def is_lost(self) -> bool:
        """True if it has gone."""
        return not self._uplink.is_open

    # -- sessions -------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: Folder | None = None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] = (),
    ) -> RemoteSession:
        """Begin a conversation, by default in the folder of `connect`."""
        roots, servers = self._setup(cwd, mcp_servers, additional_directories)
        request = NewSessionRequest(
            cwd=roots[0], mcp_servers=servers, additional_directories=roots[1:]
        )
        made: list[SessionFeed] = []

        def take(answer: bytes) -> None:
            session_id = decode(NEW_SESSION.result, answer).value.session_id
            feed = self._feed(session_id, roots, servers)
            feed.begin_live(answer)
            self._uplink.adopt(session_id, feed)
            made.append(feed)

        with self._uplink.making():
            await self._uplink.ask_raw(NEW_SESSION.name, encode(request), on_result=take)
        return self._session(made[0])

    async def load_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> RemoteSession:
        """Continue a conversation; the agent's replay of it is in `replay`.

        `session` is an id, or an item of `sessions`, which brings its folders.
        """
        self._uplink.advertised.to_load()
        return await self._open(LOAD_SESSION, session, cwd, **options)

    async def resume_session(
        self,
        session: str | SessionInfo,
        cwd: Folder | None = None,
        **options: Unpack[OpenOptions],
    ) -> RemoteSession:
        """Continue a conversation without a replay; otherwise as `load_session`."""
        self._uplink.advertised.check("resume")
        return await self._open(RESUME_SESSION, session, cwd, **options)

    async def sessions(self, cwd: Folder | None = None) -> AsyncIterator[SessionInfo]:
        """Yield the agent's sessions, or those of a folder.

        The first pages are read again after the last, for sessions that moved to the top meanwhile.
        """
        self._uplink.advertised.check("list")
        folder = None if cwd is None else absolute(cwd)
        seen: set[str] = set()
        for walk in range(bounds.LIST_WALKS):
            cursor: str | None = None
            visited: set[str | None] = set()
            while cursor not in visited:  # else that was the last, or it would never end
                visited.add(cursor)
                page = await self._uplink.ask(
                    LIST_SESSIONS, ListSessionsRequest(cwd=folder, cursor=cursor)
                )
                cursor = page.next_cursor
                seen_before = len(seen)
                for info in page.sessions:
                    if info.session_id not in seen:
                        seen.add(info.session_id)
                        yield info
                if walk and len(seen) == seen_before:
                    break
            if len(visited) == 1:
                return

    async def delete_session(self, session_id: str) -> None:
        """Delete a conversation for good."""
        self._uplink.advertised.check("delete")
        await self._uplink.ask(DELETE_SESSION, DELETE_SESSION.params(session_id=session_id))

    # -- signing in -----------------------------------------------------------------------

    async def authenticate(self, method_id: str) -> None:
        """Sign in by one of `auth_methods`; a person may have to do something meanwhile.
        CapabilityError if it is not offered, or is for a terminal: run the agent's command
        yourself, with the method's `args` and `env`, and connect again.
        """
        method = next((it for it in self.auth_methods if it.id == method_id), None)
        if method is None:
            offered = ", ".join(repr(it.id) for it in self.auth_methods)
            others = f"only {offered}" if offered else "nor any other"
            raise CapabilityError(f"{self.name} does not offer the sign-in {method_id!r}, {others}")
        if isinstance(method, AuthMethodTerminal):
            arguments = " ".join(method.args)
            raise CapabilityError(
                f"{method_id!r} needs a terminal: run {self._uplink.name} {arguments} in one, and "
                "connect again"
            )
        await self._uplink.ask(AUTHENTICATE, AUTHENTICATE.params(method_id=method_id))

    async def logout(self) -> None:
        """Sign out."""
        self._uplink.advertised.to_log_out()
        await self._uplink.ask(LOGOUT, LOGOUT.params())

    # -- extensions -----------------------------------------------------------------------

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request of an extension."""
        return msgspec.json.decode(await self._uplink.ask_raw(method, encode(dict(params))))

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Send a request of the protocol, unchecked."""
        return await self._uplink.ask(method, params)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification of an extension."""
        self._uplink.tell(method, encode(dict(params)))

    # -- opening --------------------------------------------------------------------------

    def _setup(
        self, cwd: Folder | None, servers: Sequence[McpServer], additional: Sequence[Folder]
    ) -> tuple[tuple[str, ...], tuple[McpServer, ...]]:
        """Return the roots of a session, absolute, and its servers; CapabilityError."""
        advertised = self._uplink.advertised
        folder = self._cwd if cwd is None else absolute(cwd)
        return (folder, *advertised.directories(additional)), advertised.servers(servers)

    def _session(self, feed: SessionFeed) -> RemoteSession:
        return RemoteSession(feed, self._uplink)

    def _feed(
        self, session_id: str, roots: Sequence[str], servers: Sequence[McpServer]
    ) -> SessionFeed:
        async def reopen(feed: SessionFeed) -> None:
            # After a restart of the agent; if it cannot, the session is lost.
            try:
                if self.capabilities.load_session:
                    await self._continue(feed, servers, LOAD_SESSION, again=False)
                elif self.capabilities.session_capabilities.resume is not None:
                    await self._continue(feed, servers, RESUME_SESSION, again=False)
                else:
                    raise CapabilityError(
                        f"{self.name} has restarted and lost session {feed.id!r}, because it can "
                        "neither load nor resume sessions; with durable=True, acphold keeps them"
                    )
            except AgentError:
                raise  # it has gone again: not a problem of this session
            except AcpError as error:
                self._uplink.drop(feed.id, feed)
                feed.end(error)

        return SessionFeed(self._uplink, session_id, roots, reopen)

    async def _open(
        self,
        method: Continuing,
        session: str | SessionInfo,
        cwd: Folder | None,
        *,
        mcp_servers: Sequence[McpServer] = (),
        additional_directories: Sequence[Folder] | None = None,
        agent: str | None = None,
    ) -> RemoteSession:
        """Open a session that the agent knows; one with its id that is open here is closed."""
        if not isinstance(session, str):
            cwd = session.cwd if cwd is None else cwd
            if additional_directories is None:
                additional_directories = session.additional_directories
            session = session.session_id
        roots, servers = self._setup(cwd, mcp_servers, additional_directories or ())
        feed = self._feed(session, roots, servers)
        feed.continued_by = agent
        await self._uplink.ready()  # a restarted agent reopens the sessions it finds there
        before = self._uplink.sessions.get(feed.id)
        self._uplink.adopt(feed.id, feed)
        try:
            await self._continue(feed, servers, method)
        except BaseException:
            self._uplink.drop(feed.id, feed)
            if before is not None:
                self._uplink.adopt(feed.id, before)
            raise
        if before is not None:
            before.end(ConnectionLostError(f"session {feed.id!r} was opened again"))
        return self._session(feed)

    async def _continue(
        self,
        feed: SessionFeed,
        servers: Sequence[McpServer],
        method: Continuing,
        *,
        again: bool = True,
    ) -> None:
        """Have the agent open a session that it knows, by this method."""
        request = method.params(
            session_id=feed.id,
            cwd=feed.roots[0],
            mcp_servers=tuple(servers),
            additional_directories=feed.roots[1:],
            meta=None if feed.continued_by is None else {AGENT: feed.continued_by},
        )
        opened = feed.begin_live
        if method is LOAD_SESSION:
            feed.replay_begins()
            opened = feed.replay_ended
        await self._uplink.ask_raw(method.name, encode(request), on_result=opened, again=again)
