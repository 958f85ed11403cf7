"""Files and terminals for the agent of one session: at a client, or else here.

The agent can rely on what it was told at `initialize`, whoever is attached. A file is requested
from the client whose prompt runs, if it can, else from another one that can, else it is served
here, inside the session's folders. The same goes for a command; its terminal stays where it was
made. When the client with the terminal leaves, every call about it ends with an error. Sources:
spec v1, file system; terminals.
"""

# See docs/decisions.md, 7.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from acphold.agents import AgentRequest
from acphold.errors import ConnectionLostError, MethodNotFoundError, UnknownTerminalError
from acphold.hub.attachment import Client
from acphold.hub.client_request import TERMINAL_METHODS, can_answer, covers
from acphold.hub.questions import Questions
from acphold.hub.session import HubSession
from acphold.hub.terminal_texts import TerminalTexts, terminal_id
from acphold.schema import (
    CREATE_TERMINAL,
    KILL_TERMINAL,
    READ_TEXT_FILE,
    RELEASE_TERMINAL,
    TERMINAL_OUTPUT,
    WAIT_FOR_TERMINAL_EXIT,
    WRITE_TEXT_FILE,
    ClientCapabilities,
)

if TYPE_CHECKING:
    from acphold.workspace.workspace import Workspace

SERVED = frozenset(
    method.name
    for method in (
        READ_TEXT_FILE,
        WRITE_TEXT_FILE,
        CREATE_TERMINAL,
        TERMINAL_OUTPUT,
        WAIT_FOR_TERMINAL_EXIT,
        KILL_TERMINAL,
        RELEASE_TERMINAL,
    )
)
"""Methods that `acphold.workspace` answers."""

GONE = "the client that had terminal {!r} has gone, and nobody else has it; create a new one"


class Services:
    """See the module. `offered` returns the client capabilities that the agent was told."""

    def __init__(
        self,
        session: HubSession,
        questions: Questions,
        texts: TerminalTexts,
        offered: Callable[[], ClientCapabilities],
    ) -> None:
        self._session = session
        self._questions = questions
        self._texts = texts
        self._offered = offered
        self._stand_in = StandIn(session)

    async def answer(self, asked: AgentRequest, prompting: Client | None) -> bytes:
        """Answer a request for a file or a terminal; `prompting` is the client of the running turn.

        Raises MethodNotFoundError for a capability that the agent was not told of,
        UnknownTerminalError for a terminal that is gone with its client, RemoteError,
        WorkspaceError and JournalError.
        """
        if asked.method.startswith(TERMINAL_METHODS):
            return await self._terminal(asked, prompting)
        while True:
            by = self._who_serves(asked, prompting)
            try:
                return await self._ask(asked, by)
            except ConnectionLostError:
                if by is None:
                    raise
                # The client has gone: ask another one. Reading or writing a file twice does no
                # harm.

    async def _terminal(self, asked: AgentRequest, prompting: Client | None) -> bytes:
        terminal = self._texts.find(asked)
        if terminal is not None:
            by = terminal.client
            if by is not None and self._session.attachments.find(by) is None:
                return await self._gone(asked)
        elif asked.method != CREATE_TERMINAL.name and self._stand_in.has(terminal_id(asked.params)):
            by = None
        else:
            by = self._who_serves(asked, prompting)

        async def ask(method: str, params: bytes) -> bytes:
            return await self._ask(AgentRequest(method, params, asked.child), by)

        try:
            answer = await self._texts.pass_on(asked, by, ask)
            if asked.method == CREATE_TERMINAL.name:
                self._session.attachments.made_terminal(terminal_id(answer), by)
            return answer
        except ConnectionLostError:
            if by is None or asked.method == CREATE_TERMINAL.name:
                raise
            return await self._gone(asked)

    async def _gone(self, asked: AgentRequest) -> bytes:
        """Answer for a terminal that went with its client: it can only be released."""
        if asked.method == RELEASE_TERMINAL.name:
            await self._texts.let_go(asked)
            return b"{}"
        id_ = terminal_id(asked.params)
        raise UnknownTerminalError(id_, GONE.format(id_))

    def _who_serves(self, asked: AgentRequest, prompting: Client | None) -> Client | None:
        """Return the client that is to do this; None for acphold itself."""
        clients = [attachment.client for attachment in self._session.attachments]
        if prompting in clients:
            clients.insert(0, prompting)
        for client in clients:
            if can_answer(client, asked, self._session.id):
                return client
        if asked.method not in SERVED or not covers(self._offered(), asked):
            raise MethodNotFoundError(asked.method)
        return None

    async def _ask(self, asked: AgentRequest, by: Client | None) -> bytes:
        if by is None:
            return await self._stand_in.answer(asked)
        return await self._questions.relay(asked, by)

    async def aclose(self) -> None:
        """End the commands that run here."""
        await self._stand_in.aclose()


class StandIn:
    """Serves files and terminals if no client does, inside the session's folders.

    When a client opens the session with other folders, existing terminals stay as they are.
    """

    def __init__(self, session: HubSession) -> None:
        self._session = session
        self._workspaces: dict[tuple[str, ...], Workspace] = {}
        self._closed = False

    def has(self, id_: str) -> bool:
        """Return True if a terminal with this id was made here."""
        return any(id_ in workspace.terminals for workspace in self._workspaces.values())

    async def answer(self, asked: AgentRequest) -> bytes:
        """Answer an ACP client method; raises WorkspaceError and InvalidParamsError."""
        id_ = terminal_id(asked.params)
        for workspace in self._workspaces.values():
            if id_ in workspace.terminals:
                return await workspace.answer(asked.method, asked.params)
        from acphold.workspace.roots import Roots
        from acphold.workspace.workspace import Workspace

        folders = self._session.row.folders
        if folders not in self._workspaces:
            # In a thread: it resolves the folders in the file system.
            roots = await asyncio.to_thread(Roots, folders[0], folders[1:])
            if self._closed:
                raise ConnectionLostError("the session was closed")
            self._workspaces.setdefault(folders, Workspace(roots))
        return await self._workspaces[folders].answer(asked.method, asked.params)

    async def aclose(self) -> None:
        """End what runs; may be called again."""
        self._closed = True
        await asyncio.gather(*(workspace.aclose() for workspace in self._workspaces.values()))
