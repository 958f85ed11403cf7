"""Which processes there are: the demo says that none is left, and looks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> set[int]:
    """A process and all that descend from it, as far as they run."""
    parents = dict(_running())
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def running(pids: Iterable[int]) -> set[int]:
    """Those of `pids` that run; one that has ended and was not reaped does not."""
    return {*pids} & {pid for pid, _ in _running()}


def _running() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    for line in _lines():
        # "pid (name) state parent …"; the name may hold anything, so split at its last ")".
        pid, _, rest = line.partition(" ")
        state, parent = rest.rpartition(")")[2].split()[:2]
        if state[0] not in "ZX":
            yield int(pid), int(parent)


def _lines() -> Iterator[str]:
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):  # it has just ended
                    yield Path(f"/proc/{name}/stat").read_text(errors="replace")
        return
    table = subprocess.run(["ps", "-axo", "pid=,stat=,ppid="], capture_output=True, text=True)
    yield from (line.strip() for line in table.stdout.splitlines())
