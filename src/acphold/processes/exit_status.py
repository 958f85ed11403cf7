"""How a child process ended: noticed and read without reaping it."""

from __future__ import annotations

import os
import signal
import sys


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when child `pid` ends; None where there is no such."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3, or a sandbox that forbids it
        return None


def exit_status(pid: int) -> int | None:
    """Wait until child `pid` ends; its exit status, -N for signal N, None if somebody reaped it.

    It stays a zombie, so that its number is not given away yet; only where the system has no
    waitid (macOS before Python 3.13) it is reaped here.
    """
    try:
        if not hasattr(os, "waitid"):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return None
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def describe(status: int | None) -> str:
    """`status` in words: `exit status 3`, `signal SIGKILL`."""
    if status is None:
        return "an unknown exit status"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"
