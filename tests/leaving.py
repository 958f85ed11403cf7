"""Cancels a scenario at every step of the event loop, in every way, and looks for what it left."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
from msgspec import Struct

from tests.watched_processes import children

Reached = Callable[[str], None]
Scenario = Callable[[Reached], Awaitable[None]]

OPENING, INSIDE, LEAVING = "opening", "inside", "leaving"
PHASES = (OPENING, INSIDE, LEAVING)
"""A scenario begins by itself; it reports when it is inside, and before it leaves by itself."""


class Cut(Struct, frozen=True):
    """Cancel `first` steps after `phase` began, and `again` steps later once more, if not 0."""

    way: str
    phase: str
    first: int
    again: int

    def __str__(self) -> str:
        twice = f", again {self.again} later" if self.again else ""
        return f"{self.way}: {self.first} steps after {self.phase}{twice}"


WAYS = ("task", "scope", "group", "loop end")


def cuts(steps: range | tuple[int, ...], again: tuple[int, ...]) -> Iterator[Cut]:
    """Yield every cut at these steps; the second one also of another kind than the first."""
    for way in WAYS:
        for phase in PHASES:
            for first in steps:
                for later in (0, *again):
                    yield Cut(way, phase, first, later)


def _after(steps: int, do: Callable[[], object]) -> None:
    """Call `do` after so many steps of the loop."""
    if steps:
        asyncio.get_running_loop().call_soon(_after, steps - 1, do)
    else:
        do()


class _StopError(Exception):
    pass


async def cancelled(scenario: Scenario, cut: Cut) -> None:
    """Run the scenario; return when it was cancelled and has ended, or at once for `loop end`."""
    begun = asyncio.Event()

    def reached(phase: str) -> None:
        if phase == cut.phase:
            begun.set()

    async def plain() -> None:
        await scenario(reached)

    stop: Callable[[], object]
    if cut.way == "scope":
        scope = anyio.CancelScope()
        stop = scope.cancel

        async def scoped() -> None:
            with scope:
                await scenario(reached)

        task = asyncio.create_task(scoped())
    elif cut.way == "group":
        failing = asyncio.Event()
        stop = failing.set

        async def fail() -> None:
            await failing.wait()
            raise _StopError

        async def grouped() -> None:
            with suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(plain())
                    group.create_task(fail())

        task = asyncio.create_task(grouped())
    else:
        task = asyncio.create_task(plain())
        stop = task.cancel
    if cut.phase == OPENING:
        begun.set()
    entered = asyncio.create_task(begun.wait())
    await asyncio.wait([entered, task], return_when=asyncio.FIRST_COMPLETED)
    entered.cancel()
    stopped = asyncio.Event()
    if cut.way != "loop end":
        _after(cut.first, stop)
        if cut.again:
            _after(cut.first + cut.again, task.cancel)
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        return
    # The end of the loop cancels every task, also those that clean up.
    if cut.again:
        _after(cut.first, stop)
    _after(cut.first + cut.again, stopped.set)
    await stopped.wait()


def left_behind(scenario: Scenario, cut: Cut, journal: Path | None = None) -> list[str]:
    """Return the tasks, processes, descriptors and leases that are left after this cut."""
    before = children(os.getpid())
    fds = set(os.listdir("/proc/self/fd"))
    loops: list[asyncio.AbstractEventLoop] = []
    left: list[str] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        loops[0].set_exception_handler(lambda _, context: left.append(f"unhandled: {context}"))
        await cancelled(scenario, cut)
        if cut.way != "loop end":
            for _ in range(3):  # cancelled tasks of ours end in the next step
                await asyncio.sleep(0)
            ours = asyncio.current_task()
            left.extend(f"task {task.get_name()}" for task in asyncio.all_tasks() - {ours})

    asyncio.run(run())
    left.extend(f"task {task.get_name()} at the end" for task in asyncio.all_tasks(loops[0]))
    for pid in children(os.getpid()) - before:
        left.append(f"process {pid}")
        with suppress(psutil.Error):
            child = psutil.Process(pid)
            left[-1] = f"{child.status()} process {pid} {child.cmdline()[:4]}"
            child.kill()
    gc.collect()
    for fd in set(os.listdir("/proc/self/fd")) - fds:
        with suppress(OSError):
            left.append(f"descriptor {fd}: {os.readlink(f'/proc/self/fd/{fd}')}")
    if journal is not None:
        owners = Path(f"{journal}-owners")  # a file for each owner of leases
        left.extend(f"lease of {name}" for name in (os.listdir(owners) if owners.exists() else ()))
    return left
