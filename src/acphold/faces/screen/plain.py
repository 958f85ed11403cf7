"""The screen without a cursor, in plain text: in a pipe, or on a terminal that only prints."""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from acp_wire.tasks import beside, first, timeout
from acphold.conversation.history.prompt_queue import NO_QUEUE, PromptQueue
from acphold.conversation.presentation.visible_text import visible
from acphold.errors import AgentStartError
from acphold.faces.screen import bounds
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import LabelledText, Passage
from acphold.faces.screen.panels import AskingFace, Field, KeyChoice
from acphold.faces.screen.queued_prompts import heading, prompt_lines
from acphold.faces.screen.terminal import LineEntry, TypedLines, drop_typed
from acphold.machine.foreground import ForegroundProgram, run_in_front

if TYPE_CHECKING:
    from acphold.faces.screen.keys import Person
    from acphold.faces.screen.turns import ShownTurns

T = TypeVar("T")


class PlainFace(AskingFace):
    """Prints finished passages. There is no person to ask."""

    def __init__(self, flow: Flow, stream: TextIO) -> None:
        super().__init__()
        self.flow = flow
        self._stream = stream
        self._plain = LabelledText(stream)
        self._closed = asyncio.Event()
        self._unwritten: OSError | None = None
        self._queue = NO_QUEUE

    def refresh(self) -> None:
        """Print finished passages. If that fails, the chat is over."""
        self._print()

    def _print(self, *lines: str) -> None:
        """Print finished passages, then these lines."""
        if self._unwritten is not None:
            return
        try:
            for passage in self.flow.take():
                self._plain.put(passage)
            if lines:
                self._plain.gap("\n".join(lines))
            self._stream.flush()
        except OSError as error:  # raised by `require_written`; our caller cannot help it
            self._unwritten = error
            self.close()

    def require_written(self) -> None:
        """Raise the OSError of a failed write, if there was one."""
        if self._unwritten is not None:
            raise self._unwritten

    async def choose(self, choice: KeyChoice) -> str | None:
        """Wait until another client answers it."""
        return await asyncio.Future()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Wait until another client answers it."""
        return await asyncio.Future()

    async def in_front(self, program: ForegroundProgram) -> int:
        """Raise AgentStartError: a pipe cannot run it."""
        raise AgentStartError(f"cannot start {program.command[0]!r}: there is no terminal")

    async def read(self, passages: Sequence[Passage]) -> None:
        """Print the passages."""
        for passage in passages:
            self.flow.put(passage)
        self._print()

    def ring(self) -> None:
        """Do nothing: nobody would hear it."""

    def insert(self, text: str) -> None:
        """Do nothing: there is no line of input."""

    def put_back(self, text: str) -> None:
        """Print it: there is no line of input to put it into."""
        self._print(*visible(text).splitlines())

    def show_queue(self, queue: PromptQueue) -> None:
        """Print the queued prompts, when more do, or something holds them."""
        before, self._queue = self._queue, queue
        if queue.waiting and (
            len(queue.waiting) > len(before.waiting) or queue.held not in ("", before.held)
        ):
            self._print(heading(queue), *(f"  {line}" for line in prompt_lines(queue)))

    def close(self) -> None:
        """End the chat."""
        self._closed.set()

    async def wait_closed(self) -> None:
        """Return when the chat is over, or nobody reads the output any more."""
        while not self._closed.is_set() and not is_unread(self._stream):
            with suppress(TimeoutError):
                async with timeout(bounds.READER_LOOK_SECONDS):
                    await self._closed.wait()

    async def prompt_each(self, turns: ShownTurns) -> None:
        """Run a turn for each nonempty line of stdin, one after the other."""
        lines: asyncio.Queue[str] = asyncio.Queue()  # "" at the end
        loop, stream = asyncio.get_running_loop(), sys.stdin

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended: no more lines are needed
                while line := stream.readline():
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, "")

        # A daemon: a pipe that stays open must not keep the process alive.
        threading.Thread(target=read, name="prompts", daemon=True).start()
        async with beside(self._closed.wait(), "chat over") as over:
            while line := await _first(lines.get(), over):
                if line.strip():
                    await _first(turns.prompt(line.strip()), over)


def is_unread(stream: TextIO) -> bool:
    """Return True if the reader of a pipe has closed it, as when an ssh was ended."""
    looking = select.poll()
    looking.register(stream, 0)
    return bool(looking.poll(0))


class TeletypeFace(PlainFace):
    """A terminal that only prints lines: a typed line is an answer or a prompt.

    A question may appear while the person types. So it can be answered only after it was shown for
    a while, and text typed until then is discarded, including an unfinished line; a paste of
    several lines is no answer. Without `person` no line is a prompt.
    """

    def __init__(
        self,
        flow: Flow,
        stream: TextIO,
        person: Person | None,
        *,
        typed_on: int = 0,
    ) -> None:
        super().__init__(flow, stream)
        self._person = person
        self._typed_on = typed_on
        self._seen_at: float | None = None
        self._typed = TypedLines(typed_on)

    async def choose(self, choice: KeyChoice) -> str | None:
        """Ask for a line that is one of the keys."""
        async with self._question(choice) as answer:
            self._print(
                f"? {choice.short or choice.title}",
                *(f"  [{key.name}] {key.words}" for key in choice.keys),
            )
            self._seen_at = None
            seeing = asyncio.get_running_loop().call_later(
                bounds.QUESTION_SEEN_SECONDS, self._on_seen
            )
            try:
                return await answer
            finally:
                seeing.cancel()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; an empty one is the default."""
        async with self._question(field) as answer:
            hints = [f"  {hint}" for hint in (*field.hints, wrong) if hint]
            default = [f"  Enter: {field.default}"] if field.default else []
            self._print(f"? {field.title}", *hints, *default)
            return await answer

    def _on_seen(self) -> None:
        if self.choice is not None and not self.choice.passes:  # nothing is dropped for an offer
            drop_typed(self._typed_on)
        self._seen_at = asyncio.get_running_loop().time()
        self._hint()

    def _hint(self) -> None:
        if (asked := self.choice) is not None:
            self._print(asked.how() if self._person is None else asked.how_beside_prompts())

    async def run(self) -> None:
        """Read lines until there are no more, or `close` is called. May be run again."""
        self._closed.clear()
        if self._person is None:
            drop_typed(self._typed_on)
        else:
            self._print(" · ".join(self._person.status()))
        typed = self._typed = TypedLines(self._typed_on)
        async with beside(self._closed.wait(), "chat over") as over:
            while (entry := await _first(typed.entry(), over)) is not None:
                if self.choice is not None:
                    self._take_for_choice(self.choice, entry)
                elif self.field is None:
                    self._prompt(entry.text)
                elif "\n" in entry.text:
                    self._print("one line, then Enter")
                else:
                    self.give(entry.text or self.field.default)

    def _take_for_choice(self, choice: KeyChoice, entry: LineEntry) -> None:
        # A line typed before the question could be read does not answer it.
        is_seen = self._seen_at is not None and entry.at >= self._seen_at
        answer = choice.answer(entry.text)
        if answer is not None and is_seen:
            self.give(answer)
            return
        if answer is not None and not choice.passes:
            return  # a key too early: neither an answer nor a prompt
        if is_seen and (key := choice.meant(entry.text)) is not None:
            self._print(f"{key.name} alone is the answer")
            return
        is_said = self._prompt(entry.text)
        if choice.passes:
            self.give(None)
        elif is_seen and is_said and choice.instead:
            self.flow.said_instead = entry.text
            self.give(choice.instead)
        elif is_seen:
            self._hint()

    def _prompt(self, text: str) -> bool:
        return bool(text) and self._person is not None and self._person.submit(text)

    async def in_front(self, program: ForegroundProgram) -> int:
        """Run a program on the terminal, without reading it meanwhile."""
        self._print()
        with self._typed.put_away():
            return await run_in_front(program, (self._typed_on, self._stream.fileno()))

    def print_finished(self) -> bool:
        """Print finished passages; return False, as none are left."""
        self.refresh()
        return False

    def put_away(self) -> AbstractContextManager[None]:
        """Do nothing for the block: there is no bottom to erase."""
        return nullcontext()


async def _first(doing: Coroutine[Any, Any, T], over: asyncio.Task[bool]) -> T | None:
    """Return the result of `doing`; None if the chat ends first."""
    async with beside(doing, "before the chat is over") as task:
        await first(task, over)
        return task.result() if task.done() else None
