"""The screen without a cursor, in plain text: in a pipe, and on a terminal that only has lines."""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from acphold.screen.flow import Flow
from acphold.screen.layout import Plain
from acphold.screen.panels import SEEN_SECONDS, Choice, Field

if TYPE_CHECKING:
    from acphold.screen.sitting import Sitting

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""Between two looks whether anybody reads what is printed: no event says so."""


class PlainFace:
    """Prints what is finished. Nobody is there to be asked."""

    asks = False

    def __init__(self, flow: Flow, stream: TextIO) -> None:
        self._flow = flow
        self._stream = stream
        self._plain = Plain(stream)
        self._closed = asyncio.Event()
        self._unwritten: OSError | None = None

    def changed(self) -> None:
        """Print what is finished. The sitting is over when that cannot be written any more."""
        if self._unwritten is not None:
            return
        try:
            for passage in self._flow.take():
                self._plain.put(passage)
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

    def close(self) -> None:
        """The sitting is over."""
        self._closed.set()

    async def closed(self) -> None:
        """Return when the sitting is over, or nobody reads what is printed any more."""
        while not self._closed.is_set() and not is_unread(self._stream):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._closed.wait()

    async def prompt_each(self, sitting: Sitting) -> None:
        """A turn for each line of stdin that is not empty, one after the other."""
        lines = _lines_of(sys.stdin)
        over = asyncio.create_task(self._closed.wait(), name="sitting over")
        try:
            while line := await _first(lines.get(), over):
                if line.strip():
                    await _first(sitting.prompt(line.strip()), over)
        finally:
            over.cancel()


def is_unread(stream: TextIO) -> bool:
    """Whether the other end of a pipe has been closed, as by an ssh that was ended here."""
    looking = select.poll()
    looking.register(stream, 0)
    return bool(looking.poll(0))


class TeletypeFace(PlainFace):
    """A terminal that prints lines and can do no more: a line answers a question, or prompts."""

    def __init__(self, flow: Flow, stream: TextIO) -> None:
        super().__init__(flow, stream)
        self._asking = asyncio.Lock()
        self._question: Choice | Field | None = None
        self._asked_at = 0.0
        self._answer: asyncio.Future[str | None] | None = None

    @property
    def asks(self) -> bool:  # type: ignore[override]  # there nobody is ever asked
        """Whether a question is open."""
        return self._question is not None

    async def choose(self, choice: Choice) -> str | None:
        """Ask for a line that is one of the keys."""
        keys = [f"  [{key.name}] {key.words}" for key in choice.keys]
        return await self._ask(choice, [f"? {choice.title}", *keys])

    async def enter(self, field: Field, wrong: str = "") -> str | None:
        """Ask for a line; an empty one is the default."""
        told = [f"? {field.title}", *(f"  {hint}" for hint in (*field.hints, wrong) if hint)]
        default = [f"  Enter: {field.default}"] if field.default else []
        return await self._ask(field, [*told, *default])

    async def _ask(self, question: Choice | Field, lines: list[str]) -> str | None:
        async with self._asking:
            self.changed()
            self._plain.gap("\n".join(lines))
            self._stream.flush()
            loop = asyncio.get_running_loop()
            self._question, self._asked_at = question, loop.time()
            self._answer = loop.create_future()
            try:
                return await self._answer
            finally:
                self._question = None

    async def converse(self, sitting: Sitting) -> None:
        """Take lines until stdin ends, or the sitting is over."""
        lines = _lines_of(sys.stdin)
        over = asyncio.create_task(self._closed.wait(), name="sitting over")
        try:
            while line := await _first(lines.get(), over):
                self._take(line.strip(), sitting)
        finally:
            over.cancel()

    def _take(self, line: str, sitting: Sitting) -> None:
        match self._question:
            case Choice() as choice if (answer := choice.answer(line)) is not None:
                # One that was typed before the question could be read is neither.
                if asyncio.get_running_loop().time() >= self._asked_at + SEEN_SECONDS:
                    self._settle(answer)
            case Field(default=default):
                self._settle(line or default)
            case _ if line:
                sitting.submit(line)

    def _settle(self, answer: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


async def _never() -> None:
    """Wait until somebody ends it."""
    await asyncio.get_running_loop().create_future()


async def _first(doing: Coroutine[Any, Any, T], over: asyncio.Task[bool]) -> T | None:
    """What comes of it; None when the sitting is over before."""
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
