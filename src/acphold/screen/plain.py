"""The screen without a cursor, in plain text: in a pipe, and on a terminal that only has lines."""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

from acphold.errors import AgentStartError
from acphold.presentation.visible_text import visible
from acphold.processes.foreground import run_in_front
from acphold.screen.flow import Flow
from acphold.screen.layout import Passage, Plain
from acphold.screen.lines import Entry, TypedLines, drop_typed
from acphold.screen.panels import A_KEY, SEEN_SECONDS, Choice, Field

if TYPE_CHECKING:
    from acphold.screen.chat import Chat

T = TypeVar("T")


class Prompting(Protocol):
    """Whose prompts are typed."""

    def submit(self, text: str) -> None:
        """Send a prompt."""


LOOK_SECONDS = 0.5
"""Between two looks whether anybody reads what is printed: no event says so."""


class PlainFace:
    """Prints what is finished. Nobody is there to be asked."""

    asks = False

    def __init__(self, flow: Flow, stream: TextIO) -> None:
        self.flow = flow
        self._stream = stream
        self._plain = Plain(stream)
        self._closed = asyncio.Event()
        self._unwritten: OSError | None = None

    def changed(self) -> None:
        """Print what is finished. The chat is over when that cannot be written any more."""
        self._print()

    def _print(self, *lines: str) -> None:
        """Print what is finished, and these lines behind it."""
        if self._unwritten is not None:
            return
        try:
            for passage in self.flow.take():
                self._plain.put(passage)
            if lines:
                self._plain.gap("\n".join(lines))
            self._stream.flush()
        except (
            OSError
        ) as error:  # told by `require_written`: whoever has news for us cannot help it
            self._unwritten = error
            self.close()

    def require_written(self) -> None:
        """Raise the OSError that something could not be written with."""
        if self._unwritten is not None:
            raise self._unwritten

    async def choose(self, choice: Choice) -> str | None:
        """Wait until it is answered elsewhere."""
        await _never()
        return None

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Wait until it is answered elsewhere."""
        await _never()
        return None

    async def in_front(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> int:
        """Not in a pipe."""
        raise AgentStartError(f"cannot start {command[0]!r}: there is no terminal")

    async def read(self, passages: Sequence[Passage]) -> None:
        """Print it."""
        for passage in passages:
            self.flow.put(passage)
        self._print()

    def ring(self) -> None:
        """Nobody hears it."""

    def insert(self, text: str) -> None:
        """There is no line of input that it could go into."""

    def put_back(self, text: str) -> None:
        """Print it: there is no line of input that it could go into."""
        self._print(*visible(text).splitlines())

    def close(self) -> None:
        """The chat is over."""
        self._closed.set()

    async def closed(self) -> None:
        """Return when the chat is over, or nobody reads what is printed any more."""
        while not self._closed.is_set() and not is_unread(self._stream):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._closed.wait()

    async def prompt_each(self, chat: Chat) -> None:
        """A turn for each line of stdin that is not empty, one after the other."""
        lines = _lines_of(sys.stdin)
        over = asyncio.create_task(self._closed.wait(), name="chat over")
        try:
            while line := await _first(lines.get(), over):
                if line.strip():
                    await _first(chat.prompt(line.strip()), over)
        finally:
            over.cancel()


def is_unread(stream: TextIO) -> bool:
    """Whether the other end of a pipe has been closed, as by an ssh that was ended here."""
    looking = select.poll()
    looking.register(stream, 0)
    return bool(looking.poll(0))


class TeletypeFace(PlainFace):
    """A terminal that prints lines and can do no more: a line answers a question, or prompts.

    A question comes up while something is typed, maybe. So it can be answered only when it was
    there for a while, and what was typed until then is gone, also a line that was begun; and what
    is pasted, several lines at once, answers nothing.
    """

    def __init__(
        self,
        flow: Flow,
        stream: TextIO,
        person: Prompting,
        *,
        typed_on: int = 0,
        takes_prompts: bool = True,
    ) -> None:
        super().__init__(flow, stream)
        self._person = person
        self._typed_on = typed_on
        self._takes_prompts = takes_prompts
        self._asking = asyncio.Lock()
        self._question: Choice | Field | None = None
        self._seen_at: float | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._typed = TypedLines(typed_on)

    @property
    def asks(self) -> bool:  # type: ignore[override]  # there nobody is ever asked
        """Whether a question is open."""
        return self._question is not None

    async def choose(self, choice: Choice) -> str | None:
        """Ask for a line that is one of the keys."""
        async with self._asking:
            self._print(
                f"? {choice.title}", *(f"  [{key.name}] {key.words}" for key in choice.keys)
            )
            self._seen_at = None
            seeing = asyncio.get_running_loop().call_later(SEEN_SECONDS, self._seen)
            try:
                return await self._answered(choice)
            finally:
                seeing.cancel()

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; an empty one is the default."""
        async with self._asking:
            told = [f"  {hint}" for hint in (*field.hints, wrong) if hint]
            default = [f"  Enter: {field.default}"] if field.default else []
            self._print(f"? {field.title}", *told, *default)
            return await self._answered(field)

    async def _answered(self, question: Choice | Field) -> str | None:
        self._question = question
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._question = None

    def _seen(self) -> None:
        drop_typed(self._typed_on)
        self._seen_at = asyncio.get_running_loop().time()
        self._hint()

    def _hint(self) -> None:
        self._print(f"{A_KEY}; any other line is a prompt" if self._takes_prompts else A_KEY)

    def give(self, answer: str | None) -> None:
        """The person has answered; None when they left the question."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def run(self) -> None:
        """Take lines until there are no more, or `close` is called. May be run again."""
        self._closed.clear()
        if not self._takes_prompts:
            drop_typed(self._typed_on)
        typed = self._typed = TypedLines(self._typed_on)
        over = asyncio.create_task(self._closed.wait(), name="chat over")
        try:
            while (entry := await _first(typed.entry(), over)) is not None:
                self._take(entry)
        finally:
            over.cancel()

    def _take(self, entry: Entry) -> None:
        match self._question:
            case Field(default=default) if "\n" not in entry.text:
                self.give(entry.text or default)
            case Field():
                self._print("one line, then Enter")
            case Choice() as choice:
                # What was typed before the question could be read is no answer to it.
                is_seen = self._seen_at is not None and entry.at >= self._seen_at
                answer = choice.answer(entry.text)
                if answer is not None and is_seen:
                    self.give(answer)
                elif answer is None:
                    self._prompt(entry.text)
                    if is_seen:
                        self._hint()
            case None:
                self._prompt(entry.text)

    def _prompt(self, text: str) -> None:
        if text and self._takes_prompts:
            self._person.submit(text)

    async def in_front(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> int:
        """Run a program on the terminal, which is not read meanwhile."""
        self._print()
        with self._typed.put_away():
            return await run_in_front(
                command, env=env, cwd=cwd, terminal=(self._typed_on, self._stream.fileno())
            )

    def print_finished(self) -> bool:
        """Print now what is finished; there is never more."""
        self.changed()
        return False

    def put_away(self) -> AbstractContextManager[None]:
        """For the block something else is printed: nothing is in its way."""
        return nullcontext()


async def _never() -> None:
    """Wait until somebody ends it."""
    await asyncio.get_running_loop().create_future()


async def _first(doing: Coroutine[Any, Any, T], over: asyncio.Task[bool]) -> T | None:
    """What comes of it; None when the chat is over before."""
    task = asyncio.create_task(doing)
    await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait({task})
    return None


def _lines_of(stream: TextIO) -> asyncio.Queue[str]:
    """Its lines as they come, "" at its end."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits for more
            while line := stream.readline():
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    # A daemon: a pipe that stays open must not keep us when the session has ended.
    threading.Thread(target=read, name="prompts", daemon=True).start()
    return lines
