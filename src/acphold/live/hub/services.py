"""Files and terminals for the agent of one session: at a client, or else here.

The agent can rely on what it was told at `initialize`, whoever is attached. A file is requested
from the client whose prompt runs, if it can, else from another one that can, else it is served
here, inside the session's folders. The same goes for a command; its terminal stays where it was
made. When the client with the terminal leaves, every call about it ends with an error.

An agent names a terminal in a tool call. The terminal's output passes here as the answer to
`terminal/output`, and is requested once more before the terminal is released. It is journalled with
the tool calls that name the terminal: before the release, and at the end of a turn if there is
more. Sources: spec v1, file system; terminals.
"""

# See docs/decisions.md, 7.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_wire import schema
from acp_wire.newest import Newest
from acp_wire.surroundings import Surroundings
from acp_wire.tasks import timeout
from acp_wire.workspace.threads import Threads
from acphold import errors
from acphold.conversation.history.display_terminals import CUT, TEXT_BYTES, from_next_line, newest
from acphold.conversation.history.entries import TERMINAL
from acphold.conversation.history.raw_update import (
    TOOL_KINDS,
    encode_text,
    items,
    members,
    string,
    tool_id,
    update_kind,
)
from acphold.conversation.history.timeline import terminal_entry
from acphold.live.agents.interface import AgentRequest, update_of
from acphold.live.hub import bounds
from acphold.live.hub.attachment import Client
from acphold.live.hub.questions import TERMINAL_METHODS, Questions, can_answer, covers
from acphold.live.hub.session import HubSession
from acphold.live.hub.shared_parts import SharedParts

if TYPE_CHECKING:
    from acp_wire.workspace.workspace import Workspace

log = logging.getLogger(__name__)


Ask = Callable[[str, bytes], Awaitable[bytes]]
"""Sends a request to the client of a terminal, or to ours; raises as `Services.answer`."""


class TerminalText(Struct, eq=False):
    """One terminal of `client`, None for ours. `has_ended` means that it will show nothing more."""

    client: Client | None
    text: str | None = None
    has_ended: bool = False
    is_released: bool = False


class TerminalTexts:
    """The terminals of one session, and the tool calls that name them."""

    def __init__(self, session: HubSession) -> None:
        self._session = session
        self._terminals: Newest[str, TerminalText] = Newest(bounds.TERMINAL_TEXTS)
        self._contents: dict[str, bytes] = {}
        self._unwritten: set[str] = set()

    def find(self, asked: AgentRequest) -> TerminalText | None:
        """Return the terminal that a request is about; None if it is unknown."""
        return self._terminals.get(terminal_id(asked.params))

    # -- what passes ----------------------------------------------------------------------

    async def pass_on(self, asked: AgentRequest, client: Client | None, ask: Ask) -> bytes:
        """Return the answer to a terminal request, of `client` or ours; raises as `ask`,
        JournalError."""
        terminal = self.find(asked)
        if asked.method == schema.RELEASE_TERMINAL.name and terminal is not None:
            if not (terminal.has_ended or terminal.is_released):  # a last look
                id_ = terminal_id(asked.params)
                params = schema.encode({"sessionId": self._session.id, "terminalId": id_})
                try:
                    async with timeout(bounds.LAST_OUTPUT_SECONDS):
                        self._note_output(
                            id_, terminal, await ask(schema.TERMINAL_OUTPUT.name, params)
                        )
                except (errors.AcpError, TimeoutError) as exc:
                    lost = "session %s: the last output of a terminal is lost: %r"
                    log.info(lost, self._session.id, exc)
            await self.write()
            terminal.is_released = True
        answer = await ask(asked.method, asked.params)
        if asked.method == schema.CREATE_TERMINAL.name and (made := terminal_id(answer)):
            self._terminals[made] = TerminalText(client)
        elif asked.method == schema.TERMINAL_OUTPUT.name and terminal is not None:
            self._note_output(terminal_id(asked.params), terminal, answer)
        return answer

    def _note_output(self, id_: str, terminal: TerminalText, answer: bytes) -> None:
        parts = members(answer)
        text = string(parts.get("output")) or ""
        if parts.get("truncated") == b"true" and not text.startswith(CUT):
            text = CUT + text
        text = _end_of(text, TEXT_BYTES)
        terminal.has_ended = parts.get("exitStatus", b"null") != b"null"
        if text != terminal.text:
            terminal.text = text
            self._unwritten |= {
                call for call, content in self._contents.items() if id_ in _terminal_ids(content)
            }

    def see(self, kind: str, raw: bytes) -> None:
        """Take note of an item of a run: its update may name a terminal, or no longer name it."""
        if not self._terminals:  # mostly: then nothing is decoded
            return
        update = update_of(kind, raw)
        if update_kind(update) not in TOOL_KINDS:
            return
        content = members(update).get("content", b"")
        call = tool_id(update)
        if not content.startswith(b"["):
            return
        self._contents.pop(call, None)
        self._unwritten.discard(call)
        if any(named in self._terminals for named in _terminal_ids(content)):
            self._contents[call] = content
            self._unwritten.add(call)
            while sum(map(len, self._contents.values())) > bounds.TERMINAL_CALLS_BYTES:
                del self._contents[next(iter(self._contents))]

    # -- what is kept ---------------------------------------------------------------------

    async def turn_over(self) -> None:
        """Journal the output so far; forget released terminals. Raises JournalError."""
        if not self._terminals:
            return  # no tool call names one then
        await self.write()
        for id_, terminal in tuple(self._terminals.items()):
            if terminal.is_released:
                del self._terminals[id_]
        for call, content in tuple(self._contents.items()):
            if not any(named in self._terminals for named in _terminal_ids(content)):
                del self._contents[call]

    async def write(self) -> None:
        """Journal the texts that are not in the journal yet; raises JournalError."""
        while self._unwritten:
            call = self._unwritten.pop()
            content = self._contents.get(call, b"[]")
            named = _terminal_ids(content)
            known = {id_: self._terminals[id_] for id_ in named if id_ in self._terminals}
            texts = {
                id_: _end_of(terminal.text, TEXT_BYTES // len(named))
                for id_, terminal in known.items()
                if terminal.text is not None
            }
            if texts:
                entry = terminal_entry(call, content, texts)
                # A client that shows all of these terminals itself is not sent their texts.
                owner, *others = {terminal.client for terminal in known.values()}
                author = None if owner is None or others else self._session.attachments.find(owner)
                try:
                    await self._session.publish(TERMINAL, [entry], author)
                except errors.JournalError:
                    self._unwritten.add(call)  # a full disk, say: with the end of the next turn
                    raise


def terminal_id(raw: bytes) -> str:
    """Return the `terminalId` in the params or result of a terminal method; "" if there is none."""
    return string(members(raw).get("terminalId")) or ""


def _terminal_ids(content: bytes) -> list[str]:
    """Return the terminals that a tool call's content names."""
    if b'"terminalId"' not in content:
        return []
    return [named for item in items(content) if (named := terminal_id(item))]


def _end_of(text: str, room: int) -> str:
    """Return the end of a text, from the start of a line, that takes `room` bytes as JSON."""
    if newest(text, room) == text:
        return text
    return CUT + from_next_line(newest(text, room - len(encode_text(CUT))))


GONE = "terminal {!r} is gone: the client that ran it has disconnected; create a new one"


class Services(Struct, eq=False):
    """Answers the agent's requests for files and terminals.

    When a client opens the session with other folders, or the agent starts again in other
    surroundings, terminals that were made here stay as they
    are.
    """

    _session: HubSession
    _questions: Questions
    _texts: TerminalTexts
    _shared: SharedParts
    _workspaces: dict[tuple[tuple[str, ...], Surroundings], Workspace] = {}
    _closed: bool = False

    async def answer(self, asked: AgentRequest, prompting: Client | None) -> bytes:
        """Answer a request for a file or a terminal; `prompting` is the client of the running turn.

        Raises MethodNotFoundError for a capability that the agent was not told of,
        UnknownTerminalError for a terminal that is gone with its client, RemoteError,
        WorkspaceError and JournalError.
        """
        if not asked.method.startswith(TERMINAL_METHODS):
            while True:
                by = self._server_of(asked, prompting)
                try:
                    return await self._ask(asked, by)
                except errors.ConnectionLostError:
                    if by is None:
                        raise
                    # The client has gone: ask another one. Reading or writing a file twice does no
                    # harm.

        terminal = self._texts.find(asked)
        if terminal is not None:
            by = terminal.client
            if by is not None and self._session.attachments.find(by) is None:
                return await self._answer_gone(asked)
        elif asked.method != schema.CREATE_TERMINAL.name and self._maker_of(asked) is not None:
            by = None
        else:
            by = self._server_of(asked, prompting)

        async def ask(method: str, params: bytes) -> bytes:
            return await self._ask(AgentRequest(method, params, asked.child), by)

        try:
            answer = await self._texts.pass_on(asked, by, ask)
            if asked.method == schema.CREATE_TERMINAL.name:
                self._session.attachments.note_terminal(terminal_id(answer), by)
            return answer
        except errors.ConnectionLostError:
            if by is None or asked.method == schema.CREATE_TERMINAL.name:
                raise
            return await self._answer_gone(asked)

    async def _answer_gone(self, asked: AgentRequest) -> bytes:
        """Answer for a terminal that went with its client: it can only be released."""
        if asked.method == schema.RELEASE_TERMINAL.name:
            if (terminal := self._texts.find(asked)) is not None:
                await self._texts.write()
                terminal.is_released = True
            return b"{}"
        id_ = terminal_id(asked.params)
        raise errors.UnknownTerminalError(id_, GONE.format(id_))

    def _server_of(self, asked: AgentRequest, prompting: Client | None) -> Client | None:
        """Return the client that is to do this; None for acphold itself."""
        clients = [attachment.client for attachment in self._session.attachments]
        if prompting in clients:
            clients.insert(0, prompting)
        for client in clients:
            if can_answer(client, asked, self._session.id):
                return client
        if not covers(self._shared.offered, asked):
            raise errors.MethodNotFoundError(asked.method)
        return None

    def _maker_of(self, asked: AgentRequest) -> Workspace | None:
        """Return the workspace in which the terminal of a request was made; None for none here."""
        id_ = terminal_id(asked.params)
        return next((it for it in self._workspaces.values() if id_ in it.terminals), None)

    async def _ask(self, asked: AgentRequest, by: Client | None) -> bytes:
        if by is not None:
            return await self._questions.relay(asked, by)
        if (workspace := self._maker_of(asked)) is None:
            from acp_wire.workspace.roots import Roots
            from acp_wire.workspace.workspace import Workspace

            folders = self._session.row.folders
            place = folders, self._shared.agent.surroundings
            if place not in self._workspaces:
                # It resolves the folders in the file system.
                roots = await Threads(1).run(Roots, folders[0], folders[1:])
                if self._closed:
                    raise errors.ConnectionLostError("the session was closed")
                self._workspaces.setdefault(place, Workspace(roots, place[1]))
            workspace = self._workspaces[place]
        return await workspace.answer(asked.method, asked.params)

    async def stop(self) -> None:
        """Stop the commands that run here, until `go_on`."""
        await asyncio.gather(*(it.terminals.stop() for it in self._workspaces.values()))

    async def go_on(self) -> None:
        """Have continue what `stop` has stopped."""
        await asyncio.gather(*(it.terminals.go_on() for it in self._workspaces.values()))

    async def aclose(self) -> None:
        """End the commands that run here; may be called again."""
        self._closed = True
        await asyncio.gather(*(workspace.aclose() for workspace in self._workspaces.values()))
