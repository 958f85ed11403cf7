"""The guardian: it ends what an agent left behind, even when acphold was killed with SIGKILL.

A tiny shell in a session of its own reads a pipe whose only writing end is ours and close-on-exec.
The end of that pipe means that acphold is gone, however it went. The agent's stdin has closed at
the same moment, so it gets a second to end by itself; then SIGTERM, then SIGKILL.

Who is meant: the agent's process group, and on Linux every process whose environment carries the
agent's token, which reaches children that made a session of their own. A number is signalled only
right after it was seen alive; a group that was once seen empty is never looked at again.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

VARIABLE = "ACPHOLD_GUARD"
"""Environment variable with the tokens of the guards a process lives under, outermost first."""

DISMISS_SECONDS = 1.0
"""How long a dismissed guardian may take to end before it is killed."""

SCRIPT = r"""
trap '' HUP INT QUIT TERM
cd /
token=$1
read -r group
read -r dismissed && exit 0

nap() { sleep 0.1 2>/dev/null || sleep 1; }
grouped() {
    [ -n "$group" ] || return 1
    kill -s 0 -- "-$group" 2>/dev/null || { group=; return 1; }
}
marked() { grep -l -e "$token" /proc/[0-9]*/environ 2>/dev/null; }
alive() { grouped || [ -n "$(marked)" ]; }
signal() {
    grouped && kill -s "$1" -- "-$group"
    marked | while IFS=/ read -r _ _ pid _; do kill -s "$1" "$pid"; done
} 2>/dev/null
await() { tries=$1; while [ "$tries" -gt 0 ] && alive; do nap; tries=$((tries - 1)); done; }

await 10
alive && signal TERM && await 20
for _ in 1 2 3 4 5; do alive || exit 0; signal KILL; nap; done
"""


class Guard:
    """One guardian for one agent.

    `token` marks the environment of the agent. `pid` is the guardian's own, None where no guardian
    could be started (no /bin/sh): then only an orderly end of acphold ends the agent.
    """

    __slots__ = ("_pipe", "pid", "token")

    def __init__(self) -> None:
        self.token = os.urandom(16).hex()
        self.pid: int | None = None
        self._pipe: int | None = None

    def start(self) -> None:
        """Start the guardian; about half a millisecond."""
        reading, self._pipe = os.pipe()
        try:
            self.pid = _spawn_shell(self.token, reading)
        except (OSError, NotImplementedError):
            self._close_pipe()
        finally:
            os.close(reading)

    def watch(self, group: int) -> None:
        """Tell the guardian the agent's process group."""
        self._say(f"{group}\n")

    def dismiss(self) -> None:
        """End the guardian without consequences; blocks for at most DISMISS_SECONDS."""
        self._say("dismissed\n")
        self._close_pipe()
        pid, self.pid = self.pid, None
        if pid is not None:
            _reap(pid, DISMISS_SECONDS)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """`env` with our token added; those of outer guards stay, so that theirs reach as far."""
        outer = env.get(VARIABLE)
        return {**env, VARIABLE: f"{outer}:{self.token}" if outer else self.token}

    def _say(self, line: str) -> None:
        if self._pipe is not None:
            with suppress(OSError):  # somebody killed the guardian
                os.write(self._pipe, line.encode())

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)


def _spawn_shell(token: str, reading: int) -> int:
    """Start the guardian's shell with `reading` as its stdin; raises OSError."""
    # An environment of its own: an outer guard's sweep must not take this guardian down before
    # it has done its work. No descriptor of ours: an editor waits for the end of our stdout.
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", SCRIPT, "acphold-guard", token],
            {"PATH": os.environ.get("PATH", os.defpath)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
            setsid=True,
            setsigmask=[],
        )
    finally:
        os.close(null)


def _reap(pid: int, seconds: float) -> None:
    """Wait for child `pid`; kill it when it takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    with suppress(ChildProcessError):  # SIGCHLD is ignored here: nothing to reap
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.001)
