"""A program that a person uses on the terminal that we are on, while we wait: a pager."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from acphold.processes.descriptors import close_others_on_exec
from acphold.processes.program import on_path


class InFront:
    """It runs; what is written to `fd` is what it reads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self.fd = process.stdin.fileno()
        self._process = process

    def wait(self) -> None:
        """Until it ends, which is for the person to say; there is no more for it to read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._process.returncode is None:
            with suppress(KeyboardInterrupt):  # which is for the program, and ends nothing there
                self._process.wait()


def start_in_front(command: Sequence[str], env: Mapping[str, str]) -> InFront | None:
    """Start it; None where there is no such program, or it cannot be started.

    It stays in our process group, so that the terminal is its as it is ours, Ctrl-Z included.
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
