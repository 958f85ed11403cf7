"""Numbers that only go up in a journal, noted at its file and not in it: so a file that went back
shows.

`cp` over a file replaces what is in it, and leaves its number and its extended attributes
(xattr(7)). In an earlier copy of the journal these numbers are lower than those noted there. A file
that was put in the place of the journal, as `acphold restore` does, has no notes. Neither have file
systems and systems without such attributes: there nothing is noticed. Notes hold until the next
boot: when the power fails, a file may lose more than its attributes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Final

EPOCH: Final = "user.acphold.epoch"
"""The last epoch that was given out."""

CHANGES: Final = "user.acphold.changes"
"""SQLite's counter of changes in the file's header."""


def note(path: str, name: str, number: int) -> None:
    """Note it. If that is undone in the file, it looks like an earlier copy."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(path, name, f"{number} {boot()}".encode())


def noted(path: str, name: str) -> int:
    """What was noted since the machine was started; 0 for nothing."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            number, _, when = os.getxattr(path, name).decode().partition(" ")
            return int(number) if when == boot() else 0
    return 0


@cache
def boot() -> str:
    """What tells this boot of the machine from all others."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as linux:
            return linux.read().strip()
    except OSError:
        import ctypes  # no Linux; an editor waits for what is imported above

    told, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    # Source: macOS, sysctlbyname(3). Where there is no such name, a boot is not noticed.
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None or ask(b"kern.bootsessionuuid", told, ctypes.byref(size), None, 0):
        return ""
    return told.value.decode(errors="replace")
