"""Tasks, started and ended in one way: whoever starts one ends it.

`beside` runs one for a block, a `TaskSet` has those of an owner. Both end with `end`, which cancels
and waits, but not for ever. What a task raised stays in it: asyncio logs what nobody asks for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

END_SECONDS = 60.0
"""Seconds in which a cancelled task has to end. Programs that it runs are killed in less."""


async def end(*tasks: asyncio.Future[Any] | None, seconds: float = END_SECONDS) -> None:
    """Cancel `tasks`, and wait until they have ended, however; None is no task.

    A task that runs for more than `seconds` after that is logged and left running. Cancelling this
    ends the wait.
    """
    cancelled = [task for task in tasks if task is not None]
    for task in cancelled:
        task.cancel()
    if cancelled:
        _, late = await asyncio.wait(cancelled, timeout=seconds)
        for task in late:
            log.error("a task does not end within %g s: %r", seconds, task)


async def first(*tasks: asyncio.Future[Any]) -> None:
    """Wait until one of `tasks` has ended, however."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T], name: str) -> AsyncIterator[asyncio.Task[T]]:
    """Run `work` in a task for the block, and end it then; the block gets the task."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        await end(task)


class TaskSet:
    """The tasks of one owner that have not ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin `work` in a task."""
        task = asyncio.create_task(work, name=name)
        self.add(task)
        return task

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task that was started elsewhere, to end it with the others."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._running))

    async def aclose(self, grace: float = 0.0) -> None:
        """Let them run for `grace` seconds, then end those that still run; see `end`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        while self._running and loop.time() < until:  # one may begin another
            await asyncio.wait(tuple(self._running), timeout=until - loop.time())
        await end(*self._running)
