"""A turnstile of the event loop: of hundreds that come at once, a few go through in each pass.

Each takes a moment; all of them in one pass would keep everything else from the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

PASS_SECONDS = 0.005
"""Seconds in which arrivals may go through at once, from the first one on."""


class Turnstile:
    """Lets `at_once` of those that wait through in each pass of the event loop, in their order."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_turning = False
        self._until = 0.0

    @property
    def is_crowded(self) -> bool:
        """True if anything waits."""
        return bool(self._waiting)

    async def enter(self) -> None:
        """Go through, at once while this pass is short; else in turn."""
        if not self._is_turning:
            self._turn()
        elif self._waiting or monotonic() >= self._until:
            await self.wait()

    async def wait(self) -> None:
        """Go through in turn, in a later pass."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if not self._is_turning:
            self._turn()
        await place

    def _turn(self) -> None:
        self._is_turning, self._until = True, monotonic() + PASS_SECONDS
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_turning = False
        let_in = 0
        while self._waiting and let_in < self._at_once:
            place = self._waiting.popleft()
            if not place.done():  # the wait was cancelled
                place.set_result(None)
                let_in += 1
        if let_in:
            self._turn()
