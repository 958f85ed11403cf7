"""Tasks, started and ended in one way: whoever starts one ends it.

`beside` runs one for a block, a `TaskSet` has those of an owner. Both end with `end`, which cancels
and waits, but not for ever. What a task raised stays in it: asyncio logs what nobody asks for.

Whoever closes something for a caller does so with `finish`: the caller may be cancelled meanwhile,
again and again (a scope of anyio cancels at every await), and must leave nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Self, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

END_SECONDS = 60.0
"""Seconds in which a cancelled task has to end. Programs that it runs are killed in less."""


FINISH_SECONDS = 2 * END_SECONDS
"""Seconds in which `finish` has to end. Whatever it closes has lower bounds of its own."""

RUNS = 3
"""Times that `finish` begins: a program's end cancels all tasks once, or twice."""


class _Timeout(asyncio.Timeout):  # type: ignore[misc]
    """With what Python 3.11.3 mends (its issue 102780): it raises TimeoutError also in a task that
    was cancelled before it began, as all are that clean up. Debian 12 has 3.11.2."""

    async def __aenter__(self) -> Self:
        self._cancelled_before = _this_task().cancelling()
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: Any
    ) -> None:
        await super().__aexit__(kind, raised, at)
        is_late = self.expired() and kind is asyncio.CancelledError
        if is_late and _this_task().cancelling() <= self._cancelled_before:
            raise TimeoutError from raised


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def timeout(seconds: float | None) -> asyncio.Timeout:
    """Return what `asyncio.timeout` returns, in every Python 3.11."""
    when = None if seconds is None else asyncio.get_running_loop().time() + seconds
    return _Timeout(when) if sys.version_info < (3, 12) else asyncio.timeout_at(when)


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


_PHASE = os.getpid() * 0.618034 % 1


async def tick(seconds: float) -> None:
    """Wait for the next of this process's ticks, one in `seconds`: for what is looked at from time
    to time.

    All who wait for ticks of one length go on in the same step of the loop, so an idle process
    wakes once for all of them. Another process has its ticks at other moments: at the same ones
    they would wait for each other at the journal.
    """
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[None] = loop.create_future()

    def reach() -> None:
        if not reached.done():
            reached.set_result(None)

    number = int(loop.time() / seconds - _PHASE) + 1
    due = loop.call_at((number + _PHASE) * seconds, reach)
    try:
        await reached
    finally:
        due.cancel()


async def finish(
    close: Callable[[], Coroutine[Any, Any, None]], *, seconds: float = FINISH_SECONDS
) -> None:
    """Run `close` to its end in a task of its own, however often this is cancelled meanwhile; the
    cancellation is raised afterwards.

    The end of the loop cancels that task as well. `close` is then run again: it has to continue
    where it was cut off. After `seconds` it is cancelled, logged and left.
    """
    loop = asyncio.get_running_loop()
    until, cancelled = loop.time() + seconds, None
    # The scopes of anyio would cancel this task in every step of the loop.
    scope = getattr(sys.modules.get("anyio"), "CancelScope", None)
    with nullcontext() if scope is None else scope(shield=True):
        for _ in range(RUNS):
            closing = loop.create_task(close(), name="close")
            while not closing.done() and (left := until - loop.time()) > 0:
                try:
                    await asyncio.wait([closing], timeout=left)
                except asyncio.CancelledError as exc:
                    cancelled = exc
            if not closing.done():
                log.error("closing does not end within %g s: %r", seconds, closing)
                closing.cancel()
                break
            if not closing.cancelled():
                break
    if cancelled is not None:
        if closing.done() and not closing.cancelled() and (error := closing.exception()):
            log.error("closing failed while it was cancelled", exc_info=error)
        raise cancelled
    if closing.done():
        closing.result()


async def first(*works: Coroutine[Any, Any, object] | asyncio.Future[Any]) -> None:
    """Wait until one of these has ended, however; those that are no tasks yet run until then."""
    tasks = [it if asyncio.isfuture(it) else asyncio.ensure_future(it) for it in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if begun := [task for task, it in zip(tasks, works, strict=True) if task is not it]:
            for task in begun:
                task.cancel()  # now, as in `beside`
            await finish(partial(end, *begun))


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T], name: str) -> AsyncIterator[asyncio.Task[T]]:
    """Run `work` in a task for the block, and end it then; the block gets the task."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()  # now: what follows in this step may count on it
        await finish(partial(end, task))


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

    async def aclose(self) -> None:
        """End them; see `end`."""
        await end(*self._running)

    async def finish(self, seconds: float = END_SECONDS) -> None:
        """Let them run for so many seconds, then end those that still run."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._running and loop.time() < until:  # one may begin another
            await asyncio.wait(tuple(self._running), timeout=until - loop.time())
        await end(*self._running)
