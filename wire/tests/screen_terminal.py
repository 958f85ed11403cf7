"""A terminal with a program in it, as a person sees it: keys in, screen out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyte

from tests.talker import DEADLINE

ROWS = 40


class Terminal:
    """A program on a pseudo terminal, whose output a terminal emulator draws."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        columns: int,
        rows: int = ROWS,
        cwd: str | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        _set_size(theirs, columns, rows)
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def text(self) -> str:
        """The text on the screen now."""
        return "\n".join(line.rstrip() for line in self.screen.display).strip("\n")

    def type(self, keys: str, *shown: str, but: str | None = None, below: str = "") -> None:
        """Press keys, and wait until the screen shows what is named, as `until` does."""
        os.write(self._ours, keys.encode())
        if shown or but is not None:
            self.until(*shown, but=but, below=below)

    def until(self, *words: str, but: str | None = None, below: str = "") -> str:
        """Wait until the screen shows all of this (`below` the last place of that), and not `but`;
        the screen."""
        deadline = time.monotonic() + DEADLINE
        while not self._shows(words, but, below):
            if time.monotonic() > deadline or not self._read(0.1):
                raise AssertionError(f"never showed {words} without {but}:\n{self.text}")
        return self.text

    def drain(self, until: Callable[[], bool]) -> None:
        """Read until that holds, or to the end, and draw nothing: of a flood it takes minutes."""
        deadline = time.monotonic() + DEADLINE
        while not until():
            assert time.monotonic() < deadline, f"never came: {self.raw[-1000:]!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.raw += os.read(self._ours, 65536)
                except OSError:  # the end
                    return

    def ended(self, keys: str = "") -> int:
        """Press these keys, if any, and wait for the program's end; its exit code."""
        self.type(keys)
        deadline = time.monotonic() + DEADLINE
        while self._read(0.1):
            assert time.monotonic() < deadline, f"does not end:\n{self.text}"
        return self.process.wait(DEADLINE)

    def resize(self, columns: int) -> None:
        """As if the window were drawn wider or narrower."""
        self.screen.resize(ROWS, columns)
        _set_size(self._ours, columns)

    def _shows(self, words: Sequence[str], but: str | None, below: str) -> bool:
        _, found, shown = self.text.rpartition(below) if below else ("", "it", self.text)
        return (
            bool(found)
            and all(word in shown for word in words)
            and (but is None or but not in self.text)
        )

    def _read(self, seconds: float) -> bool:
        """Draw all output within this time; False after the end."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # Linux's way to say that nobody holds the other end any more
            return False
        self.raw += piece
        self._stream.feed(piece)
        return bool(piece)

    def read(self, seconds: float) -> bool:
        """Draw all output within this time; False after the end."""
        return self._read(seconds)

    def close(self) -> None:
        """Kill the rest of it."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)
        os.close(self._ours)


def _set_size(fd: int, columns: int, rows: int = ROWS) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def terminal(
    command: Sequence[str], env: Mapping[str, str], columns: int = 80, rows: int = ROWS
) -> Iterator[Terminal]:
    """The program on a terminal for the block."""
    made = Terminal(command, env, columns, rows)
    try:
        yield made
    finally:
        made.close()
