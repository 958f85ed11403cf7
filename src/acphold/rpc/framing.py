"""Cutting a byte stream into lines, within a limit.

ACP on stdio: one message a line, no newline inside (spec v1, transports, "stdio").
"""

from __future__ import annotations

from msgspec import Struct

HEAD = 64 * 1024
"""Bytes kept of the beginning of a line that is over the limit, and nearly always its id."""

TAIL = 4 * 1024
"""Bytes kept of its end: some programs write the id last."""


class Oversize(Struct, frozen=True):
    """A line that was longer than the limit: its first and last bytes, and how long it was."""

    head: bytes
    tail: bytes
    size: int


class LineBuffer:
    """Newline-ended frames of at most `limit` bytes; a longer one costs only its two ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._head: bytes | None = None
        self._dropped = 0

    def feed(self, data: bytes) -> list[bytes | Oversize]:
        """The frames that `data` completes, in order; blank lines are left out."""
        first, newline, rest = data.partition(b"\n")
        if not newline:
            self._hold(data)
            return []
        if not self._line and self._head is None and len(data) <= self._limit:
            # Nearly every read: whole lines, none of which can be over the limit.
            *lines, tail = data.split(b"\n")
            self._hold(tail)
            return [line for line in lines if line and not line.isspace()]
        self._hold(first)
        frames: list[bytes | Oversize] = [self._finish()]
        if len(rest) <= self._limit:
            frames += self.feed(rest)
            return [frame for frame in frames if isinstance(frame, Oversize) or frame.strip()]
        *lines, tail = rest.split(b"\n")
        for line in lines:
            self._hold(line)
            frames.append(self._finish())
        self._hold(tail)
        return [frame for frame in frames if isinstance(frame, Oversize) or frame.strip()]

    def _hold(self, piece: bytes) -> None:
        # One buffer that grows in place: a message of many megabytes is not copied at each read,
        # and one that comes byte by byte takes no more room than its bytes.
        self._line += piece
        if self._head is None and len(self._line) > self._limit:
            self._head = bytes(self._line[: min(HEAD, self._limit)])
        if self._head is not None and (surplus := len(self._line) - TAIL) > 0:
            del self._line[:surplus]
            self._dropped += surplus

    def _finish(self) -> bytes | Oversize:
        line, head, dropped = bytes(self._line), self._head, self._dropped
        self._line, self._head, self._dropped = bytearray(), None, 0
        return line if head is None else Oversize(head, line, dropped + len(line))
