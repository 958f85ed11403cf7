"""What is longer than a screen, in the pager that the person reads everything else in.

It is started with the first words, so that an error, or nothing at all, starts none. `less` is told
what git tells it: to show colours (-R), to go away by itself when one screen is enough (-F), and to
leave on the screen what was read (-X). The last two only where LESS says nothing, as a matter of
taste; without the first it would show colours as `ESC[1m`.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

from acphold.processes.in_front import InFront, start_in_front

USUAL = ("less", "more")
"""What is tried in this order where PAGER names none."""


@contextmanager
def output_paged() -> Iterator[None]:
    """What is printed in the block, on stdout and on a stderr that is the terminal, is paged.

    An empty PAGER, or `cat`, wants no pager: then it is printed.
    """
    if os.environ.get("PAGER") in ("", "cat"):
        yield
        return
    with (
        paged(sys.stdout) as out,
        redirect_stdout(out),
        # On a terminal a remark would stand in the middle of a page.
        redirect_stderr(out) if sys.stderr.isatty() else nullcontext(),
    ):
        yield


@contextmanager
def paged(terminal: TextIO) -> Iterator[TextIO]:
    """A stream for the block, of which what is written is read in the pager, on this terminal.

    Leaving the block waits until that was read. Who has read enough before that leaves the block at
    its next line, and that is no error; where there is no pager, it stands on the terminal.
    """
    terminal.flush()
    pages = _Pages(terminal.fileno())
    stream = io.TextIOWrapper(
        io.BufferedWriter(pages), encoding=terminal.encoding, errors="replace", newline=""
    )
    try:
        yield stream
    except BrokenPipeError:
        if not pages.is_left:
            raise
    finally:
        with suppress(BrokenPipeError):
            stream.close()


class _Pages(io.RawIOBase):
    """The bytes that go to the pager, or to the terminal where there is none."""

    def __init__(self, terminal: int) -> None:
        self.is_left = False
        self._terminal = terminal
        self._pager: InFront | None = None
        self._begun = False

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """What we write for it is for a terminal: colours, and nothing that plays tricks."""
        return True

    def write(self, data: Any) -> int:
        """All of it; BrokenPipeError once when the person has left, and what comes then is gone."""
        if not self._begun:
            self._begun = True
            self._pager = _started()
        piece = memoryview(data).cast("B")
        if self.is_left:
            return len(piece)
        try:
            return os.write(self._pager.fd if self._pager else self._terminal, piece)
        except BrokenPipeError:
            self.is_left = True
            raise

    def close(self) -> None:
        """Wait until the person has read it."""
        if not self.closed and self._pager is not None:
            self._pager.wait()
        super().close()


def _started() -> InFront | None:
    environment = {"LV": "-c", "LESSCHARSET": "utf-8", **os.environ}
    environment["LESS"] = f"-R {os.environ['LESS']}" if "LESS" in os.environ else "FRX"
    try:
        named = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:  # a quote that does not end
        return None
    for command in [named] if named else [[usual] for usual in USUAL]:
        if started := start_in_front(command, environment):
            return started
    return None
