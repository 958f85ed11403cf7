"""Answers that are awaited to the end, even by a task that is cancelled.

A database executes what it was sent whether anybody waits or not, and the sender has to know the
result. So a cancellation takes effect only after the answer.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Answer(Generic[T]):
    """A value that is given later, on the thread of the event loop."""

    __slots__ = ("_given", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given: tuple[T] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def give(self, value: T) -> None:
        """Set the value, and wake the waiting task."""
        self._given = (value,)
        if (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> T:
        """Wait for the value and return it; a cancellation meanwhile takes effect afterwards."""
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
            task.cancel()  # raised at the task's next await
        return given[0]
