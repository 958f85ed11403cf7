"""Our file descriptors: which ones children inherit, safe use of 0, 1 and 2, and how many."""

from __future__ import annotations

import os

MOST = 65_536
"""As many are enough where the system sets no limit."""


def close_others_on_exec() -> None:
    """Keep inherited descriptors (an editor's sockets, say) from the programs we start."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return  # Python's own descriptors are close-on-exec anyway
    for fd in inherited:
        if fd > 2:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass  # one of them was used to list the folder and is closed again


def keep_stdio_open() -> None:
    """Open /dev/null for a closed descriptor 0, 1 or 2, so that no pipe of ours takes its place."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is `fd`
            os.set_inheritable(null, True)


def allow_all() -> None:
    """Let this process, and those that it starts, have as many as the system allows (getrlimit(2),
    RLIMIT_NOFILE)."""
    import resource  # late: few processes need it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, MOST)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        pass  # a system may allow less than it says
