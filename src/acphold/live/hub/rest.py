"""The rest of a session after a turn, and the clients that it waits for before it is settled.

A client that asks for positions resumes after its last one, also over a new connection. That is
exact as long as nothing after it was merged, and settling merges. So settling is put off: a little
while such a client is attached, for its connection may be dead unnoticed; longer once its
connection is lost; longest if that was in a turn. An owner that ends leaves the session unsettled
for such a client, and the next owner does the same.
"""

# See docs/decisions.md, 11.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from msgspec import Struct

from acphold.live.hub import bounds


class Bookmark(Struct, frozen=True):
    """The position of a client: kept until `soon`, and until `late` if no turn begins after that.

    Both are times of the event loop.
    """

    soon: float
    late: float


class Rest:
    """The rest of a session between turns, in which it is settled, and the bookmarks that put this
    off.

    It is settled once at a time: `settle` returns True if that was possible. That waits for `room`,
    shared with other sessions: hundreds may come to rest at one moment. `look` is called TOUCH_MS
    after a turn or `look_soon`, also in the next turn, unless it is settled by then.
    """

    def __init__(
        self,
        settle: Callable[[], Coroutine[None, None, bool]],
        look: Callable[[], None],
        room: asyncio.Semaphore,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settle = settle
        self._look = look
        self._room = room
        self._failed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._bookmarks: list[Bookmark] = []
        self._settling: asyncio.Task[bool] | None = None
        self._compacted = asyncio.Event()
        self._compacted.set()
        self._settles_again = False
        self._reads = 0
        self._all_read = asyncio.Event()

    def begin(self, *, positions: bool) -> None:
        """Start resting after the last turn; `positions` says that an attached client asks for
        them."""
        now = self._loop.time()
        self._until = now + (bounds.UNNOTICED_SECONDS if positions else bounds.REST_SECONDS)
        if self._bookmarks:
            self._bookmarks = [mark for mark in self._bookmarks if mark.late > now]
            self._until = max([self._until, *(mark.late for mark in self._bookmarks)])
        self.look_soon()

    def look_soon(self) -> None:
        """Look TOUCH_MS from now, or settle before that if the rest is shorter."""
        soon = self._loop.time() + bounds.TOUCH_MS / 1000
        if self._until is not None:
            soon = min(soon, self._until)
        # One timer serves many turns: setting and cancelling it is expensive beside a short turn.
        if self._timer is not None:
            if self._timer.when() <= soon:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(soon, self._over)

    def end(self) -> None:
        """Stop resting: a turn begins."""
        self._until = None
        if self._bookmarks:
            now = self._loop.time()
            self._bookmarks = [mark for mark in self._bookmarks if mark.soon > now]

    def _over(self) -> None:
        self._timer = None
        if self._until is None:  # a turn runs; its end begins the next rest
            self._look()
        elif self._until > self._loop.time():
            self._look()
            self._timer = self._loop.call_at(self._until, self._over)
        elif self._settling is None:
            self.settle_now()
        else:
            self._settles_again = True

    # -- bookmarks ------------------------------------------------------------------------

    @property
    def bookmarks(self) -> int:
        """Number of clients that may come back to their position."""
        now = self._loop.time()
        return sum(mark.late > now for mark in self._bookmarks)

    def leave_bookmark(self, *, in_turn: bool, ago: float = 0.0) -> None:
        """Keep the position of a client whose connection was lost `ago` seconds before."""
        lost = self._loop.time() - ago
        late = lost + (bounds.BOOKMARK_IN_TURN_SECONDS if in_turn else bounds.BOOKMARK_SECONDS)
        self._bookmarks.append(Bookmark(lost + bounds.BOOKMARK_SECONDS, late))
        if self._until is not None:
            self._until = max(self._until, late)

    def take_bookmark(self) -> None:
        """Drop the oldest bookmark: a client that asks for positions has come."""
        if self._bookmarks:
            self._bookmarks.pop(0)
            if self._until is not None:
                self.begin(positions=True)

    # -- settling -------------------------------------------------------------------------

    def settle_now(self) -> None:
        """Settle in a task."""

        async def settle() -> bool:
            async with self._room:
                self._compacted.clear()  # not earlier: readers need not wait for other sessions
                while self._reads:  # let readers move on first
                    self._all_read.clear()
                    await self._all_read.wait()
                return await self._settle()

        if self._settling is None:
            self._settling = asyncio.create_task(settle(), name="settle")
            self._settling.add_done_callback(self._on_settled)

    def end_compaction(self) -> None:
        """Note that compaction is over: the rest of settling changes no rows."""
        self._compacted.set()

    def _on_settled(self, settling: asyncio.Task[bool]) -> None:
        self._settling = None
        self._compacted.set()
        could = not settling.cancelled() and settling.exception() is None and settling.result()
        self._failed = 0 if could else self._failed + 1
        if self._settles_again:  # it came to rest meanwhile
            self._settles_again = False
            if self._timer is None:
                self._over()
        elif self._failed and self._until is not None and self._timer is None:
            # Try again after a full disk, say: there may be no further turn whose end starts a
            # rest.
            doubled = bounds.REST_SECONDS * 2 ** min(self._failed, 30)  # else no float holds it
            delay = min(doubled, bounds.UNNOTICED_SECONDS)
            self._timer = self._loop.call_later(delay, self._over)

    async def compaction_ends(self) -> None:
        """Wait until no compaction runs."""
        while not self._compacted.is_set():  # another may have begun before this continues
            await self._compacted.wait()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """A block without compaction; entered when none runs."""
        await self.compaction_ends()
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1
            if not self._reads:
                self._all_read.set()

    def stop(self) -> None:
        """Start nothing more."""
        self._until = None
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self, seconds: float) -> None:
        """Settle now; leave the rest for another time after so many seconds.

        Does not settle while a client may come back to its position.
        """
        self.stop()
        if not self.bookmarks:
            self.settle_now()
        if (settling := self._settling) is not None:
            await asyncio.wait({settling}, timeout=seconds)
            settling.cancel()  # it ends after its present piece
            await asyncio.wait({settling}, timeout=seconds)
