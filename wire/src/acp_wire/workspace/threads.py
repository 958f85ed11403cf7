"""Blocking calls in separate threads, so that a slow disk holds up nobody else.

Not asyncio's executor: it has few, shared threads, and a program waits for them when it ends, so
that one hanging network disk would block everything, even the exit. A thread that has done its work
stays for a moment, as starting one takes longer than most of that work.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from acp_wire.workspace import bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    Inbox: TypeAlias = "SimpleQueue[Callable[[], None]]"

P = ParamSpec("P")
T = TypeVar("T")

_spare: list[Inbox] = []
"""The inboxes of threads without work; only the one that removes an inbox from here may use it."""

os.register_at_fork(after_in_child=_spare.clear)  # a child has none of these threads

Checkpoint: TypeAlias = "Callable[[], None]"
"""Called by the work between its steps; raises AbandonedError if nobody wants it any more."""


class AbandonedError(Exception):
    """Raised in a thread: the task that waited for it was cancelled."""


class Threads:
    """Runs blocking work, at most `at_once` pieces of it at a time; the others wait their turn."""

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work` with these arguments, or raise its exception; otherwise as
        `run_in_steps`."""
        return await self.run_in_steps(lambda _: work(*args, **kwargs))

    async def run_in_steps(self, work: Callable[[Checkpoint], T]) -> T:
        """Return the result of `work(checkpoint)`, or raise its exception.

        If this is cancelled the work is told at its next checkpoint, and has a second to clean up.
        A thread that hangs longer than that keeps its slot, but nobody waits for it.
        """
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        abandoned = threading.Event()

        def free(result: asyncio.Future[T]) -> None:
            self._slots.release()
            result.exception()  # retrieved, even if nobody waits for it any more

        def checkpoint() -> None:
            if abandoned.is_set():
                raise AbandonedError

        def in_thread() -> None:
            deliver: Callable[[], None]
            try:
                deliver = partial(result.set_result, work(checkpoint))
            except BaseException as error:
                deliver = partial(result.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(deliver)

        result.add_done_callback(free)
        try:
            _do(in_thread)
        except RuntimeError as error:  # the system has no thread left
            result.set_exception(error)
        try:
            await asyncio.wait([result])
        except asyncio.CancelledError:
            abandoned.set()
            await asyncio.wait([result], timeout=bounds.ABANDON_SECONDS)
            raise
        return result.result()


def _do(work: Callable[[], None]) -> None:
    """Do this in a spare thread, or a new one; raises RuntimeError if the system has none left."""
    try:
        inbox = _spare.pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="workspace", daemon=True).start()
    inbox.put(work)


def _serve(inbox: Inbox) -> None:
    """Do one piece of work after the other, until none comes for SPARE_THREAD_SECONDS."""
    while True:
        try:
            inbox.get(timeout=bounds.SPARE_THREAD_SECONDS)()
        except Empty:
            try:
                _spare.remove(inbox)
            except ValueError:  # taken just now: its work is coming
                continue
            return
        _spare.append(inbox)
