"""A program that a person uses on our terminal: an editor, a sign-in, a pager.

`run_in_front` gives a program the terminal as a shell does: in its own process group, so that
Ctrl-C goes to it and not to us. Ctrl-Z stops both, and `fg` resumes both. A pager, which reads what
we write, shares our group instead: see `start_in_front`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from acp_wire.errors import AgentStartError
from acp_wire.processes.descriptors import close_others_on_exec
from acp_wire.processes.program import on_path

END_SECONDS = 2.0
"""Seconds after each signal for a program to end."""


class InFront:
    """The running program; it reads what is written to `fd`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self.fd = process.stdin.fileno()
        self._process = process

    def wait(self) -> None:
        """Wait until the person ends it; it gets no more input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._process.returncode is None:
            with suppress(KeyboardInterrupt):  # meant for the program, and ends nothing there
                self._process.wait()


def start_in_front(command: Sequence[str], env: Mapping[str, str]) -> InFront | None:
    """Start it; return None if it does not exist or cannot be started.

    It stays in our process group, so that it shares the terminal with us, including Ctrl-Z.
    """
    path = on_path(command[0])
    if path is None:
        return None
    close_others_on_exec()
    try:
        return InFront(
            subprocess.Popen(command, executable=path, env=env, stdin=subprocess.PIPE, bufsize=0)
        )
    except OSError:
        return None


class ForegroundProgram(NamedTuple):
    """A command, the variables it gets besides ours, and its folder, ours by default."""

    command: Sequence[str]
    env: Mapping[str, str] = {}
    cwd: str | None = None


async def run_in_front(wanted: ForegroundProgram, terminal: tuple[int, int] = (0, 1)) -> int:
    """Run it until it ends; return its exit status, -N for signal N.

    `terminal` are the descriptors it reads and writes. Cancelling this ends it. Raises
    AgentStartError.
    """
    command = wanted.command
    reads, writes = terminal
    if (path := on_path(command[0])) is None:
        raise AgentStartError(f"cannot start {command[0]!r}: no such program on PATH")
    close_others_on_exec()
    try:
        modes = termios.tcgetattr(reads)
        program = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
            command,
            executable=path,
            stdin=reads,
            stdout=writes,
            stderr=writes,
            env={**os.environ, **wanted.env},
            cwd=wanted.cwd,
            process_group=0,
        )
    except (OSError, ValueError, termios.error) as error:
        raise AgentStartError(f"cannot start {command[0]!r}: {error}") from error
    _give(reads, program.pid)

    def wait() -> int:
        while True:
            _, status = os.waitpid(program.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            _give(reads, os.getpgrp())
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            _give(reads, program.pid)

    waiting = asyncio.get_running_loop().run_in_executor(None, wait)
    try:
        return await asyncio.shield(waiting)
    finally:
        if not waiting.done():
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(program.pid, number)
                    os.killpg(program.pid, signal.SIGCONT)
                await asyncio.wait([waiting], timeout=END_SECONDS)
        program.returncode = waiting.result() if waiting.done() else -signal.SIGKILL
        _give(reads, os.getpgrp())
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(reads, termios.TCSADRAIN, modes)


def _give(terminal: int, group: int) -> None:
    """Make this process group the terminal's foreground, and resume it if it waits for that."""
    # A background process that does this would be stopped.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        with suppress(OSError):  # it controls no jobs
            os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if group != os.getpgrp():
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)
