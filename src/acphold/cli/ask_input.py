"""The input of `acphold ask`: the prompt, what comes on stdin, and answers on the terminal."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from typing import TYPE_CHECKING

from acphold.cli.command_line import UsageError
from acphold.cli.terminal_text import on_one_line

if TYPE_CHECKING:
    from acphold.client import PermissionQuestion
    from acphold.schema import PermissionOption

FROM_STDIN = "-"
"""The prompt that stands for all of stdin."""

FIRST_BYTE_SECONDS = 5.0
"""What a pipe on stdin gets to bring something, or its end: some programs hand one down that stays
open for ever. A prompt of `-` waits."""

MOST_STDIN = 16 << 20
"""Bytes of stdin that are sent; a model takes in a fraction of it."""


# -- the prompt -----------------------------------------------------------------------------


def prompt_and_stdin(prompt: str, deadline: float | None) -> list[str]:
    """The texts to send: the prompt, then what came on stdin.

    Raises UsageError when there is nothing to say, TimeoutError at the deadline.
    """
    if prompt != FROM_STDIN:
        found = [prompt, _stdin(deadline, waits=False)]
    elif sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("`-` sends what comes on stdin, which is a terminal here")
    else:
        found = [_stdin(deadline, waits=True)]
    texts = [text for text in found if text.strip()]
    if not texts:
        raise UsageError("there is nothing to say: the prompt is empty")
    return texts


def _stdin(deadline: float | None, *, waits: bool) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    fd = sys.stdin.fileno()
    if not waits and not select.select([fd], [], [], _left(deadline, FIRST_BYTE_SECONDS))[0]:
        print(
            f"acphold ask: nothing has come on stdin for {FIRST_BYTE_SECONDS:g} s, so it is not "
            "sent; `< /dev/null` says at once that there is nothing",
            file=sys.stderr,
        )
        return ""
    data = bytearray()
    while select.select([fd], [], [], _left(deadline, None))[0]:
        piece = os.read(fd, 64 * 1024)
        data += piece
        if not piece:
            return _text(bytes(data))
        if len(data) > MOST_STDIN:
            raise UsageError(f"more than {MOST_STDIN >> 20} MiB came on stdin; name a --file")
    raise TimeoutError


def _left(deadline: float | None, most: float | None) -> float | None:
    """Seconds until the deadline, `most` of them at most; None for no bound."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return min((it for it in (left, most) if it is not None), default=None)


def _text(data: bytes) -> str:
    if b"\0" in data:
        raise UsageError("what came on stdin is no text; name a --file")
    return data.decode(errors="replace")


# -- the person -----------------------------------------------------------------------------


def person_here() -> Person | None:
    """Whoever sits at the terminal; None where there is no terminal to ask on."""
    if sys.stdin is not None and sys.stdin.isatty() and os.isatty(2):
        return Person(sys.stdin.fileno(), 2)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    return Person(terminal, terminal)


class Person:
    """Answers on a terminal: what is typed on `reads`, what is shown on `writes`."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes
        self._turn = asyncio.Lock()

    async def decide(self, question: PermissionQuestion) -> PermissionOption | bool:
        """The option that they choose; no answer at all rejects."""
        async with self._turn:  # an agent may ask several things at once
            tool = question.tool_call
            options = question.options
            what = on_one_line(tool.title or "a tool call")
            self._show(f"\nThe agent asks for permission: {what} ({on_one_line(tool.kind)})\n")
            for number, option in enumerate(options, 1):
                self._show(f"  {number}  {on_one_line(option.name)}\n")
            while True:
                self._show(f"Your answer (1-{len(options)}; Enter rejects): ")
                line = (await self._line()).strip()
                if not line:
                    return False
                if line.isdecimal() and 1 <= int(line) <= len(options):
                    return options[int(line) - 1]

    def _show(self, text: str) -> None:
        os.write(self._writes, text.encode(errors="replace"))

    async def _line(self) -> str:
        """A line, as soon as one was typed; "" at the end."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            if not typed.done():
                typed.set_result(None)

        loop.add_reader(self._reads, on_readable)
        try:
            await typed
        finally:
            loop.remove_reader(self._reads)
        return os.read(self._reads, 4096).decode(errors="replace")
