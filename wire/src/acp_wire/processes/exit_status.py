"""The end of a child process: its exit status or signal, and words for error messages.

The status is read without reaping the process: until it is reaped, its number is not reused, and
may still be signalled.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


class ExitWatch:
    """Has `loop` call `tell` with the exit status of child `pid` when it ends, once."""

    def __init__(
        self, loop: AbstractEventLoop, pid: int, tell: Callable[[int | None], None]
    ) -> None:
        self._loop = loop
        self._pid = pid
        self._tell: Callable[[int | None], None] | None = tell
        self._fd = open_pidfd(pid)
        if self._fd is not None:
            loop.add_reader(self._fd, lambda: self._pass_on(exit_status(pid)))
        else:
            import threading

            threading.Thread(target=self._wait, name=f"wait for {pid}", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; may be called again."""
        self._tell = None
        fd, self._fd = self._fd, None
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _wait(self) -> None:
        status = exit_status(self._pid)
        try:
            self._loop.call_soon_threadsafe(self._pass_on, status)
        except RuntimeError:
            pass  # the loop has closed meanwhile: nobody waits any more

    def _pass_on(self, status: int | None) -> None:
        tell = self._tell
        self.stop()
        if tell is not None:
            tell(status)


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when child `pid` ends; None if unavailable."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3, or a sandbox that forbids it
        return None


def exit_status(pid: int) -> int | None:
    """Wait until child `pid` ends; return its exit status.

    -N stands for signal N, None if somebody else reaped it. It stays a zombie, so that its number
    is not reused yet; only if the system has no waitid (macOS before Python 3.13) it is reaped
    here.
    """
    try:
        if not hasattr(os, "waitid"):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return None
    if info is None:
        return None
    status: int = info.si_status
    return status if info.si_code == os.CLD_EXITED else -status


def describe(status: int | None) -> str:
    """Return `status` in words: `exit status 3`, `signal SIGKILL`."""
    if status is None:
        return "an unknown exit status"
    return f"exit status {status}" if status >= 0 else f"signal {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; `SIG35` for a real-time signal, which has no name."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
