"""Numbers that only go up in a journal, noted at its file and not in it: they expose a file that
went back.

Copying over a file with `cp` replaces its content, but keeps its inode and extended attributes
(xattr(7)). In an earlier copy of the journal these numbers are lower than those in the notes. A
file that replaces the journal, as `acphold restore` makes it, has no notes. On systems without such
attributes nothing is noticed. Notes hold until the next boot: a power failure may take more from a
file than its attributes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Final

EPOCH: Final = "user.acphold.epoch"
"""The last epoch that was granted."""

CHANGES: Final = "user.acphold.changes"
"""SQLite's change counter in the header of the file."""


def note(path: str, name: str, number: int) -> None:
    """Note a number. Undoing the change in the file afterwards would make it look like an earlier
    copy."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(path, name, f"{number} {boot()}".encode())


def noted(path: str, name: str) -> int:
    """The number noted since the machine was started; 0 if there is none."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            number, _, when = os.getxattr(path, name).decode().partition(" ")
            return int(number) if when == boot() else 0
    return 0


@cache
def boot() -> str:
    """An id of this boot of the machine; "" if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as linux:
            return linux.read().strip()
    except OSError:
        import ctypes  # late, for a quick start: not needed on Linux

    told, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    # Source: macOS, sysctlbyname(3). Elsewhere boots cannot be told apart.
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(b"kern.bootsessionuuid", told, ctypes.byref(size), None, 0):
        return ""
    return told.value.decode(errors="replace")
