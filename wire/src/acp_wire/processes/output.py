"""A program's output, read in the event loop, to its end even if nobody wants it: a program blocks
when its pipe is full.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

READ_SIZE = 64 * 1024
"""Bytes requested per read: the size of a pipe."""

READ_COST = 16 * 1024
"""Bytes that one read counts for besides its own."""

REST_READS = 16
"""Reads of the remaining output at the exit: a child that still prints must not hold us there."""

WINDOW_SECONDS = 0.01
WINDOW_BYTES = 1024 * 1024
"""A program that prints more in that time waits in its pipe for the next such time."""


class OutputReader:
    """Reads `fd`, which it owns, and passes each piece to `take`; `b""` once at its end."""

    def __init__(self, loop: AbstractEventLoop, fd: int, take: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._fd: int | None = fd
        self._take = take
        self._resume: TimerHandle | None = None
        self._window_ends = 0.0
        self._spent = 0
        os.set_blocking(fd, False)  # our end of a pipe that we made: the flag affects nobody else
        loop.add_reader(fd, self._on_readable)

    def read_rest(self) -> None:
        """Read the present content of the pipe."""
        for _ in range(REST_READS):
            if not self._read_some():
                return

    def close(self) -> None:
        """Stop reading; may be called again."""
        fd, self._fd = self._fd, None
        if self._resume is not None:
            self._resume.cancel()
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _on_readable(self) -> None:
        now = self._loop.time()
        if now > self._window_ends:
            self._window_ends, self._spent = now + WINDOW_SECONDS, 0
        self._read_some()
        if self._spent > WINDOW_BYTES and self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_at(  # `close` cancels it
                self._window_ends, self._loop.add_reader, self._fd, self._on_readable
            )

    def _read_some(self) -> bool:
        """Take one piece; False if there is none now, or never again."""
        if self._fd is None:
            return False
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return False
        self._spent += len(data) + READ_COST
        if not data:
            self.close()
        self._take(data)
        return bool(data)
