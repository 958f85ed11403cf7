"""Tasks that begin at once, in the step of the event loop of whoever begins them.

asyncio begins a task in a later step. Most of what a peer asks and answers never has to wait: a
task for each, and another pass of the event loop for each task, was a third of the work that a
prompt takes.

Python has this from 3.12 on. Before, a spare task is the current one while work is begun. If the
work has to wait, it is handed over to that task:

    state    the spare task                          next
    -------  --------------------------------------  --------------------------------------------
    SPARE    waits for work                          HANDED when work has to wait, or it is closed
    HANDED   is to wait for what the work waits for  RUNNING with its next step
    RUNNING  goes on with the work                   -
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from enum import Enum
from typing import Any, TypeAlias

Work: TypeAlias = Coroutine[Any, Any, None]

Task: TypeAlias = asyncio.Task[None]


class EagerTasks:
    """Begins coroutines for one owner, who closes it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spares: list[tuple[Task, Rest]] = []

    def begin(self, work: Work, name: str) -> Task | None:
        """Run `work` until it has to wait; the task that goes on with it, None if it is over.

        Raises what `work` raises before it waits, but for a cancellation, with which it is over.
        As in any task, `asyncio.current_task()` is the one that goes on.
        """
        # Asked for once: Python 3.11 makes a system call of it.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        if sys.version_info < (3, 12):
            return self._begin(loop, work, name)
        task = asyncio.Task(work, loop=loop, name=name, eager_start=True)
        if not task.done():
            return task
        if not task.cancelled():
            task.result()
        return None

    def close(self) -> None:
        """End the spare tasks; those that go on with work are their owner's."""
        for task, _ in self._spares:
            task.cancel()
        self._spares.clear()

    def _begin(self, loop: asyncio.AbstractEventLoop, work: Work, name: str) -> Task | None:
        # Source: Python documentation, "Extending asyncio", task lifetime support.
        task, rest = spare = self._spares.pop() if self._spares else _spare(loop)
        caller = asyncio.current_task(loop)
        if caller is not None:
            asyncio._leave_task(loop, caller)
        asyncio._enter_task(loop, task)
        try:
            awaited = work.send(None)
        except (StopIteration, asyncio.CancelledError):
            self._spares.append(spare)
            return None
        except BaseException:
            self._spares.append(spare)
            raise
        finally:
            asyncio._leave_task(loop, task)
            if caller is not None:
                asyncio._enter_task(loop, caller)
        task.set_name(name)
        rest.hand_over(work, awaited)
        return task


class _State(Enum):
    """See the module."""

    SPARE = "spare"
    HANDED = "handed"
    RUNNING = "running"


class Rest(Coroutine[Any, Any, None]):
    """What a spare task runs: nothing yet, then the rest of some work."""

    def __init__(self, spare: asyncio.Future[None]) -> None:
        self._state = _State.SPARE
        self._work: Work
        self._awaited: Any = spare

    def hand_over(self, work: Work, awaited: Any) -> None:
        """Go on with `work`, which waits for `awaited`: a future, or None for a mere pause."""
        spare, self._work, self._awaited = self._awaited, work, awaited
        self._state = _State.HANDED
        spare.set_result(None)

    def send(self, value: Any) -> Any:
        if self._state is _State.RUNNING:
            return self._work.send(value)
        return self._wait()

    def throw(self, *error: Any) -> Any:
        if self._state is _State.SPARE:
            raise error[0]
        if self._state is _State.HANDED and self._awaited is not None and self._awaited.cancel():
            return self._wait()  # cancelled before its first step here: the work is told by that
        self._state = _State.RUNNING
        return self._work.throw(*error)

    def close(self) -> None:
        if self._state is not _State.SPARE:
            self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("this runs in a task of its own")

    def _wait(self) -> Any:
        """Have the task wait, as if the work itself had told it what for."""
        if self._state is _State.HANDED:
            self._state = _State.RUNNING
        else:
            self._awaited._asyncio_future_blocking = True
        return self._awaited


def _spare(loop: asyncio.AbstractEventLoop) -> tuple[Task, Rest]:
    rest = Rest(loop.create_future())
    return loop.create_task(rest, name="spare"), rest
