"""Services for a process that runs for days: a watchdog over its loop, its code kept in memory.

A daemon that crashes loses nothing; one that hangs stops every editor. So a hang is written down,
and does not last. The loop gives a sign of life with the ticks that an idle process has anyway, and
a thread looks for it now and then. When there is none it asks the loop for one; when none comes it
writes the stacks of all threads to stderr, and much later it aborts the process. It counts its own
ticks, not the clock: a laptop that sleeps, or a process that is stopped, has none.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event, Thread

from acp_wire.tasks import beside, tick
from acphold.faces.cli import bounds
from acphold.live.server.hung import is_in_journal
from acphold.machine.installation import keep_code

log = logging.getLogger(__name__)


async def keep_own_code() -> None:
    """Keep our code, whose files an upgrade takes, once the first client has its agent."""
    await asyncio.sleep(bounds.KEEP_CODE_SECONDS)
    try:
        await asyncio.to_thread(keep_code, "acphold", "acp_wire")
    except OSError as exc:
        log.warning("the code cannot be kept; end this process before an upgrade: %s", exc)


@asynccontextmanager
async def watch_loop(beat: Callable[[], object] = lambda: None) -> AsyncIterator[None]:
    """Watch the running loop for the block; `beat` is called at each sign of life of the loop."""
    watchdog = _Watchdog(asyncio.get_running_loop(), beat)
    watchdog.thread.start()
    try:
        async with beside(watchdog.live(), "sign of life"):
            yield
    finally:
        watchdog.over.set()
        await asyncio.to_thread(watchdog.thread.join)


def write_tasks() -> None:
    """Write where each task and each thread is to stderr."""
    print("acphold: asked by a signal; all tasks and threads:", file=sys.stderr)
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
    faulthandler.dump_traceback(sys.stderr)


class _Watchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop, beat: Callable[[], object]) -> None:
        self.over = Event()
        self.thread = Thread(target=self._watch, name="watchdog", daemon=True)
        self._loop = loop
        self._beat = beat
        self._alive = Event()

    async def live(self) -> None:
        """Give signs of life."""
        while True:
            self._alive.set()
            self._beat()
            await tick(bounds.BEAT_SECONDS)

    def _watch(self) -> None:
        while not self.over.wait(bounds.WATCHDOG_SECONDS):
            if self._alive.is_set():
                self._alive.clear()
                continue
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:  # it is closed
                return
            silent = 0
            while not self._alive.wait(bounds.HANG_SECONDS):
                if self.over.is_set():
                    return
                silent += 1
                if silent == 1:
                    print("acphold: the event loop hangs; all stacks:", file=sys.stderr)
                    faulthandler.dump_traceback(sys.stderr)
                # A disk comes back, as a database does; what runs goes on then.
                if silent >= (bounds.DISK_TICKS if is_in_journal() else bounds.ABORT_TICKS):
                    print("acphold: the event loop still hangs; aborting", file=sys.stderr)
                    sys.stderr.flush()
                    os.abort()
