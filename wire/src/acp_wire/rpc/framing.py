"""The byte stream of a connection, cut into lines with one message each.

ACP on stdio: one message a line, no newline inside (spec v1, transports, "stdio"). A line has a
limit in bytes, and limits on the nesting and the parts of its JSON: a peer cannot cost us more
than that.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf

from msgspec import Struct

HEAD = 64 * 1024
"""Bytes kept of the beginning of a line that is over a limit; nearly always with its id."""

TAIL = 4 * 1024
"""Bytes kept of its end: some programs write the id last."""

LONG = 16 * 1024
"""Bytes of a line from which on its nesting is tracked while it comes in: the work for a message of
many megabytes is spread over its reads. Checking 60 MB full of brackets in one step took three
seconds and half a gigabyte. Most lines are shorter, and cost one count of brackets."""

STEP = 64 * 1024
"""Bytes checked in one go; taken apart, they need some 50 times as much memory."""

BLOCK = 256
"""Brackets that are counted together; looking at each takes thirty times as long."""


class Oversize(Struct, frozen=True):
    """A line over a limit: the problem, and its first and last bytes."""

    problem: str
    head: bytes
    tail: bytes

    @property
    def members(self) -> dict[str, bytes]:
        """The top-level members at the beginning and at the end; the value of a cut one is b""."""
        from acp_wire.rpc.ends import leading_members, trailing_members  # rare, and slow to import

        return {**trailing_members(self.tail), **leading_members(self.head)}


class LineBuffer:
    """Newline-ended frames of at most `limit` bytes and, if asked for, `depth` levels of nesting
    and `parts` objects, arrays and items.

    A line over a limit costs only its two ends.
    """

    def __init__(self, limit: int, depth: int | None = None, parts: float = inf) -> None:
        self._limit = limit
        self._depth = depth
        self._parts = parts
        # Deeper JSON has as many closing brackets as opening ones, so it is longer than this.
        self._safe = limit if depth is None else min(limit, 2 * depth)
        self._begin()

    def feed(self, data: bytes) -> list[bytes | Oversize]:
        """Return the frames that `data` completes, in order; blank lines are left out."""
        if (
            data
            and not self._line
            and len(data) <= self._safe
            and data.find(b"\n") == len(data) - 1
        ):
            return [] if data.isspace() else [data[:-1]]  # one whole line, as in most reads
        lines = data.split(b"\n")
        tail = lines.pop()
        frames: list[bytes | Oversize] = []
        if lines and self._line:
            self._hold(lines.pop(0))
            line, size, nesting = bytes(self._line), self._dropped + len(self._line), self._nesting
            self._begin()
            if size > self._limit or not line.isspace():
                frames.append(
                    self._judge(line, size)
                    if nesting is None
                    else self._frame(line, size, nesting.problem)
                )
        safe = self._safe
        frames += [
            line if len(line) <= safe else self._judge(line, len(line))
            for line in lines
            if line and (not line.isspace() or len(line) > self._limit)
        ]
        if tail:
            self._hold(tail)
        return frames

    def _begin(self) -> None:
        # One buffer that grows in place: a message of many megabytes is not copied at each read,
        # and one that comes byte by byte takes no more room than its bytes.
        self._line = bytearray()
        self._dropped = 0
        self._nesting: Nesting | None = None

    def _hold(self, piece: bytes) -> None:
        """Keep the newest part of a line; of one that is over a limit already, only its ends."""
        self._line += piece
        if len(self._line) <= LONG:
            return
        is_over = self._dropped > 0 or len(self._line) > self._limit
        if not is_over and self._depth is not None:
            if self._nesting is None:
                self._nesting = Nesting(self._depth, self._parts)
                piece = bytes(self._line)
            self._nesting.add(piece)
            is_over = bool(self._nesting.problem)
        surplus = len(self._line) - HEAD - TAIL
        if is_over and surplus > 0:
            del self._line[HEAD : HEAD + surplus]
            self._dropped += surplus

    def _judge(self, line: bytes, size: int) -> bytes | Oversize:
        if self._depth is None or size > self._limit:
            return self._frame(line, size)
        return self._frame(line, size, find_problem(line, self._depth, self._parts))

    def _frame(self, line: bytes, size: int, problem: str = "") -> bytes | Oversize:
        if size > self._limit:
            problem = f"a message of {size} bytes is over the limit of {self._limit}"
        return Oversize(problem, line[:HEAD], line[-TAIL:]) if problem else line


class Nesting:
    """Tracks the nesting and the parts of a JSON text, piece by piece, in time linear in its
    length.

    Text that is no JSON gets some answer, the same wherever the pieces begin.
    """

    def __init__(self, depth: int, parts: float = inf) -> None:
        self.problem = ""
        self._depth = depth
        self._parts = parts
        self._counted = 0
        self._level = 0
        self._in_text = False
        self._escape = b""

    def add(self, piece: bytes) -> None:
        """Look at the next bytes of the text."""
        for start in range(0, len(piece), STEP):
            if self.problem:
                return
            step = self._escape + piece[start : start + STEP]
            self._escape = b""
            if b"\\" in step:
                if (len(step) - len(step.rstrip(b"\\"))) % 2:
                    self._escape = b"\\"  # the escaped byte comes with the next piece
                    step = step[:-1]
                step = step.replace(b"\\\\", b"").replace(b'\\"', b"")
            texts = step.split(b'"')
            outside = b"".join(texts[self._in_text :: 2])
            self._in_text ^= len(texts) % 2 == 0
            self._counted += _count_parts(outside)
            if self._counted > self._parts:
                self.problem = f"a message of more than {self._parts} parts"
            brackets = outside.translate(None, NO_BRACKETS)
            for first in range(0, len(brackets), BLOCK):
                block = brackets[first : first + BLOCK]
                opened = block.count(b"{") + block.count(b"[")
                if self._level + opened > self._depth:
                    steps = memoryview(block.translate(STEPS)).cast("b")
                    if max(accumulate(steps, initial=self._level)) > self._depth:
                        self.problem = f"a message nested deeper than {self._depth} levels"
                self._level += 2 * opened - len(block)


NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{[}]")
STEPS = bytes.maketrans(b"{[}]", bytes([1, 1, 255, 255]))
"""Each bracket as the signed byte that it adds to the level."""


def find_problem(line: bytes, depth: int, parts: float = inf) -> str:
    """Return the reason to refuse this JSON text, which is nested deeper than `depth` levels or has
    more `parts`; "" if there is none."""
    if line.count(b"{") + line.count(b"[") <= depth and _count_parts(line) <= parts:
        return ""  # nearly every line: the exact check costs more than decoding it
    nesting = Nesting(depth, parts)
    nesting.add(line)
    return nesting.problem


def _count_parts(text: bytes) -> int:
    """Return the number of objects, arrays and items after the first, texts taken as JSON."""
    return text.count(b"{") + text.count(b"[") + text.count(b",")
