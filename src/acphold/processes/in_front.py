"""A program that a person uses on our terminal while we wait: a pager."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from acphold.processes.descriptors import close_others_on_exec
from acphold.processes.program import on_path


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
