"""Unread updates for one reader of a session, bounded in bytes.

A connection is read while every inbox on it has room. When one is full, reading stops: the pipe
fills, and the agent waits. But a call whose answer is further back in the pipe must not wait for
ever. So while any code waits, for an answer or for an update, the connection is read in any case; a
full inbox then grows beyond its limit until the wait is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import ref

from acphold.client import bounds


class Backpressure:
    """Decides if the connection is read; shared by all inboxes on it."""

    def __init__(self) -> None:
        self._full: set[ref[Inbox]] = set()  # weak: a reader that is gone holds nobody up
        self._waiting = 0
        self._changed = asyncio.Event()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Keep reading the connection during the block, which waits for a message."""
        self._waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self._waiting -= 1

    @property
    def is_stopped(self) -> bool:
        """True if nothing is read now: a reader is slower than the agent."""
        return bool(self._full) and not self._waiting

    def mark(self, inbox: Inbox, *, full: bool) -> None:
        """Note that an inbox has become full, or has room again."""
        if full:
            self._full.add(ref(inbox, self._empty))
        else:
            self._empty(ref(inbox))

    def _empty(self, inbox: ref[Inbox]) -> None:
        self._full.discard(inbox)
        self._changed.set()

    async def room(self) -> None:
        """Wait until more may be read."""
        while self.is_stopped:
            self._changed.clear()
            await self._changed.wait()


class Inbox:
    """Raw updates in wire order, until they are taken; only one task at a time may take.

    `limit` is in bytes, `held` is their present number.
    """

    def __init__(self, flow: Backpressure, limit: int = bounds.INBOX_BYTES) -> None:
        self.held: int = 0
        self.limit = limit
        self._flow = flow
        self._raws: deque[bytes] = deque()
        self._is_full = False
        self._ended = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None

    def put(self, raws: Sequence[bytes]) -> None:
        """Add updates; nothing is ever refused."""
        if self._ended:
            return
        self._raws.extend(raws)
        self.held += sum(map(len, raws))
        if self.held > self.limit and not self._is_full:
            self._is_full = True
            self._flow.mark(self, full=True)
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """End it: nothing more will come; its updates can still be taken, and then the error."""
        self._ended, self._error = True, self._error or error
        self._wake()

    async def take(self) -> bytes | None:
        """Return the oldest update; None after the last one. Raises the error of its end."""
        if not self._raws and not await self._wait_for_update():
            return None
        raw = self._raws.popleft()
        self._release(len(raw))
        return raw

    async def take_all(self) -> list[bytes]:
        """Return all available updates, at least one; [] after the last one. Raises the error of
        its end."""
        if not self._raws and not await self._wait_for_update():
            return []
        raws = list(self._raws)
        self._raws.clear()
        self._release(self.held)
        return raws

    async def _wait_for_update(self) -> bool:
        """Wait until there is an update; False after the last one."""
        with self._flow.awaited():
            while not self._raws and not self._ended:
                if self._news is not None and not self._news.done():
                    raise RuntimeError("another task is reading these updates already")
                self._news = asyncio.get_running_loop().create_future()
                await self._news
        if not self._raws and self._error is not None:
            raise self._error
        return bool(self._raws)

    def _release(self, size: int) -> None:
        self.held -= size
        if self._is_full and self.held < self.limit // 2:
            self._is_full = False
            self._flow.mark(self, full=False)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
