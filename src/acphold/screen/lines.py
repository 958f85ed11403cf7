"""What is typed on a terminal that is read line by line."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

PASTE_SECONDS = 0.1
"""Between two lines of what is pasted: nobody types one in so short a time."""


class Entry(NamedTuple):
    """A line, or several that came at once; and when it came, by the clock of the loop."""

    text: str
    at: float


class TypedLines:
    """What is typed on a terminal, as long as somebody waits for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_over = False
        self._found: Callable[[], None] | None = None
        self._is_away = False

    async def entry(self) -> Entry | None:
        """The next line; of a paste all lines, which are one. None at the end."""
        if self._is_over or not (text := await self._piece()):
            return None
        at = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            while not self._is_over:
                async with asyncio.timeout(PASTE_SECONDS):
                    text += await self._piece()
        return Entry(text.decode(errors="replace").strip(), at)

    async def _piece(self) -> bytes:
        """What can be read, once something can: a line at most, as terminals have it."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def found() -> None:
            if not readable.done():
                readable.set_result(None)

        self._found = found
        if not self._is_away:
            loop.add_reader(self._fd, found)
        try:
            await readable
        finally:
            self._found = None
            loop.remove_reader(self._fd)
        try:
            piece = os.read(self._fd, 64 * 1024)
        except OSError:  # Linux's way to say that the terminal is gone
            piece = b""
        self._is_over = not piece
        return piece

    @contextmanager
    def put_away(self) -> Iterator[None]:
        """For the block nothing is read: what is typed is for somebody else."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False
            if self._found is not None:
                loop.add_reader(self._fd, self._found)


def drop_typed(fd: int) -> None:
    """What was typed on a terminal and not read yet is gone, with a line that was begun."""
    with suppress(termios.error):  # the terminal is gone
        termios.tcflush(fd, termios.TCIFLUSH)
