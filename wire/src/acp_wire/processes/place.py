"""The place in which a process runs: what it can see of the machine, and what it may do there.

A sandbox, a container or a toolbox may share a folder with the rest of the machine, and a socket in
it. A process that starts programs for others therefore asks the kernel where they are, and starts
nothing for another place: its socket is no way out. Sources: namespaces(7), proc_pid_status(5).
"""

from __future__ import annotations

import os
import sys


def place_of(pid: int | None = None) -> str:
    """Return the place of a process of this user, by default of this one; equal for two processes
    in the same one.

    It is made of the mount and user namespaces, the root folder, and the flags that take privileges
    away. "" where the system has no such thing. Raises OSError if the process has gone, or hides.
    """
    if sys.platform != "linux":
        return ""
    if pid is not None and os.readlink("/proc/self") != str(os.getpid()):
        raise OSError("/proc shows the processes of another namespace")
    folder = "/proc/self" if pid is None else f"/proc/{pid}"
    spaces = [os.readlink(f"{folder}/ns/{kind}") for kind in ("mnt", "user")]
    root = os.stat(f"{folder}/root")
    with open(f"{folder}/status", "rb") as file:
        lines = file.read().splitlines()
    flags = [line for line in lines if line.startswith((b"NoNewPrivs:", b"Seccomp:"))]
    taken = b" ".join(b" ".join(line.split()) for line in flags).decode()
    return f"{' '.join(spaces)} {root.st_dev}:{root.st_ino} {taken}"
