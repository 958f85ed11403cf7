"""The terminal around a session: its background, input line by line, and the pager for long output.

The pager is started with the first output, so that an error, or no output at all, starts none.
`less` gets the options git gives it: show colours (-R), quit if one screen is enough (-F), and
leave the text on the screen (-X). The last two only if LESS is not set, as a matter of taste;
without the first it would show colours as `ESC[1m`.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import select
import shlex
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from select import select as select_readable
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from acp_wire.tasks import timeout
from acphold.faces.screen import bounds
from acphold.machine.foreground import InFront, start_in_front

if TYPE_CHECKING:
    from prompt_toolkit.output import Output

QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""Asks for the background (xterm's OSC 11) and the device attributes (DA1).

Every terminal answers the second, so one that does not know the first costs no waiting.
"""

COLOUR = re.compile(
    rb"\x1b\]11;rgb:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)[^\x1b\x07]*(?:\x07|\x1b\\)?"
)
DONE = re.compile(rb"\x1b\[\?[0-9;]*c")


def read_key() -> str:
    """Return the next key that is pressed at stdin, which needs no Enter; "" at its end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSANOW)  # and what was typed before counts
        return os.read(fd, 1).decode("ascii", "replace").casefold()
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def open_output(terminal: TextIO | None) -> Output:
    """Return what an application draws on. It does not ask where the cursor is: a slow terminal
    would be warned of, and answer after we have left, in the shell."""
    from prompt_toolkit.output import create_output  # late: plain output needs none of it
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output(terminal)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


class TerminalBackground(NamedTuple):
    """The background of a terminal, and what the person typed before it was known."""

    is_light: bool
    typed: bytes = b""


def background(reads: int, writes: int) -> TerminalBackground:
    """Return the background: from COLORFGBG, otherwise as the terminal answers."""
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if number.isdecimal():
        return TerminalBackground(number in ("7", "15"))
    try:
        before = termios.tcgetattr(reads)
    except termios.error:
        return TerminalBackground(is_light=False)
    try:
        tty.setcbreak(reads, termios.TCSADRAIN)
        answer = b""
        os.write(writes, QUESTION)
        deadline = time.monotonic() + bounds.BACKGROUND_SECONDS
        while (left := deadline - time.monotonic()) > 0 and not DONE.search(answer):
            if select.select([reads], [], [], left)[0]:
                if not (piece := os.read(reads, 1024)):
                    break
                answer += piece
    except OSError:  # the terminal is gone; drawing on it will fail and report it
        return TerminalBackground(is_light=False)
    finally:
        termios.tcsetattr(reads, termios.TCSADRAIN, before)
    typed = DONE.sub(b"", COLOUR.sub(b"", answer))
    if (colour := COLOUR.search(answer)) is None:
        return TerminalBackground(is_light=False, typed=typed)
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in colour.groups())
    return TerminalBackground(0.299 * red + 0.587 * green + 0.114 * blue > 0.5, typed)


class LineEntry(NamedTuple):
    """One line, or several that came at once, and its time by the clock of the loop."""

    text: str
    at: float


class TypedLines:
    """Reads a terminal, but only while somebody waits for a line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_over = False
        self._on_readable: Callable[[], None] | None = None
        self._is_away = False

    async def entry(self) -> LineEntry | None:
        """Return the next line, or all lines of a paste as one entry; None at the end."""
        if self._is_over or not (text := await self._piece()):
            return None
        at = asyncio.get_running_loop().time()
        while not self._is_over:
            try:
                async with timeout(bounds.PASTE_SECONDS):
                    text += await self._piece()
            except TimeoutError:
                # On a busy machine the time may be over although the next line has arrived.
                if self._is_away or not select_readable([self._fd], [], [], 0)[0]:
                    break
                text += self._read()
        return LineEntry(text.decode(errors="replace").strip(), at)

    async def _piece(self) -> bytes:
        """Wait for input and read it: at most a line, as terminals deliver it."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            if not readable.done():
                readable.set_result(None)

        self._on_readable = on_readable
        if not self._is_away:
            loop.add_reader(self._fd, on_readable)
        try:
            await readable
        finally:
            self._on_readable = None
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
            if self._on_readable is not None:
                loop.add_reader(self._fd, self._on_readable)


def drop_typed(fd: int) -> None:
    """Discard unread input of a terminal, including an unfinished line."""
    with suppress(termios.error):  # the terminal is gone
        termios.tcflush(fd, termios.TCIFLUSH)


USUAL = ("less", "more")
"""Pagers tried in this order if PAGER names none."""


@contextmanager
def output_paged(*, stays: bool = False) -> Iterator[None]:
    """Page what the block prints on stdout, and on stderr if that is the terminal.

    With PAGER empty or `cat` it is printed directly. With `stays` it stays on the screen until the
    person presses a key, however short it is: something else will be drawn there.
    """
    if os.environ.get("PAGER") in ("", "cat"):
        yield
        if stays:
            _wait_for_key()
        return
    with (
        pager(sys.stdout, stays=stays) as out,
        redirect_stdout(out),
        # On a terminal a warning would show up in the middle of a page.
        redirect_stderr(out) if sys.stderr.isatty() else nullcontext(),
    ):
        yield


def _wait_for_key() -> None:
    sys.stdout.write("Any key goes back.")
    sys.stdout.flush()
    read_key()
    drop_typed(sys.stdin.fileno())  # a key may be several characters


@contextmanager
def pager(terminal: TextIO, *, stays: bool = False) -> Iterator[TextIO]:
    """Yield a stream whose output is shown in the pager, on this terminal.

    Leaving the block waits until the person has read it. If the person quits the pager earlier, the
    block ends at its next line without an error; without a pager, the output goes to the terminal.
    `stays` is as in `output_paged`.
    """
    terminal.flush()
    pages = _Pages(terminal.fileno(), stays=stays)
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
        if stays and pages.may_be_gone:
            _wait_for_key()


class _Pages(io.RawIOBase):
    """The bytes for the pager, or for the terminal if there is none."""

    def __init__(self, terminal: int, *, stays: bool) -> None:
        self.is_left = False
        self.may_be_gone = False  # the pager need not have waited for a key
        self._stays = stays
        self._terminal = terminal
        self._pager: InFront | None = None
        self._is_started = False

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Return True: the output is for a terminal, so colours are allowed."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`.

        Raises BrokenPipeError once when the person has quit; later data is dropped.
        """
        if not self._is_started:
            self._is_started = True
            environment = {"LV": "-c", "LESSCHARSET": "utf-8", **os.environ}
            ours = "R" if self._stays else "FRX"
            environment["LESS"] = f"-R {os.environ['LESS']}" if "LESS" in os.environ else ours
            try:
                named = shlex.split(os.environ.get("PAGER", ""))
                commands = [named] if named else [[usual] for usual in USUAL]
            except ValueError:  # an unclosed quote
                commands = []
            self.may_be_gone = True
            for command in commands:
                is_less = os.path.basename(command[0]) == "less"
                if is_less and self._stays and (command[1:] or "LESS" in os.environ):
                    command += ["-+E", "-+F", "-+X"]
                if (started := start_in_front(command, environment)) is not None:
                    self._pager, self.may_be_gone = started, not is_less
                    break
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
