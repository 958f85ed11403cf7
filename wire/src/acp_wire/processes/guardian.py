"""The guardian: it ends a program's leftovers, even if acphold was killed with SIGKILL.

A tiny shell in its own session reads a pipe whose only writing end is ours and close-on-exec. The
end of that pipe means that acphold is gone, for whatever reason. The program's stdin was closed at
the same moment, so it has a second to end by itself; then SIGTERM, then SIGKILL. A program that was
stopped (`Program.stop`) gets SIGKILL at once.

It ends the program's process group, and on Linux every process that carries the program's mark,
including children that made their own session. A number is signalled only right after it was seen
alive; a group that was once seen empty is never looked at again.

The mark is a number in two places that a process inherits: its environment, and its soft limit for
file locks. That limit can be read, and has no effect since Linux 2.4.25; so the mark also survives
`env -i`. A subreaper would collect such orphans too, but could not tell which program each is from.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock

from acp_wire.surroundings import RLIMIT_LOCKS

TYPE_CHECKING = False  # see acp_wire
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

VARIABLE = "ACPHOLD_GUARD"
"""Environment variable with the marks of the guards above a process, outermost first."""

DISMISS_SECONDS = 1.0
"""Seconds for a dismissed guardian to end before it is killed."""

SCRIPT = r"""
trap '' HUP INT QUIT TERM
cd /
mark=$1 group=$2
stopped=
while read -r word; do
    case $word in dismissed) exit 0;; stopped) stopped=1;; *) stopped=;; esac
done

nap() { sleep 0.1 2>/dev/null || sleep 1; }
grouped() {
    [ -n "$group" ] || return 1
    kill -s 0 -- "-$group" 2>/dev/null || { group=; return 1; }
}
marked() { grep -l -e "$mark" /proc/[0-9]*/environ /proc/[0-9]*/limits 2>/dev/null; }
alive() { grouped || [ -n "$(marked)" ]; }
signal() {
    grouped && kill -s "$1" -- "-$group"
    marked | while IFS=/ read -r _ _ pid _; do kill -s "$1" "$pid"; done
} 2>/dev/null
await() { tries=$1; while [ "$tries" -gt 0 ] && alive; do nap; tries=$((tries - 1)); done; }

[ -z "$stopped" ] || signal KILL
await 10
alive && signal TERM && await 20
for _ in 1 2 3 4 5; do alive || exit 0; signal KILL; nap; done
"""


class Guard:
    """One guardian for one program.

    `mark` identifies the program and all its descendants. `pid` is the guardian's own, None if no
    guardian could be started (no /bin/sh, no descriptors): then only an orderly end of acphold ends
    the program.
    """

    __slots__ = ("_pipe", "mark", "pid")

    def __init__(self) -> None:
        # Below 2^63, which means no limit; and always with the same number of digits.
        self.mark: str = str((1 << 62) + int.from_bytes(os.urandom(7)))
        self.pid: int | None = None
        self._pipe: int | None = None

    def watch(self, group: int) -> None:
        """Start the guardian of the program that leads process group `group`."""
        opened: list[int] = []
        try:
            reading, self._pipe = os.pipe()
            opened.append(reading)
            null = os.open(os.devnull, os.O_RDWR)
            opened.append(null)
            # A fresh environment: an outer guard's sweep must not kill this guardian before it has
            # done its work. No descriptor of ours: an editor waits for the end of our stdout.
            self.pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", SCRIPT, "acphold-guard", self.mark, str(group)],
                {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ],
                setsid=True,
                setsigmask=[],
            )
            _limit_locks(self.pid, None)  # it has inherited the mark of an outer guard
            _watching.add(self)
        except (OSError, NotImplementedError):
            self._close_pipe()
        finally:
            for fd in opened:
                os.close(fd)

    def note(self, *, stopped: bool) -> None:
        """Tell the guardian whether the program is stopped: what is ends at once with acphold, so
        that nothing of it runs on, or is left stopped."""
        if self._pipe is not None:
            try:
                os.write(self._pipe, b"stopped\n" if stopped else b"going\n")
            except OSError:
                pass  # somebody killed the guardian

    def dismiss(self) -> None:
        """End the guardian without consequences; blocks for at most DISMISS_SECONDS."""
        _watching.discard(self)
        if self._pipe is not None:
            try:
                os.write(self._pipe, b"dismissed\n")
            except OSError:
                pass  # somebody killed the guardian
        self._close_pipe()
        pid, self.pid = self.pid, None
        if pid is None:
            return
        deadline = time.monotonic() + DISMISS_SECONDS
        try:
            while not os.waitpid(pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    return
                time.sleep(0.001)
        except ChildProcessError:
            pass  # SIGCHLD is ignored here: nothing to reap

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """Return `env` with our mark added; outer guards' marks stay, so that they reach as far."""
        outer = env.get(VARIABLE)
        return {**env, VARIABLE: f"{outer}:{self.mark}" if outer else self.mark}

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)


_watching: set[Guard] = set()
"""The guards of this process that have a guardian."""


def end_programs() -> None:
    """Have every guardian end its program, as if this process had ended; for any thread of it."""
    for guard in _watching.copy():
        guard._close_pipe()


class Marking:
    """While this is entered, every program started gets the mark of `guard`; one at a time.

    The limit is set on ourselves: a program that at once starts something outside its group could
    be faster than us. If another thread starts a process in this millisecond, that is still
    recognised as a child of ours, see `process_tree`.
    """

    __slots__ = ("_before", "_mark")

    _alone = allocate_lock()

    def __init__(self, guard: Guard) -> None:
        self._mark = int(guard.mark)

    def __enter__(self) -> None:
        self._alone.acquire()
        self._before = _limit_locks(0, self._mark)

    def __exit__(self, *_: object) -> None:
        _limit_locks(0, self._before)
        self._alone.release()


def leave_outer_guard() -> None:
    """Remove the mark of the guard above us, to outlive it."""
    os.environ.pop(VARIABLE, None)
    _limit_locks(0, None)


def _limit_locks(pid: int, number: int | None) -> int | None:
    """Set the soft limit of `pid` for file locks to `number`, or None the hard one; return the old
    one.

    If that fails, because it has ended or has a lower hard limit, the variable remains.
    """
    if sys.platform != "linux":
        return None
    import resource

    try:
        soft, hard = resource.prlimit(pid, RLIMIT_LOCKS)
        resource.prlimit(pid, RLIMIT_LOCKS, (hard if number is None else number, hard))
    except (OSError, ValueError):
        return None
    return soft
