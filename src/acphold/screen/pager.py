"""Long output, shown in the person's usual pager.

It is started with the first output, so that an error, or no output at all, starts none. `less` gets
the options git gives it: show colours (-R), quit if one screen is enough (-F), and leave the text
on the screen (-X). The last two only if LESS is not set, as a matter of taste; without the first it
would show colours as `ESC[1m`.
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
"""Pagers tried in this order if PAGER names none."""


@contextmanager
def output_paged() -> Iterator[None]:
    """Page what the block prints on stdout, and on stderr if that is the terminal.

    With PAGER empty or `cat` it is printed directly.
    """
    if os.environ.get("PAGER") in ("", "cat"):
        yield
        return
    with (
        paged(sys.stdout) as out,
        redirect_stdout(out),
        # On a terminal a warning would show up in the middle of a page.
        redirect_stderr(out) if sys.stderr.isatty() else nullcontext(),
    ):
        yield


@contextmanager
def paged(terminal: TextIO) -> Iterator[TextIO]:
    """Yield a stream whose output is shown in the pager, on this terminal.

    Leaving the block waits until the person has read it. If the person quits the pager earlier, the
    block ends at its next line without an error; without a pager, the output goes to the terminal.
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
    """The bytes for the pager, or for the terminal if there is none."""

    def __init__(self, terminal: int) -> None:
        self.is_left = False
        self._terminal = terminal
        self._pager: InFront | None = None
        self._begun = False

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Return True: the output is for a terminal, so colours are allowed."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`.

        Raises BrokenPipeError once when the person has quit; later data is dropped.
        """
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
    except ValueError:  # an unclosed quote
        return None
    for command in [named] if named else [[usual] for usual in USUAL]:
        if started := start_in_front(command, environment):
            return started
    return None
