"""A journal may be out of reach for a while: its database is away, or another program locks its
file. Work on its sessions waits until it is back; `hub.ownership` has what else is done meanwhile.
"""

# See docs/decisions.md, 17.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from acp_wire.tasks import timeout
from acphold.errors import JournalBusyError, JournalUnavailableError
from acphold.journal.journal import Journal
from acphold.live.hub import bounds


class Outage:
    """See the module. `begun` is set while the journal is out of reach, `is_paused` while agents
    are stopped for that."""

    def __init__(self, journal: Journal) -> None:
        self.begun = asyncio.Event()
        self.is_paused = False
        self._news = asyncio.Event()
        self._since = self._ended = -bounds.AGAIN_SECONDS
        if journal.file is None:
            journal.on_unanswered = self.begin

    def begin(self) -> None:
        """Note that the journal does not answer."""
        if not self.begun.is_set():
            self.begun.set()
            now = asyncio.get_running_loop().time()
            if now - self._ended >= bounds.AGAIN_SECONDS:
                self._since = now

    def end(self) -> None:
        """Note that it answers again."""
        self.begun.clear()
        self.is_paused = False
        self._ended = asyncio.get_running_loop().time()
        self.wake()

    @property
    def lasted(self) -> float:
        """Seconds since it began, without those that the machine slept."""
        return asyncio.get_running_loop().time() - self._since

    async def wait(self, error: JournalBusyError, seconds: Callable[[], float]) -> None:
        """Wait until the journal can be reached again; raises JournalUnavailableError once it has
        been away for so many seconds."""
        self.begin()
        while self.begun.is_set():
            if (left := seconds() - self.lasted) <= 0:
                why = f"the journal has been out of reach for {self.lasted:.0f} s (max_outage)"
                raise JournalUnavailableError(f"{why}: {error}")
            with suppress(TimeoutError):
                async with timeout(left):
                    await self._news.wait()

    def refuse_to_write(self) -> None:
        """Raise JournalBusyError: agents are stopped. A session may be another place's by now, of
        which the journal may know nothing yet, and what is written here would stand in its way."""
        raise JournalBusyError("the journal was out of reach for long, and is looked at first")

    async def until_running(self) -> None:
        """Wait while agents are stopped: what they have asked for is done when they continue."""
        while self.is_paused:
            await self._news.wait()

    def wake(self) -> None:
        """Have all who wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()
