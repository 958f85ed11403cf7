"""A watch over folders, where the system tells of changes: Linux does (inotify(7))."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

MODIFIED, MOVED_FROM, MOVED_TO, CREATED, DELETED = 0x2, 0x40, 0x80, 0x100, 0x200
"""Events in a folder; source: sys/inotify.h."""

FOLDER_DELETED, FOLDER_MOVED = 0x400, 0x800
"""Events of the folder itself."""

LOSSES = MOVED_FROM | DELETED | FOLDER_DELETED | FOLDER_MOVED
"""The events by which a name in a folder is lost."""

ONLY_FOLDERS = 0x01000000

READ_BYTES = 64 << 10


class FolderWatch:
    """Sets `changed` when one of these events happens to a watched folder; nobody clears it."""

    def __init__(self, events: int) -> None:
        """Begin with no folder. Make it inside a running loop."""
        self.changed = asyncio.Event()
        self._events = events
        self._descriptor = -1
        self._libc: Any = None
        if sys.platform == "linux":
            import ctypes  # late: no client waits for it

            self._libc = ctypes.CDLL(None)
            self._descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self.works:
            asyncio.get_running_loop().add_reader(self._descriptor, self._drain)

    @property
    def works(self) -> bool:
        """True if the system tells."""
        return self._descriptor >= 0

    def add(self, folders: Iterable[str]) -> bool:
        """Watch these as well, without those that are missing or too many for the system; return
        True if all are watched. One that is watched already costs next to nothing."""
        if not self.works:
            return False
        events = self._events | ONLY_FOLDERS
        found = [
            self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), events) >= 0
            for folder in folders
        ]
        return all(found)

    def _drain(self) -> None:
        """Take the events; which files they are about, a look tells."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, READ_BYTES):
                self.changed.set()

    def close(self) -> None:
        """Watch no more."""
        if self.works:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
