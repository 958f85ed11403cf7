"""The output of terminals at clients, kept as text: no later client knows the terminals.

An agent runs a command in a terminal of a client, or in one of ours if no client has any, and names
the terminal in a tool call. Its output passes here as the answer to `terminal/output`, and is
requested once more before the terminal is released. It is journalled with the tool calls that name
the terminal: before the release, and at the end of a turn if there is more. Source: spec v1,
terminals.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from acphold.agents import AgentRequest
from acphold.errors import AcpholdError, JournalError
from acphold.history.display_terminals import CUT, TEXT_BYTES, from_next_line, newest
from acphold.history.entries import TERMINAL
from acphold.history.raw_update import encode_text, items, members, string, tool_id, update_kind
from acphold.history.timeline import terminal_entry
from acphold.hub.attachment import Client
from acphold.hub.session import HubSession
from acphold.schema import CREATE_TERMINAL, RELEASE_TERMINAL, TERMINAL_OUTPUT, encode

log = logging.getLogger(__name__)

TERMINALS = 64
"""Most terminals of a session that are remembered; older ones are forgotten."""

CONTENT_BYTES = 1024 * 1024
"""Most bytes of tool calls with terminals remembered in a turn; older ones are forgotten."""

LAST_LOOK_SECONDS = 2.0
"""Seconds the client has to report a terminal's output before it is released all the same."""

Ask = Callable[[str, bytes], Awaitable[bytes]]
"""Sends a request to the client of a terminal, or to ours; raises as `Services.answer`."""


class TerminalText:
    """One terminal of `client`, None for ours. `has_ended` means that it will show nothing more."""

    def __init__(self, client: Client | None) -> None:
        self.client = client
        self.text: str | None = None
        self.has_ended = False
        self.is_released = False


class TerminalTexts:
    """The terminals of one session, and the tool calls that name them."""

    def __init__(self, session: HubSession) -> None:
        self._session = session
        self._terminals: dict[str, TerminalText] = {}
        self._contents: dict[str, bytes] = {}
        self._unwritten: set[str] = set()

    def find(self, asked: AgentRequest) -> TerminalText | None:
        """Return the terminal that a request is about; None if it is unknown."""
        return self._terminals.get(terminal_id(asked.params))

    @property
    def are_there(self) -> bool:
        """True if an update may name a terminal."""
        return bool(self._terminals)

    # -- what passes ----------------------------------------------------------------------

    async def pass_on(self, asked: AgentRequest, client: Client | None, ask: Ask) -> bytes:
        """Return the answer to a terminal request, of `client` or ours; raises as `ask`,
        JournalError."""
        terminal = self.find(asked)
        if asked.method == RELEASE_TERMINAL.name and terminal is not None:
            await self._look_again(terminal_id(asked.params), terminal, ask)
            await self.write()
            terminal.is_released = True
        answer = await ask(asked.method, asked.params)
        if asked.method == CREATE_TERMINAL.name and (made := terminal_id(answer)):
            self._terminals[made] = TerminalText(client)
            if len(self._terminals) > TERMINALS:
                del self._terminals[next(iter(self._terminals))]
        elif asked.method == TERMINAL_OUTPUT.name and terminal is not None:
            self._showed(terminal_id(asked.params), terminal, answer)
        return answer

    async def let_go(self, asked: AgentRequest) -> None:
        """Journal the output of a terminal whose client is gone. Raises JournalError."""
        if (terminal := self.find(asked)) is not None:
            await self.write()
            terminal.is_released = True

    async def _look_again(self, id_: str, terminal: TerminalText, ask: Ask) -> None:
        if terminal.has_ended or terminal.is_released:
            return
        params = encode({"sessionId": self._session.id, "terminalId": id_})
        try:
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                self._showed(id_, terminal, await ask(TERMINAL_OUTPUT.name, params))
        except (AcpholdError, TimeoutError) as exc:
            log.info("session %s: what a terminal showed is lost: %r", self._session.id, exc)

    def _showed(self, id_: str, terminal: TerminalText, answer: bytes) -> None:
        parts = members(answer)
        text = string(parts.get("output")) or ""
        if parts.get("truncated") == b"true" and not text.startswith(CUT):
            text = CUT + text
        text = _end_of(text, TEXT_BYTES)
        terminal.has_ended = parts.get("exitStatus", b"null") != b"null"
        if text != terminal.text:
            terminal.text = text
            self._unwritten |= {
                call for call, content in self._contents.items() if id_ in _named(content)
            }

    def see(self, update: bytes) -> None:
        """Take note of an update of the agent: it may name a terminal, or no longer name it."""
        if update_kind(update) not in ("tool_call", "tool_call_update"):
            return
        content = members(update).get("content", b"")
        call = tool_id(update)
        if not content.startswith(b"["):
            return
        self._contents.pop(call, None)
        self._unwritten.discard(call)
        if any(named in self._terminals for named in _named(content)):
            self._contents[call] = content
            self._unwritten.add(call)
            while sum(map(len, self._contents.values())) > CONTENT_BYTES:
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
            if not any(named in self._terminals for named in _named(content)):
                del self._contents[call]

    async def write(self) -> None:
        """Journal the texts that are not in the journal yet; raises JournalError."""
        while self._unwritten:
            call = self._unwritten.pop()
            content = self._contents.get(call, b"[]")
            known = [self._terminals.get(named) for named in _named(content)]
            shown = [terminal for terminal in known if terminal and terminal.text is not None]
            if shown:
                entry = terminal_entry(call, content, self._texts(content))
                # A client that shows all of these terminals itself is not sent their texts.
                owner, *others = {terminal.client for terminal in known if terminal}
                author = None if owner is None or others else self._session.attachments.find(owner)
                try:
                    await self._session.publish(TERMINAL, [entry], author)
                except JournalError:
                    self._unwritten.add(call)  # a full disk, say: with the end of the next turn
                    raise

    def _texts(self, content: bytes) -> dict[str, str]:
        named = _named(content)
        texts: dict[str, str] = {}
        for id_ in named:
            terminal = self._terminals.get(id_)
            if terminal is not None and terminal.text is not None:
                texts[id_] = _end_of(terminal.text, TEXT_BYTES // len(named))
        return texts


def terminal_id(raw: bytes) -> str:
    """Return the `terminalId` in the params or result of a terminal method; "" if there is none."""
    return string(members(raw).get("terminalId")) or ""


def _named(content: bytes) -> list[str]:
    """Return the terminals that a tool call's content names."""
    if b'"terminalId"' not in content:
        return []
    return [named for item in items(content) if (named := terminal_id(item))]


def _end_of(text: str, room: int) -> str:
    """Return the end of a text, from the start of a line, that takes `room` bytes as JSON."""
    if newest(text, room) == text:
        return text
    return CUT + from_next_line(newest(text, room - len(encode_text(CUT))))
