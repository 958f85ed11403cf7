"""The screen of `chat` and `attach`: on a terminal, or plain in a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec

from acphold.agents.capabilities import WATCHES
from acphold.cli.command_line import Exit, Parser
from acphold.cli.terminal_text import (
    LINE_TERMINALS,
    console,
    on_terminal,
    visible,
)
from acphold.transports.runtime_folder import state_folder

if TYPE_CHECKING:
    from acphold.client import Options, RemoteAgent, RemoteSession
    from acphold.client.policy import Rule
    from acphold.schema import ClientCapabilities
    from acphold.screen.answers import PersonAnswers
    from acphold.screen.chat import Chat

ENDS = {
    "completed": Exit.OK,
    "limited": Exit.LIMITED,
    "refused": Exit.REFUSED,
    "cancelled": Exit.CANCELLED,
    "failed": Exit.AGENT,
    "interrupted": Exit.AGENT,
}
"""The exit code for each outcome of a turn."""

HISTORY_PASSAGES = 100
"""What is shown of the history: a few screens, drawn in less than half a second."""


def add_look(parser: Parser) -> None:
    """`--no-color`."""
    parser.add_argument("--no-color", action="store_true", help="no colours, as with NO_COLOR")


class Seat:
    """A chat, who answers in it, and the options of the connection for it."""

    def __init__(self, *, permission: Rule | None, reads_only: bool, leaving: str) -> None:
        from acphold.screen.answers import PersonAnswers
        from acphold.screen.chat import Chat
        from acphold.screen.flow import Flow

        self.flow = Flow(thoughts="folded" if on_terminal() else "whole")
        self.reads_only = reads_only
        self.chat: Chat = Chat(self.flow, reads_only=reads_only, leaving=leaving)
        self.answers: PersonAnswers = PersonAnswers(self.flow, reads_only=reads_only)
        self._permission = permission

    @property
    def options(self) -> Options:
        """How the connection behaves."""
        options: Options = {"on_update": self.chat.hear}
        options["capabilities"] = _offered(options, reads_only=self.reads_only)
        if not on_terminal() and not self.reads_only:
            options["permission"] = "reject" if self._permission in (None, "ask") else "allow"
            return options
        options["on_permission"] = self.answers.on_permission
        if self._permission is not None:
            options["permission"] = self._permission
        if not self.reads_only:
            options["on_form"] = self.answers.on_form
            options["on_page"] = self.answers.on_page
        options["capabilities"] = _offered(options, reads_only=self.reads_only)
        return options

    async def sit(self, agent: RemoteAgent, session: RemoteSession) -> int:
        """Show the session until the person leaves, or it ends; the exit code."""
        self.chat.begin(agent, session)
        if on_terminal() and os.environ.get("TERM") not in LINE_TERMINALS:
            await self._on_terminal(session)
        elif on_terminal() and not self.reads_only:
            await self._on_lines()
        else:
            await self._in_pipe()
        if self.chat.error is None:
            return Exit.OK if on_terminal() else self._how_it_ended()
        print(visible(f"acphold: {self.chat.error}"), file=sys.stderr)
        return Exit.AGENT

    def _how_it_ended(self) -> Exit:
        """The exit code for a script: that of the last turn, as `ask` has it."""
        end = self.chat.last_end
        return Exit.OK if end is None else ENDS[end.outcome]

    async def _on_terminal(self, session: RemoteSession) -> None:
        from acphold.screen.line_screen import LineScreen
        from acphold.screen.typed import PrivateHistory, PromptCompleter

        screen = LineScreen(
            self.flow,
            console(),
            self.chat,
            completer=PromptCompleter(lambda: session.commands, session.cwd),
            history=PrivateHistory(os.path.join(state_folder(), "prompts")),
            reads_only=self.reads_only,
        )
        self.chat.face = self.answers.face = screen
        await self.chat.look()
        self.flow.shorten(HISTORY_PASSAGES)
        self.chat.attend()
        try:
            await screen.run()
        finally:
            await self.chat.aclose()

    async def _on_lines(self) -> None:
        from acphold.screen.plain import TeletypeFace

        face = TeletypeFace(self.flow, sys.stdout, self.chat)
        self.chat.face = self.answers.face = face
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        await self.chat.look()
        self.flow.shorten(HISTORY_PASSAGES)
        face.changed()
        self.chat.attend()
        try:
            await face.run()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await self.chat.aclose()
            face.changed()
            face.require_written()

    def _interrupt(self) -> None:
        """Ctrl-C: no hint could be seen, so without a turn it leaves at once."""
        if self.chat.in_turn:
            self.chat.interrupt()
        else:
            self.chat.face.close()

    async def _in_pipe(self) -> None:
        from acphold.screen.plain import PlainFace

        face = PlainFace(self.flow, sys.stdout)
        self.chat.face = self.answers.face = face
        await self.chat.look()
        self.chat.attend()
        try:
            if self.reads_only:
                await face.closed()
            else:
                await face.prompt_each(self.chat)
        finally:
            await self.chat.aclose()
            face.changed()
            face.require_written()


def _offered(options: Options, *, reads_only: bool) -> ClientCapabilities:
    """What the screen can: it shows sub-agents, too; one that only reads is asked nothing."""
    from acphold.client.duties import Answers
    from acphold.schema import ClientCapabilities

    class Capabilities(ClientCapabilities, frozen=True, kw_only=True):
        """With `subagents`, which is not stable yet."""

        subagents: dict[str, str]

    answers = Answers(on_form=options.get("on_form"), on_page=options.get("on_page"))
    offered = msgspec.structs.asdict(answers.capabilities)
    offered["meta"] = {WATCHES: True} if reads_only else None
    return Capabilities(**offered, subagents={})
