"""What came for one reader of a session and was not read yet, bounded in bytes.

A connection is read on while every inbox on it has room. When one is full, reading stops: the pipe
fills, and the agent waits. But who waits for something that lies behind it in the pipe must not
wait for ever. So while anybody waits, for an answer or for an update, the connection is read on in
any case; a full inbox then grows beyond its limit until the wait is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import ref

INBOX_BYTES = 1024 * 1024
"""Bytes of updates that one reader may leave untaken before the agent has to wait."""


class Flow:
    """Whether a connection is read on; shared by all inboxes on it."""

    def __init__(self) -> None:
        self._full: set[ref[Inbox]] = set()  # weak: a reader that is gone holds nobody up
        self._waiting = 0
        self._changed = asyncio.Event()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """For the block, somebody waits for what is to come."""
        self._waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self._waiting -= 1

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is read now: somebody reads more slowly than the agent talks."""
        return bool(self._full) and not self._waiting

    def mark(self, inbox: Inbox, *, full: bool) -> None:
        """An inbox has become full, or has room again."""
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
    """Raw updates in the order of the wire, until they are taken; one task at a time may take.

    `limit` is in bytes, `held` how many there are.
    """

    def __init__(self, flow: Flow, limit: int = INBOX_BYTES) -> None:
        self.held: int = 0
        self.limit = limit
        self._flow = flow
        self._raws: deque[bytes] = deque()
        self._is_full = False
        self._ended = False
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

    def end(self) -> None:
        """Nothing more will come; what is there can still be taken."""
        self._ended = True
        self._wake()

    async def take(self) -> bytes | None:
        """The oldest update; None behind the last one."""
        if not self._raws and not await self._something():
            return None
        raw = self._raws.popleft()
        self._taken(len(raw))
        return raw

    async def take_all(self) -> list[bytes]:
        """All updates that are there, one at least; none behind the last one."""
        if not self._raws and not await self._something():
            return []
        raws = list(self._raws)
        self._raws.clear()
        self._taken(self.held)
        return raws

    async def _something(self) -> bool:
        """Wait until there is an update; False behind the last one."""
        with self._flow.awaited():
            while not self._raws and not self._ended:
                if self._news is not None and not self._news.done():
                    raise RuntimeError("another task is reading these updates already")
                self._news = asyncio.get_running_loop().create_future()
                await self._news
        return bool(self._raws)

    def _taken(self, size: int) -> None:
        self.held -= size
        if self._is_full and self.held < self.limit // 2:
            self._is_full = False
            self._flow.mark(self, full=False)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
