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
from acphold.faces.screen.panels import Field, KeyChoice
from acphold.faces.screen.queued_prompts import heading, prompt_lines
from acphold.faces.screen.terminal import LineEntry, TypedLines, drop_typed
from acphold.machine.foreground import ForegroundProgram, run_in_front

if TYPE_CHECKING:
    from acphold.faces.screen.keys import Person
    from acphold.faces.screen.turns import ShownTurns

T = TypeVar("T")


class PlainFace:
    """Prints finished passages. There is no person to ask."""

    asks = False

    def __init__(self, flow: Flow, stream: TextIO) -> None:
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
        return await _never()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Wait until another client answers it."""
        return await _never()

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
        self._asking = asyncio.Lock()
        self._question: KeyChoice | Field | None = None
        self._seen_at: float | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._typed = TypedLines(typed_on)

    @property
    def asks(self) -> bool:  # type: ignore[override]  # there nobody is ever asked
        """True while a question is open."""
        question = self._question
        return question is not None and not (isinstance(question, KeyChoice) and question.passes)

    async def choose(self, choice: KeyChoice) -> str | None:
        """Ask for a line that is one of the keys."""
        self._dismiss_offer()
        async with self._asking:
            self._print(
                f"? {choice.short or choice.title}",
                *(f"  [{key.name}] {key.words}" for key in choice.keys),
            )
            self._seen_at = None
            seeing = asyncio.get_running_loop().call_later(
                bounds.QUESTION_SEEN_SECONDS, self._on_seen
            )
            try:
                return await self._await_answer(choice)
            finally:
                seeing.cancel()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; an empty one is the default."""
        self._dismiss_offer()
        async with self._asking:
            hints = [f"  {hint}" for hint in (*field.hints, wrong) if hint]
            default = [f"  Enter: {field.default}"] if field.default else []
            self._print(f"? {field.title}", *hints, *default)
            return await self._await_answer(field)

    async def _await_answer(self, question: KeyChoice | Field) -> str | None:
        self._question = question
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._question = None

    def _dismiss_offer(self) -> None:
        """Dismiss an offer that is still shown, because something else is asked."""
        if isinstance(self._question, KeyChoice) and self._question.passes:
            self.give(None)

    def _on_seen(self) -> None:
        if self.asks:  # nothing typed is dropped for an offer
            drop_typed(self._typed_on)
        self._seen_at = asyncio.get_running_loop().time()
        self._hint()

    def _hint(self) -> None:
        if isinstance(self._question, KeyChoice):
            asked = self._question
            self._print(asked.how() if self._person is None else asked.how_beside_prompts())

    def give(self, answer: str | None) -> None:
        """Take the person's answer; None if they left the question."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

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
                match self._question:
                    case Field(default=default) if "\n" not in entry.text:
                        self.give(entry.text or default)
                    case Field():
                        self._print("one line, then Enter")
                    case KeyChoice() as choice:
                        self._take_for_choice(choice, entry)
                    case None:
                        self._prompt(entry.text)

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


async def _never() -> str | None:
    """Wait until cancelled."""
    never: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    return await never


async def _first(doing: Coroutine[Any, Any, T], over: asyncio.Task[bool]) -> T | None:
    """Return the result of `doing`; None if the chat ends first."""
    async with beside(doing, "before the chat is over") as task:
        await first(task, over)
        return task.result() if task.done() else None
