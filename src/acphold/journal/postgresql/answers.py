"""Answers that are waited for to their end.

What was sent to a database is done there whether anybody waits or not, and who sent it has to know
what became of it: who is cancelled meanwhile is so behind the answer.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Answer(Generic[T]):
    """What one sends for, on the thread of the event loop, and another one gives there."""

    __slots__ = ("_given", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given: tuple[T] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def give(self, value: T) -> None:
        """It is there."""
        self._given = (value,)
        if (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> T:
        """Wait for it."""
        was_cancelled = False
        while (given := self._given) is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                was_cancelled = True
        if was_cancelled:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            task.cancel()  # with the next wait
        return given[0]
