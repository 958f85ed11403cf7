"""What is left of an agent: its living processes, and how they are brought to an end."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

POLL_SECONDS = 0.02
"""Pause between two looks at what is still alive."""


def end(group: int, token: str, grace: float) -> bool:
    """End every process of `group` and every one marked with `token`; True when none is left.

    SIGTERM, up to `grace` seconds, SIGKILL, up to `grace` seconds; no wait when nothing lives.
    Blocks. The caller must not have reaped the leader: while it is at least a zombie, `group`
    cannot be the number of somebody else's processes.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        signalled: set[int] = set()
        while left := living(group, token):
            fresh = left - signalled
            if fresh:  # also those that were forked while we looked
                _signal_all(group, fresh, number)
                signalled |= fresh
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return True
    return not living(group, token)


def living(group: int, token: str) -> set[int]:
    """The pids that still run in `group` or carry `token`; where there is no /proc, {-group}."""
    if sys.platform == "linux" and (pids := _all_pids()):
        mark = token.encode()
        return {pid for pid in pids if _is_alive_in(pid, group) or _carries(pid, mark)}
    try:
        os.killpg(group, 0)
    except OSError:  # nobody there, or only zombies, or nobody that we may signal
        return set()
    return {-group}


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _is_alive_in(pid: int, group: int) -> bool:
    stat = _contents(f"/proc/{pid}/stat")
    # "pid (name) state ppid pgrp …"; the name may hold anything, so count from its last ")".
    fields = stat[stat.rfind(b")") + 2 :].split(None, 3)
    return len(fields) > 2 and fields[0] not in b"ZX" and int(fields[2]) == group


def _carries(pid: int, mark: bytes) -> bool:
    return mark in _contents(f"/proc/{pid}/environ")


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


def _signal_all(group: int, pids: set[int], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)  # one call: nobody forks its way out between two
    for pid in pids:
        if pid > 0:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != group:
                    os.kill(pid, number)
