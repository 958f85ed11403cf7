"""A watch over the folders of agents whose conversations were imported: what grows is read soon.

On Linux the kernel reports changes in these folders (inotify(7)), so nothing runs while nothing
changes; elsewhere, and for folders that did not exist, all are looked at from time to time, seldom
enough to use at most `bounds.WATCH_SHARE` of a core. Reading is left to `acphold index-beside`, one
at a time, and never more than a third of the time.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Iterable
from contextlib import suppress

from acp_wire.processes.installation import is_replaced
from acp_wire.processes.own_program import own_command, start_own
from acphold.faces.cli import bounds
from acphold.faces.cli.index_beside import growth, memory_file

log = logging.getLogger(__name__)

READ_BYTES = 64 << 10
CHANGES = 0x2 | 0x40 | 0x80 | 0x100 | 0x200
"""IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE."""

ONLY_FOLDERS = 0x01000000


class FolderEvents:
    """Wakes somebody when files in folders change, where the system can tell."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._folders: set[str] = set()
        self._inotify = -1
        self._libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify >= 0:
            asyncio.get_running_loop().add_reader(self._inotify, self._drain)

    @property
    def works(self) -> bool:
        """True if the system reports changes."""
        return self._inotify >= 0

    def add(self, folders: Iterable[str]) -> None:
        """Watch these as well; without those that are missing, or too many for the system."""
        for folder in {*folders} - self._folders if self.works else ():
            found = self._libc.inotify_add_watch(
                self._inotify, os.fsencode(folder), CHANGES | ONLY_FOLDERS
            )
            if found >= 0:
                self._folders.add(folder)

    def _drain(self) -> None:
        """Take the events; which files they are about, a look tells."""
        with suppress(BlockingIOError):
            while os.read(self._inotify, READ_BYTES):
                self.changed.set()

    def close(self) -> None:
        """Watch no more."""
        if self.works:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1


async def watch_agents(location: str) -> None:
    """Have what agents' own programs add read into the journal of this name, until cancelled or the
    program that would read it has been replaced.

    Nothing happens until something was imported.
    """
    events = FolderEvents()
    try:
        while not is_replaced():
            pause = await _look(events, location)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await events.changed.wait()
            # An agent writes several times in a moment.
            await asyncio.sleep(bounds.WATCH_QUIET_SECONDS)
    finally:
        events.close()


async def _look(events: FolderEvents, location: str) -> float:
    """Look once, and have read what has grown; return the seconds until the next look."""
    events.changed.clear()
    began, took = time.monotonic(), time.thread_time()
    try:
        folder = os.path.dirname(memory_file(location))
        os.makedirs(folder, 0o700, exist_ok=True)
        grown = growth(location)
        events.add([folder] if grown is None else [folder, *filter(os.path.isdir, grown.stamps)])
        if grown:
            await _read(location)
            await asyncio.sleep(bounds.WATCH_REST * (time.monotonic() - began))
            return bounds.WATCH_SECONDS
    except OSError as error:
        log.info("the agents' conversations cannot be looked at: %s", error)
    least = bounds.WATCH_SECONDS if events.works else bounds.WATCH_QUIET_SECONDS
    return max(least, (time.thread_time() - took) / bounds.WATCH_SHARE)


async def _read(location: str) -> None:
    command = own_command("index-beside", "--journal", location)
    process = await start_own(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
