"""Cutting a byte stream into lines, within a limit.

ACP on stdio: one message a line, no newline inside (spec v1, transports, "stdio").
"""

from __future__ import annotations

from msgspec import Struct

HEAD = 64 * 1024
"""Bytes kept of a line that is over the limit: enough to find the id it has to be answered with."""


class Oversize(Struct, frozen=True):
    """A line that was longer than the limit: its first bytes, and how long it was."""

    head: bytes
    size: int


class LineBuffer:
    """Newline-ended frames of at most `limit` bytes; a longer one costs only its head.

    The pieces of an unfinished line are joined once, when its newline comes: a message of many
    megabytes that arrives in small reads is not copied again and again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Oversize]:
        """The frames that `data` completes, in order; blank lines are left out."""
        first, newline, rest = data.partition(b"\n")
        if not newline:
            self._hold(data)
            return []
        if not self._pieces and len(data) <= self._limit:
            # Nearly every read: whole lines, none of which can be over the limit.
            *lines, tail = data.split(b"\n")
            self._hold(tail)
            return [line for line in lines if line and not line.isspace()]
        self._hold(first)
        frames: list[bytes | Oversize] = [self._finish()]
        *lines, tail = rest.split(b"\n")
        for line in lines:
            self._hold(line)
            frames.append(self._finish())
        self._hold(tail)
        return [frame for frame in frames if isinstance(frame, Oversize) or frame.strip()]

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._skipping:
            return
        self._pieces.append(piece)
        if self._size > self._limit:
            self._skipping = True
            self._pieces = [b"".join(self._pieces)[:HEAD]]

    def _finish(self) -> bytes | Oversize:
        line = b"".join(self._pieces)
        frame = Oversize(line, self._size) if self._skipping else line
        self._pieces, self._size, self._skipping = [], 0, False
        return frame
