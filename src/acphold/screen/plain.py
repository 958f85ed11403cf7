"""The screen in a pipe: each line of stdin is a prompt, and stdout is plain text."""

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
from acphold.screen.panels import Choice, Field

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

    def changed(self) -> None:
        """Print what is finished."""
        for passage in self._flow.take():
            self._plain.put(passage)
        self._stream.flush()

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
