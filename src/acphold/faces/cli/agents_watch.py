"""A watch over the folders of agents whose conversations were imported: what grows is read soon.

On Linux the kernel reports changes in these folders (inotify(7)), so nothing runs while nothing
changes; elsewhere all are looked at every few seconds, and folders that did not exist once a
minute. Reading is left to `acphold background-import`, one at a time, and never more than a third
of the time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress

from acp_wire.tasks import timeout
from acphold.faces.cli import bounds
from acphold.faces.cli.background_import import growth, memory_file
from acphold.journal import stores
from acphold.journal_location import is_gone
from acphold.machine.folder_watch import (
    CREATED,
    DELETED,
    MODIFIED,
    MOVED_FROM,
    MOVED_TO,
    FolderWatch,
)
from acphold.machine.installation import is_replaced
from acphold.machine.own_program import own_command, run_beside

log = logging.getLogger(__name__)


async def watch_agents() -> None:
    """Have what agents' own programs add read into the journal, until cancelled or the program that
    would read it has been replaced.

    Nothing happens until something was imported.
    """
    watch = FolderWatch(MODIFIED | MOVED_FROM | MOVED_TO | CREATED | DELETED)
    try:
        while not is_replaced():
            pause = await _look(watch, stores.journal_name())
            with suppress(TimeoutError):
                async with timeout(pause):
                    await watch.changed.wait()
            # An agent writes several times in a moment.
            await asyncio.sleep(bounds.WATCH_QUIET_SECONDS)
    finally:
        watch.close()


async def _look(watch: FolderWatch, location: str) -> float:
    """Look once, and have read what has grown; return the seconds until the next look."""
    watch.changed.clear()
    began, took = time.monotonic(), time.thread_time()
    try:
        if is_gone(location):
            return bounds.WATCH_SECONDS
        folder = os.path.dirname(memory_file(location))
        os.makedirs(folder, 0o700, exist_ok=True)
        grown = growth(location)
        watch.add([folder] if grown is None else [folder, *filter(os.path.isdir, grown.stamps)])
        if grown:
            await run_beside(own_command("background-import", "--journal", location))
            await asyncio.sleep(bounds.WATCH_REST * (time.monotonic() - began))
            return bounds.WATCH_SECONDS
    except OSError as error:
        log.info("the agents' conversations cannot be looked at: %s", error)
    if watch.works:
        return bounds.WATCH_SECONDS
    took = time.thread_time() - took
    return min(max(bounds.WATCH_QUIET_SECONDS, took / bounds.WATCH_SHARE), bounds.WATCH_MOST)
