"""The place in which a process runs: what it can see of the machine, and what it may do there.

A sandbox, a container or a toolbox may share a folder with the rest of the machine, and a socket in
it. A process that starts programs for others therefore asks the kernel where they are, and starts
nothing for another place: its socket is no way out. Sources: namespaces(7), proc_pid_status(5),
proc_pid_stat(5).
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


def name_of_place(place: str) -> str:
    """Return a name for a place of this system; "" if no process in it can be seen.

    The numbers of namespaces are used again. So the name is also made of the first process there,
    and of the boot: as long as that process runs, no other place gets the name. Reads /proc.
    """
    from _blake2 import blake2b  # hashlib brings OpenSSL

    first: tuple[int, int] | None = None
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            if place_of(int(name)) == place:
                born = _start_of(int(name)), int(name)
                first = born if first is None else min(first, born)
        except OSError:
            pass  # it has ended, or is another user's
    if first is None:
        return ""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        whole = f"{place} {first} ".encode() + file.read()
    return f"sandbox-{blake2b(whole, digest_size=6).hexdigest()}"


def _start_of(pid: int) -> int:
    """Return the moment at which a process began, in ticks since the boot."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def describe_place(place: str, other: str) -> str:
    """Return in words how a place differs from another one."""
    parts = ("another mount namespace", "another user namespace", "another root folder")
    pairs = zip(parts, place.split(" "), other.split(" "), strict=False)
    found = [words for words, its, ours in pairs if its != ours]
    flags = [flag for flag in ("NoNewPrivs", "Seccomp") if f"{flag}: 0" not in place]
    return ", ".join([*found, *flags])
