"""Tasks that begin at once, in the step that creates them, and a turnstile for hundreds of them.

asyncio begins a task in a later step. Most requests and answers of a peer never have to wait: a
task for each, and another pass of the event loop for each task, was a third of the work that a
prompt takes.

Python has this from 3.12 on. Before, a spare task is the current one while work is begun. If the
work has to wait, it is handed over to that task:

    state    the spare task                          next
    -------  --------------------------------------  --------------------------------------------
    SPARE    waits for work                          HANDED when work has to wait, or it is closed
    HANDED   is to wait for what the work waits for  RUNNING with its next step
    RUNNING  goes on with the work                   -

A `Turnstile` paces work that comes in hundreds, such as new clients: each takes a moment, and all
of them in one pass would keep everything else from the loop.
"""

# See docs/decisions.md, 3.

from __future__ import annotations

import asyncio
import sys
from asyncio import _enter_task as enter_task, _leave_task as leave_task, current_task
from collections import deque
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from enum import Enum
from time import monotonic
from typing import Any, TypeAlias

Work: TypeAlias = Coroutine[Any, Any, None]

Task: TypeAlias = asyncio.Task[None]


ENDS = (StopIteration, asyncio.CancelledError)
"""Exceptions with which work is over."""


class EagerTasks:
    """Begins coroutines for one owner, who closes it; work begun later keeps no spare task."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spares: list[_Spare] = []
        self._closed = False

    def begin(self, work: Work, name: str) -> Task | None:
        """Run `work` until it has to wait; return the task that goes on with it, None if it is
        over.

        Raises what `work` raises before it waits, except for a cancellation, which ends it. As in
        any task, `asyncio.current_task()` is the one that goes on, and context variables that
        `work` sets are seen in it alone.
        """
        loop = self._loop
        if loop is None:  # Python 3.11 makes a system call for this
            loop = self._loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            begun = asyncio.Task(work, loop=loop, name=name, eager_start=True)
            if not begun.done():
                return begun
            if not begun.cancelled():
                begun.result()
            return None
        # Source: Python documentation, "Extending asyncio", task lifetime support.
        context = copy_context()
        spare = self._spares.pop() if self._spares else _Spare(loop, context)
        task, own = spare.task, spare.context
        # Rare: the loop ends, or it is another context; of equal ones only the roots are compared.
        if task.cancelling() or own != context:
            task.cancel()
            spare = _Spare(loop, context)
            task, own = spare.task, spare.context
        if (caller := current_task(loop)) is not None:
            leave_task(loop, caller)
        enter_task(loop, task)
        try:
            awaited = own.run(work.send, None)
        except BaseException as exc:
            # Keep it for other work, unless this work has left something behind in it.
            if own == context and not task.cancelling() and not self._closed:
                self._spares.append(spare)
            else:
                task.cancel()
            if isinstance(exc, ENDS):
                return None
            raise
        finally:
            leave_task(loop, task)
            if caller is not None:
                enter_task(loop, caller)
        task.set_name(name)
        spare.rest.hand_over(work, awaited)
        return task

    def close(self) -> None:
        """End the spare tasks; those that go on with work are their owner's."""
        self._closed = True
        for spare in self._spares:
            spare.task.cancel()
        self._spares.clear()


class _Spare:
    """A task without work yet, and the context that it runs in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self.context = context.copy()
        self.rest = RestOfWork(loop.create_future())
        self.task = loop.create_task(self.rest, name="spare", context=self.context)


class _State(Enum):
    """The states of a spare task: see the module."""

    SPARE = "spare"
    HANDED = "handed"
    RUNNING = "running"


class RestOfWork(Coroutine[Any, Any, None]):
    """The coroutine of a spare task: nothing yet, then the rest of some work."""

    def __init__(self, spare: asyncio.Future[None]) -> None:
        self._state = _State.SPARE
        self._work: Work
        self._awaited: Any = spare

    def hand_over(self, work: Work, awaited: Any) -> None:
        """Go on with `work`, which waits for `awaited`: a future, or None for a mere pause."""
        spare, self._work, self._awaited = self._awaited, work, awaited
        self._state = _State.HANDED
        if not spare.done():  # the work may have cancelled its own task
            spare.set_result(None)

    def send(self, value: Any) -> Any:
        if self._state is _State.RUNNING:
            return self._work.send(value)
        return self._wait()

    def throw(self, *error: Any) -> Any:
        if self._state is _State.SPARE:
            raise error[0]
        if self._state is _State.HANDED and self._awaited is not None and self._awaited.cancel():
            return self._wait()  # cancelled before its first step here: the work sees it there
        self._state = _State.RUNNING
        return self._work.throw(*error)

    def close(self) -> None:
        if self._state is not _State.SPARE:
            self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("this runs in a task of its own")

    def _wait(self) -> Any:
        """Have the task wait, as if the work itself had yielded its future."""
        if self._state is _State.HANDED:
            self._state = _State.RUNNING
        else:
            self._awaited._asyncio_future_blocking = True
        return self._awaited


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
