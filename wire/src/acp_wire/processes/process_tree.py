"""The processes that a program has started: finding those that live, and ending them."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
else:
    import _signal as signal

KILL_SECONDS = 3.0
"""Seconds for SIGKILL to work: enough unless the system is busy, or a disk holds a process."""

STOP_SECONDS = 2.0
"""Seconds in which processes that start others without end are stopped."""

POLL_SECONDS = 0.02
"""Seconds between two checks for living processes."""


def end(group: int, mark: str, grace: float, *, is_stopped: bool = False) -> bool:
    """End every process of `group` and every one that carries `mark`; return True if none is left.

    SIGTERM, up to `grace` seconds, SIGKILL, up to KILL_SECONDS; no wait if nothing lives. Those
    that `stop` has stopped do not run again: SIGKILL at once. Blocks.
    The caller must not have reaped the leader: while it is at least a zombie, `group` cannot be the
    number of somebody else's processes.
    """
    ways = ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS))
    for number, seconds in ways[is_stopped:]:
        deadline = time.monotonic() + seconds
        signalled: set[int] = set()
        while left := living(group, mark):
            fresh = left - signalled
            if fresh:  # including those forked meanwhile
                others = [pid for pid in fresh if pid > 0 and _try(os.getpgid, pid) != group]
                # The group in one call, so that nothing forks between two. Its end has the kernel
                # continue jobs that are stopped (setpgid(2)): then it comes last.
                calls = [(os.killpg, group), *((os.kill, pid) for pid in others)]
                for call, whose in reversed(calls) if is_stopped else calls:
                    _try(call, whose, number)
                signalled |= fresh
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return True
    return not living(group, mark)


def stop(group: int, mark: str) -> list[int]:
    """Stop every running process of `group` and every one that carries `mark`, until `go_on`;
    return the pids in the order in which they were stopped. Blocks for a moment.

    Those that were stopped before are left out: somebody else has them continue.
    """
    deadline = time.monotonic() + STOP_SECONDS
    seen: set[int] = set()
    stopped: list[int] = []
    # Parents first: a shell that saw its child stop would take it for a stopped job.
    while fresh := sorted(living(group, mark) - seen):  # including those forked meanwhile
        for pid in fresh:
            if condition(pid) != "stopped":
                _try(os.kill, pid, signal.SIGSTOP)
                stopped.append(pid)
        seen.update(fresh)
        if time.monotonic() > deadline:
            break
    return stopped


def go_on(group: int, mark: str, stopped: Sequence[int]) -> None:
    """Have those continue that `stop` has stopped, as far as they live."""
    left = living(group, mark)
    for pid in reversed(stopped):
        if pid in left:
            _try(os.kill, pid, signal.SIGCONT)


def living(group: int, mark: str) -> set[int]:
    """Return the pids that run in `group` or carry `mark`; without /proc, {-group}."""
    if sys.platform == "linux" and (pids := _all_pids()):
        found, raw = set(), mark.encode()
        for pid in pids:
            stat = _contents(f"/proc/{pid}/stat")
            # "pid (name) state ppid pgrp …"; the name may hold anything: count from its last ")".
            words = stat[stat.rfind(b")") + 2 :].split(None, 3)
            state, parent, its_group = (words + [b"0"] * 3)[:3]
            if state in b"0ZX":  # it has ended: the rest would still be readable
                continue
            if int(its_group) == group or (
                int(parent) != os.getpid()  # else it is another program that we have started
                and any(raw in _contents(f"/proc/{pid}/{place}") for place in ("limits", "environ"))
            ):
                found.add(pid)
        return found
    try:
        os.killpg(group, 0)
    except OSError:  # nobody there, only zombies, or processes we may not signal
        return set()
    return {-group}


def parents() -> dict[int, int]:
    """Return all running processes with their parents; zombies are left out."""
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


def family(pid: int) -> set[int]:
    """Return a process, if it runs, and all its running descendants."""
    children = parents()
    found = {pid} & children.keys()
    while more := {child for child, parent in children.items() if parent in found} - found:
        found |= more
    return found


def started_at(pid: int) -> float | None:
    """Return the time at which a process began, in seconds since the epoch; None if unknown."""
    stat, uptime = _contents(f"/proc/{pid}/stat"), _contents("/proc/uptime")
    try:  # proc_pid_stat(5), field 22
        ticks = int(stat[stat.rfind(b")") + 2 :].split()[19])
        return time.time() - float(uptime.split()[0]) + ticks / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return None


def resident_bytes(pids: set[int]) -> int:
    """Return the memory of these processes; what two share counts twice. 0 without /proc."""
    pages = [_contents(f"/proc/{pid}/statm").split()[1:2] for pid in pids]
    return sum(int(count) for found in pages for count in found) * os.sysconf("SC_PAGE_SIZE")


def command_line(pid: int) -> list[str]:
    """Return the words with which a process was started; [] if unknown."""
    raw = _contents(f"/proc/{pid}/cmdline").decode(errors="replace")
    return raw.rstrip("\0").split("\0") if raw else []


def condition(pid: int) -> str:
    """Say why a process that runs may not answer: "stopped", "waiting for a disk", or "busy"."""
    stat = _contents(f"/proc/{pid}/stat")  # proc_pid_stat(5)
    state = stat[stat.rfind(b")") + 2 :][:1]
    return {b"T": "stopped", b"t": "stopped", b"D": "waiting for a disk"}.get(state, "busy")


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _contents(path: str) -> bytes:
    """Return a small file of /proc; b"" if the process is gone, or not ours."""
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
    """Return the result of `call`; None if the process is gone, or not ours to signal."""
    try:
        return call(*arguments)
    except (ProcessLookupError, PermissionError):
        return None
