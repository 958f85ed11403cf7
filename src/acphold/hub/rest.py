"""When a session is settled: a moment after its turns, and not while somebody may come back.

A client that asks for positions goes on behind the last one it was told, also over a new
connection. That is exact as long as nothing behind it was merged, and merging is what settling
does. So it is put off: a little while such a client is attached, for a connection may be dead
before anybody notices, and longer once its connection is lost. A session that is closed is settled
in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

DELAY = 1.0
"""Seconds of rest after a turn before it is compacted and indexed: not between two quick turns."""

UNNOTICED_SECONDS = 60.0
"""How long a connection may be dead before it is lost here: an ssh that asks whether the other side
is there does so every half minute or so."""

KEPT_SECONDS = 600.0
"""How long a client has to come back to its place. What is not settled is not found by a search, so
this is no day; who comes later loads the session."""


class Rest:
    """See the module. `settle` does the work; it runs once at a time."""

    def __init__(self, settle: Callable[[], Coroutine[None, None, None]]) -> None:
        self._settle = settle
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._bookmarks: list[float] = []
        self._settling: asyncio.Task[None] | None = None

    def begin(self, *, positions: bool) -> None:
        """The last turn has ended; `positions` says whether a client that is here asks for them."""
        # One timer for many turns: setting it and taking it back is dear beside a short turn.
        loop = asyncio.get_running_loop()
        delay = UNNOTICED_SECONDS if positions else DELAY
        until = loop.time() + delay
        if self._bookmarks:
            self._bookmarks = [end for end in self._bookmarks if end > loop.time()]
            until = max([until, *self._bookmarks])
        self._until = until
        if self._timer is not None and self._timer.when() > until:
            self._timer.cancel()  # it was to wait for somebody who has come back
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(until, self._over)

    def end(self) -> None:
        """A turn begins: what waits to settle waits on."""
        self._until = None

    def _over(self) -> None:
        self._timer = None
        if self._until is None:
            return  # a turn runs; its end begins the next rest
        loop = asyncio.get_running_loop()
        if self._until > loop.time():
            self._timer = loop.call_at(self._until, self._over)
        else:
            self.settle_now()

    # -- places ---------------------------------------------------------------------------

    @property
    def has_bookmarks(self) -> bool:
        """Whether a client may come back to its place."""
        return bool(self._bookmarks)

    def leave_bookmark(self) -> None:
        """The connection of a client was lost: its place is kept for a while."""
        end = asyncio.get_running_loop().time() + KEPT_SECONDS
        self._bookmarks.append(end)
        if self._until is not None:
            self._until = max(self._until, end)

    def take_bookmark(self) -> None:
        """A client that asks for positions has come: the oldest place is nobody's any more."""
        if self._bookmarks:
            self._bookmarks.pop(0)
            if self._until is not None:
                self.begin(positions=True)

    # -- settling -------------------------------------------------------------------------

    def settle_now(self) -> None:
        """Settle, beside everything else."""
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle(), name="settle")
            self._settling.add_done_callback(self._settled)

    def _settled(self, _: asyncio.Task[None]) -> None:
        self._settling = None

    async def settled(self) -> None:
        """Wait for the settling that is under way, if one is."""
        if self._settling is not None:
            await asyncio.wait({self._settling})

    def stop(self) -> None:
        """Begin nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self, seconds: float) -> None:
        """Settle now; what is not done after so many seconds is left for another time."""
        self.stop()
        self.settle_now()
        if (settling := self._settling) is not None:
            await asyncio.wait({settling}, timeout=seconds)
            settling.cancel()
