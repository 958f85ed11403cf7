"""The processes that a program has started: which of them still live, and how they are ended."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal  # without its enums, which take two milliseconds

KILL_SECONDS = 3.0
"""What the system gets for SIGKILL: a moment, unless it is busy, or a disk holds a process."""

POLL_SECONDS = 0.02
"""Pause between two looks at what is still alive."""


def end(group: int, mark: str, grace: float) -> bool:
    """End every process of `group` and every one that carries `mark`; True when none is left.

    SIGTERM, up to `grace` seconds, SIGKILL, up to KILL_SECONDS; no wait when nothing lives.
    Blocks. The caller must not have reaped the leader: while it is at least a zombie, `group`
    cannot be the number of somebody else's processes.
    """
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)):
        deadline = time.monotonic() + seconds
        signalled: set[int] = set()
        while left := living(group, mark):
            fresh = left - signalled
            if fresh:  # also those that were forked while we looked
                _try(os.killpg, group, number)  # one call: nobody forks its way out between two
                for pid in fresh:
                    if pid > 0 and _try(os.getpgid, pid) != group:
                        _try(os.kill, pid, number)
                signalled |= fresh
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return True
    return not living(group, mark)


def living(group: int, mark: str) -> set[int]:
    """The pids that still run in `group` or carry `mark`; where there is no /proc, {-group}."""
    if sys.platform == "linux" and (pids := _all_pids()):
        raw = mark.encode()
        return {pid for pid in pids if _belongs(pid, group, raw)}
    try:
        os.killpg(group, 0)
    except OSError:  # nobody there, or only zombies, or nobody that we may signal
        return set()
    return {-group}


def parents() -> dict[int, int]:
    """Every process that runs, with its parent; one that has ended and was not reaped does not."""
    if sys.platform == "linux":
        lines = [_contents(f"/proc/{pid}/stat") for pid in _all_pids()]
    else:
        import subprocess

        told = subprocess.run(["/bin/ps", "-axo", "pid=,stat=,ppid="], capture_output=True)
        lines = told.stdout.splitlines()
    found = {}
    for line in filter(None, map(bytes.strip, lines)):
        # "pid (name) state parent …"; the name may hold anything, so split at its last ")".
        pid, _, rest = line.partition(b" ")
        state, parent = rest.rpartition(b")")[2].split()[:2]
        if state[:1] not in b"ZX":
            found[int(pid)] = int(parent)
    return found


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _belongs(pid: int, group: int, mark: bytes) -> bool:
    stat = _contents(f"/proc/{pid}/stat")
    # "pid (name) state ppid pgrp …"; the name may hold anything, so count from its last ")".
    state, parent, its_group = (stat[stat.rfind(b")") + 2 :].split(None, 3) + [b"0"] * 3)[:3]
    if state in b"0ZX":  # it has ended: the rest would still be readable
        return False
    if int(its_group) == group:
        return True
    if int(parent) == os.getpid():  # another that we have started
        return False
    return any(mark in _contents(f"/proc/{pid}/{place}") for place in ("limits", "environ"))


def _contents(path: str) -> bytes:
    """The whole of a small file of /proc; b"" when the process is gone, or is not ours."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        pieces = []
        while piece := os.read(fd, 64 * 1024):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _try(call: Callable[..., int | None], *arguments: int) -> int | None:
    """What `call` returns; None for a process that is gone, or not ours to signal."""
    try:
        return call(*arguments)
    except (ProcessLookupError, PermissionError):
        return None
