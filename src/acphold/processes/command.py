"""A command in a process group of its own: started, guarded, ended with all its children."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from acphold.errors import TerminalStartError
from acphold.processes import process_tree
from acphold.processes.exit_status import exit_status
from acphold.processes.guardian import Guard
from acphold.processes.launch import keep_stdio_open

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

SHELL_CHARACTERS = frozenset(" \t\n|&;<>()$`\"'*?[#~")
"""In a command, these make a shell do something; source: POSIX, shell command language, 2.2."""


class Program:
    """A command that runs. `output_fd`, to be closed by the owner, is its stdout and stderr.

    Its pid is the number of its process group. It stays in the process table until `reap`, so
    that the number cannot become somebody else's. The methods may be called from any thread.
    """

    def __init__(self, process: subprocess.Popen[bytes], guard: Guard, output_fd: int) -> None:
        self.pid = process.pid
        self.output_fd = output_fd
        self.gone = False
        self._process = process
        self._guard = guard
        self._lock = threading.Lock()

    @property
    def guarded(self) -> bool:
        """Whether it ends also when we are killed."""
        return self._guard.pid is not None

    def end(self, grace: float) -> None:
        """End it and its children: SIGTERM, SIGKILL, `grace` seconds each. Blocks meanwhile."""
        with self._lock:
            self._gone(not self.gone and process_tree.end(self.pid, self._guard.token, grace))

    def look(self) -> None:
        """Find out if it and its children have ended by themselves. Blocks for a moment."""
        with self._lock:
            self._gone(not self.gone and not process_tree.living(self.pid, self._guard.token))

    def status(self) -> int | None:
        """Wait until it ends; its exit status, -N for signal N, None if the system cannot tell."""
        return exit_status(self.pid)

    def reap(self) -> None:
        """Give the number back, once all is gone and the status is known."""
        if self.gone:
            self._process.poll()

    def _gone(self, now: bool) -> None:
        if now:  # else the guardian stays, for it may have to do what we could not
            self.gone = True
            self._guard.dismiss()


def run(command: str, args: Sequence[str], env: Mapping[str, str], cwd: str) -> Program:
    """Start a command in folder `cwd` with environment `env`, stdin empty. Blocks for some ms.

    A command without arguments that is a line for a shell gets one: agents send
    `{"command": "npm test && echo ok"}`, and most clients run it. Raises TerminalStartError.
    """
    import subprocess

    keep_stdio_open()
    guard = Guard()
    guard.start()
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            _argv(command, args, cwd),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            env=guard.environment(dict(env)),
            cwd=cwd,
            process_group=0,
        )
    except OSError as error:
        os.close(reading)
        guard.dismiss()
        raise TerminalStartError(_why_not(command, env, cwd, error)) from error
    finally:
        os.close(writing)
    guard.watch(process.pid)
    return Program(process, guard, reading)


def _argv(command: str, args: Sequence[str], cwd: str) -> list[str]:
    is_line = not args and not SHELL_CHARACTERS.isdisjoint(command)
    if is_line and not os.path.exists(os.path.join(cwd, command)):
        return ["/bin/sh", "-c", command]
    return [command, *args]


def _why_not(command: str, env: Mapping[str, str], cwd: str, error: OSError) -> str:
    """The sentence for a command that did not start."""
    if error.filename == cwd:
        reason = f"the folder {cwd!r}: {error.strerror}"
    elif "/" not in command and not _is_on_path(command, env):
        reason = "there is no such program on PATH"
    elif error.errno == errno.ENOENT:
        reason = "there is no such program, or none that the first line of it names"
    elif error.errno == errno.EACCES:
        reason = "it is not executable"
    elif error.errno == errno.ENOEXEC:
        reason = "it is no program for this system; does it lack a #! first line?"
    else:
        reason = error.strerror or str(error)
    return f"cannot run {command!r}: {reason}"


def _is_on_path(command: str, env: Mapping[str, str]) -> bool:
    # The system's word for "no such program" may be about a folder of PATH that we may not enter.
    return any(os.path.exists(os.path.join(folder, command)) for folder in os.get_exec_path(env))
