"""Our descriptors: which of them reach what we start, and that 0, 1 and 2 are what they seem."""

from __future__ import annotations

import os


def close_others_on_exec() -> None:
    """Keep what we inherited (an editor's sockets, say) from what we start."""
    try:
        inherited = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return  # Python's own descriptors are close-on-exec anyway
    for fd in inherited:
        if fd > 2:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass  # one of them listed the folder and is closed again


def keep_stdio_open() -> None:
    """Put /dev/null where descriptor 0, 1 or 2 is closed, lest a pipe of ours takes its place."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is `fd`
            os.set_inheritable(null, True)
