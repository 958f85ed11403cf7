"""Detect files on network file systems, where neither locks nor SQLite's log are reliable.

The index of SQLite's log is shared memory, which no other machine sees (sqlite.org, Write-Ahead
Logging), and locks of a network file system hold on one machine, or nowhere.
"""

from __future__ import annotations

import os
from typing import Final

MOUNTS: Final = "/proc/self/mountinfo"
"""The mounts on Linux: proc(5)."""

NETWORK: Final = frozenset(
    (
        *("acfs", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)
"""Types of file systems on other machines. Not `9p`: sandboxes such as gVisor use it for their own
disk."""


def network_type(path: str) -> str | None:
    """The type of the file system on which `path` is or would be, if that is on a network.

    None for any other, and if the system does not tell.
    """
    try:
        while not os.path.lexists(path) and (above := os.path.dirname(path)) != path:
            path = above
        device = os.stat(path).st_dev
        if os.major(device):  # a disk of this machine
            return None
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return type_of(f"0:{os.minor(device)}", mounts.read())
    except OSError:
        return None


def type_of(device: str, mounts: str) -> str | None:
    """The type with which this device is mounted, if it is in NETWORK."""
    for line in mounts.splitlines():
        place, separator, file_system = line.partition(" - ")
        fields = place.split(" ")
        if separator and len(fields) > 2 and fields[2] == device:
            found = file_system.split(" ")[0]
            return found if found in NETWORK else None
    return None
