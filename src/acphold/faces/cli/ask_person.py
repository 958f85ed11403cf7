"""The person at the terminal of `acphold ask`: the screen of `chat`, shown while they are asked."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from acp_wire.tasks import beside, first
from acphold.faces.cli.terminal_text import LINE_TERMINALS, console, on_one_line

if TYPE_CHECKING:
    from acphold.client import PermissionQuestion
    from acphold.faces.screen.answers import PersonAnswers
    from acphold.faces.screen.flow import Flow
    from acphold.faces.screen.line_screen import LineScreen
    from acphold.faces.screen.panels import Field, KeyChoice
    from acphold.faces.screen.plain import TeletypeFace
    from acphold.machine.foreground import ForegroundProgram


def person_here(flow: Flow | None = None) -> TerminalPerson | None:
    """Return the person at the terminal; None if there is no terminal to ask on."""
    if sys.stdin is not None and sys.stdin.isatty() and os.isatty(2):
        return TerminalPerson(sys.stdin.fileno(), 2, flow)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    return TerminalPerson(terminal, terminal, flow)


class TerminalPerson:
    """Types on `reads` and sees `writes`: the face of the questions, and the target of the keys.

    The screen appears with a question and goes with its answer. It is made for the first
    question: importing it takes longer than everything else before the agent is asked.
    """

    in_turn = True

    def __init__(self, reads: int, writes: int, flow: Flow | None = None) -> None:
        self._flow = flow
        self._reads = reads
        self._writes = writes
        self.asks = False
        """True while a question is on the terminal."""

    async def decide(self, question: PermissionQuestion) -> str | bool:
        """Return the id of the chosen option; no answer rejects."""
        answer = await self.answers.on_permission(question)
        return False if answer is None else answer

    def put_away(self) -> AbstractContextManager[None]:
        """Put the question away in this block, for other output on this terminal."""
        return self._screen.put_away() if self.asks else nullcontext()

    @property
    def flow(self) -> Flow:
        """The output on the terminal."""
        return self._screen.flow

    async def in_front(self, program: ForegroundProgram) -> int:
        """Run a program on the terminal, and wait for it."""
        return await self._screen.in_front(program)

    @cached_property
    def answers(self) -> PersonAnswers:
        """Their answers to an agent's requests."""
        from acphold.faces.cli.asked_calls import CallsWithoutRules
        from acphold.faces.screen.answers import PersonAnswers

        answers = PersonAnswers(self.flow, CallsWithoutRules())
        answers.face = self
        return answers

    @cached_property
    def _screen(self) -> LineScreen | TeletypeFace:
        from acphold.faces.screen.flow import Flow

        flow = self._flow or Flow()
        shown = open(self._writes, "w", errors="replace", closefd=False)  # noqa: SIM115
        if os.environ.get("TERM") in LINE_TERMINALS:
            from acphold.faces.screen.plain import TeletypeFace

            return TeletypeFace(flow, shown, None, typed_on=self._reads)
        from acphold.faces.screen.line_screen import LineScreen

        typed = open(self._reads, closefd=False)  # noqa: SIM115
        return LineScreen(flow, console(shown), self, typed_on=typed)

    # -- as the face of the questions -----------------------------------------------------

    def refresh(self) -> None:
        """Print the questions and their outcomes."""
        while self._screen.print_finished():
            pass

    async def choose(self, choice: KeyChoice) -> str | None:
        """Ask for a key; None when nobody is there any more."""
        return await self._there(self._screen.choose(choice))

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; None when nobody is there any more."""
        return await self._there(self._screen.enter(field, wrong))

    async def _there(self, asking: Coroutine[None, None, str | None]) -> str | None:
        """Show the screen until there is an answer; None if the terminal is gone."""
        self.asks = True
        try:
            async with (
                beside(self._screen.run(), "screen of a question") as screen,
                beside(asking, "answer of a person") as answer,
            ):
                await first(screen, answer)
                if answer.done():
                    return answer.result()
                with suppress(EOFError, OSError):  # the terminal is gone
                    await screen
                return None
        finally:
            self.asks = False

    # -- as the target of the keys --------------------------------------------------------

    def submit(self, text: str) -> bool:
        """Say that a line is no answer."""
        if text.strip():
            self.flow.tell(f"“{on_one_line(text[:40])}” is no answer: type one of the letters")
            self.refresh()
        return False

    def interrupt(self) -> None:
        """Cancel at Ctrl-C: while the screen is shown, the terminal makes no signal of it."""
        signal.raise_signal(signal.SIGINT)

    def leave(self) -> None:
        """Give no answer, at Ctrl-D."""
        self._screen.give(None)

    def on_input(self) -> None:
        """Do nothing: no hint becomes outdated."""

    heading = ""

    def status(self) -> Sequence[str]:
        """Return the hints below the question."""
        return (
            "the agent is waiting for your answer",
            "Ctrl-D: no answer, which rejects",
            "Ctrl-C cancels",
        )
