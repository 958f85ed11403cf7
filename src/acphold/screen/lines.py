"""Input from a terminal that is read line by line."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import NamedTuple

PASTE_SECONDS = 0.1
"""Seconds between two lines of a paste: nobody types one in so short a time."""


class LineEntry(NamedTuple):
    """One line, or several that came at once, and its time by the clock of the loop."""

    text: str
    at: float


class TypedLines:
    """Reads a terminal, but only while somebody waits for a line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_over = False
        self._found: Callable[[], None] | None = None
        self._is_away = False

    async def entry(self) -> LineEntry | None:
        """Return the next line, or all lines of a paste as one entry; None at the end."""
        if self._is_over or not (text := await self._piece()):
            return None
        at = asyncio.get_running_loop().time()
        while not self._is_over:
            try:
                async with asyncio.timeout(PASTE_SECONDS):
                    text += await self._piece()
            except TimeoutError:
                # On a busy machine the time may be over although the next line has come.
                if self._is_away or not select([self._fd], [], [], 0)[0]:
                    break
                text += self._read()
        return LineEntry(text.decode(errors="replace").strip(), at)

    async def _piece(self) -> bytes:
        """Wait for input and read it: at most a line, as terminals deliver it."""
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
        return self._read()

    def _read(self) -> bytes:
        try:
            piece = os.read(self._fd, 64 * 1024)
        except OSError:  # how Linux says that the terminal is gone
            piece = b""
        self._is_over = not piece
        return piece

    @contextmanager
    def put_away(self) -> Iterator[None]:
        """Read nothing for the block: typed text is for another program."""
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
    """Discard unread input of a terminal, including an unfinished line."""
    with suppress(termios.error):  # the terminal is gone
        termios.tcflush(fd, termios.TCIFLUSH)
