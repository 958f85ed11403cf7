"""`acphold` as a person or a script runs it: in this process, in one of its own, on a terminal."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path

import pytest

from acphold.faces.cli.main import main

SECONDS = 60.0
"""Longest run of any command."""

AGAIN_SECONDS = 5.0
"""Silence after which a Ctrl-C is typed again: far longer than an answer to one takes."""

ACPHOLD = (sys.executable, "-m", "acphold")

SEVERAL = """
import json, os, sys
from acphold.faces.cli.main import main
for words, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    code = main(words)
    sys.stdout.flush()
    print("exit code", code, file=sys.stderr, flush=True)
"""


def several(*commands: tuple[Sequence[str], Mapping[str, str]]) -> list[str]:
    """A process that runs one after the other, with further variables, and says how each ended."""
    return [sys.executable, "-c", SEVERAL, json.dumps(commands)]


class Finished:
    """A command that has ended. On a terminal all of its output is in `out`."""

    def __init__(self, code: int, out: bytes, err: bytes = b"") -> None:
        self.code = code
        self.raw = out
        self.out = out.decode().replace("\r\n", "\n")
        self.err = err.decode()

    @property
    def all(self) -> str:
        """All its output: stdout, then stderr."""
        return self.raw.decode() + self.err

    @property
    def plain(self) -> str:
        """The output without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.out)


class Output(io.TextIOWrapper):
    """A stream that keeps all output, and may claim to be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._kept = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self._kept, encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def printed(self) -> bytes:
        self.flush()
        return self._kept.getvalue()


def _no_terminal(fd: int) -> str:
    raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))


def run_here(
    arguments: tuple[str, ...], environment: Mapping[str, str], *, is_terminal: bool = False
) -> Finished:
    """Run it in this process, with nothing to read; beside an event loop if one runs.

    With `is_terminal` stdout and stderr are one that claims to be a terminal, and all is in `out`.
    """
    if _get_running_loop() is not None:
        with ThreadPoolExecutor(1) as beside, pytest.MonkeyPatch.context() as changed:
            changed.setattr(signal, "signal", lambda *_: None)  # which only the main thread may
            run = partial(run_here, arguments, environment, is_terminal=is_terminal)
            return beside.submit(run).result()
    with ExitStack() as stack:
        changed = stack.enter_context(pytest.MonkeyPatch.context())
        for name in os.environ.keys() - environment.keys():
            changed.delenv(name)
        for name, value in environment.items():
            changed.setenv(name, value)
        changed.setenv("ACPHOLD_JOURNAL", os.environ.get("ACPHOLD_JOURNAL", ""))  # and put it back
        changed.setattr(sys, "stdin", stack.enter_context(open(os.devnull)))
        changed.setattr(os, "ttyname", _no_terminal)  # nor that of `pytest -s`
        out = stack.enter_context(redirect_stdout(Output(is_terminal=is_terminal)))
        err = out if is_terminal else Output(is_terminal=False)
        stack.enter_context(redirect_stderr(err))
        try:
            code = main(arguments)
        except SystemExit as exit:  # argparse's, behind --help and --version
            code = int(exit.code or 0)
        return Finished(code, out.printed, b"" if is_terminal else err.printed)


class CommandLine:
    """Runs `acphold` with one journal; `before` is called in each process that it starts by
    `command`."""

    def __init__(
        self,
        journal: Path,
        before: Callable[[], None] | None = None,
        command: Sequence[str] = ACPHOLD,
    ) -> None:
        self.journal = journal
        self._before = before
        self._command = command

    @property
    def environment(self) -> dict[str, str]:
        """Ours, with this journal, and nothing that would change how things look, or a pager."""
        unwanted = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        return {
            **kept,
            "ACPHOLD_JOURNAL": str(self.journal),
            "TERM": "xterm-256color",
            "PAGER": "cat",
        }

    def run(self, *arguments: str) -> Finished:
        """Run it in this process, without a terminal; beside an event loop, without signals."""
        return run_here(arguments, self.environment)

    def shown(self, *arguments: str, columns: int = 100) -> Finished:
        """The same with a terminal to print on, and nobody at it."""
        environment = {**self.environment, "COLUMNS": str(columns)}
        return run_here(arguments, environment, is_terminal=True)

    def run_as_process(self, *arguments: str, **changed: str) -> Finished:
        """Run it without a terminal; `changed` are further variables of its environment."""
        done = subprocess.run(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**self.environment, **changed},
            timeout=SECONDS,
            check=False,
            preexec_fn=self._before,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def on_terminal(
        self,
        *arguments: str,
        columns: int = 100,
        typed: bytes = b"",
        interrupted_at: bytes | None = None,
    ) -> Finished:
        """Run it on a terminal of its own, into which `typed` has been typed.

        With `interrupted_at` it gets a Ctrl-C as soon as it has said this.
        """
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with subprocess.Popen(
            [*ACPHOLD, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self.environment,
        ) as process:
            os.close(theirs)
            os.write(ours, typed)
            out, deadline = b"", time.monotonic() + SECONDS
            while interrupted_at is not None and interrupted_at not in out:
                if time.monotonic() > deadline:
                    process.kill()
                    pytest.fail(f"it did not say {interrupted_at!r} but {out!r}")
                if select.select([ours], [], [], 1.0)[0]:
                    out += os.read(ours, 65536)
            out += _read_to_end(ours, process, interrupt=interrupted_at is not None)
            os.close(ours)
            return Finished(process.wait(SECONDS), out)


def _read_to_end(fd: int, process: subprocess.Popen[bytes], *, interrupt: bool) -> bytes:
    """Return its output once it ends; with `interrupt`, send Ctrl-C until it answers.

    One Ctrl-C is not enough: before Python begins to read, it would end nothing until somebody
    types.
    """
    out, deadline = b"", time.monotonic() + SECONDS
    with suppress(OSError):  # Linux's way to say that nobody holds the other end any more
        while True:
            if time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"it did not end within {SECONDS:g} s; it said {out!r}")
            if interrupt:
                process.send_signal(signal.SIGINT)
            while select.select([fd], [], [], AGAIN_SECONDS)[0]:
                if not (piece := os.read(fd, 65536)):
                    return out
                out += piece
    return out
