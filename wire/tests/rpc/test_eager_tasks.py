"""Tasks that begin at once are tasks in every other respect, on each version of Python."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from acp_wire.rpc.eager_tasks import EagerTasks

DEADLINE = 20.0


@pytest.fixture
def tasks() -> Iterator[EagerTasks]:
    made = EagerTasks()
    yield made
    made.close()


def begun(tasks: EagerTasks, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin work that waits."""
    task = tasks.begin(work, "work")
    assert task is not None
    return task


async def waits_for_its_cancellation(told: list[str], pauses: int = 0) -> None:
    try:
        for _ in range(pauses):
            await asyncio.sleep(0)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        told.append("cancelled")
        raise


async def test_work_that_does_not_wait_is_over_in_the_same_step(tasks: EagerTasks) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    assert tasks.begin(work(), "work") is None
    assert tasks.begin(work(), "work") is None
    assert done == ["done", "done"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python makes no task for it there")
async def test_work_that_is_over_at_once_leaves_its_task_to_the_next(tasks: EagerTasks) -> None:
    seen: list[object] = []

    async def work() -> None:
        seen.append(asyncio.current_task())

    tasks.begin(work(), "one")
    tasks.begin(work(), "two")
    assert seen[0] is seen[1]


async def test_work_that_begins_while_the_loop_ends_is_not_lost(tasks: EagerTasks) -> None:
    done = asyncio.Event()

    async def work(steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        done.set()

    tasks.begin(work(0), "at once")
    for other in asyncio.all_tasks() - {asyncio.current_task()}:
        other.cancel()  # as the end of the loop does
    await asyncio.sleep(0)
    done.clear()
    tasks.begin(work(2), "late")
    await asyncio.wait_for(done.wait(), DEADLINE)


async def test_work_that_waits_has_begun_and_goes_on_as_a_task(tasks: EagerTasks) -> None:
    steps: list[str] = []

    async def work(go_on: asyncio.Event) -> None:
        steps.append("begun")
        await go_on.wait()
        await asyncio.sleep(0)
        steps.append("ended")

    go_on = asyncio.Event()
    task = begun(tasks, work(go_on))
    assert (steps, task.get_name()) == (["begun"], "work")
    go_on.set()
    await asyncio.wait_for(task, DEADLINE)
    assert steps == ["begun", "ended"]


async def test_work_is_in_one_task_from_its_first_step_to_its_last(tasks: EagerTasks) -> None:
    async def work() -> None:
        seen.add(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):  # which remembers in which task it began
                await asyncio.Event().wait()
        seen.add(asyncio.current_task())

    async def beginner() -> None:
        before = asyncio.current_task()
        task = tasks.begin(work(), "work")
        assert asyncio.current_task() is before
        assert task is not None
        await asyncio.wait_for(task, DEADLINE)
        assert seen == {task}

    seen: set[asyncio.Task[None] | None] = set()
    await beginner()


async def test_work_begins_where_there_is_no_task(tasks: EagerTasks) -> None:
    over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        inside = asyncio.current_task() is not None
        await asyncio.sleep(0)
        over.set_result(inside)

    asyncio.get_running_loop().call_soon(lambda: tasks.begin(work(), "work"))
    assert await asyncio.wait_for(over, DEADLINE)


async def test_work_may_begin_other_work(tasks: EagerTasks) -> None:
    order: list[str] = []

    async def inner() -> None:
        order.append("inner")
        await asyncio.sleep(0)
        order.append("inner ends")

    async def outer() -> None:
        order.append("outer")
        task = begun(tasks, inner())
        order.append("outer again")
        await task

    task = begun(tasks, outer())
    await asyncio.wait_for(task, DEADLINE)
    assert order == ["outer", "inner", "outer again", "inner ends"]


@pytest.mark.parametrize("steps_before", [0, 1, 2])
@pytest.mark.parametrize("pauses", [0, 100])
async def test_a_cancellation_reaches_work_however_early_it_comes(
    tasks: EagerTasks, steps_before: int, pauses: int
) -> None:
    told: list[str] = []
    task = begun(tasks, waits_for_its_cancellation(told, pauses))
    for _ in range(steps_before):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=DEADLINE)
    assert told == ["cancelled"]
    assert task.cancelled()


async def test_work_may_cancel_its_own_task_before_it_waits(tasks: EagerTasks) -> None:
    told: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await waits_for_its_cancellation(told)

    task = begun(tasks, work())
    await asyncio.wait([task], timeout=DEADLINE)
    assert told == ["cancelled"]
    assert task.cancelled()


async def test_work_that_cancels_its_own_task_and_ends_leaves_the_next_alone(
    tasks: EagerTasks,
) -> None:
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def waits() -> None:
        await asyncio.sleep(0)

    tasks.begin(cancels(), "cancels")
    task = begun(tasks, waits())
    await asyncio.wait_for(task, DEADLINE)
    assert not task.cancelled()


async def test_work_has_a_context_of_its_own(tasks: EagerTasks) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    seen: list[str] = []

    async def work(own: str, *, waits: bool) -> None:
        seen.append(variable.get())
        token = variable.set(own)
        if waits:
            await asyncio.sleep(0)
            seen.append(variable.get())
            variable.reset(token)

    variable.set("outside")
    tasks.begin(work("first", waits=False), "first")
    task = begun(tasks, work("second", waits=True))
    variable.set("changed")
    await asyncio.wait_for(task, DEADLINE)
    tasks.begin(work("third", waits=False), "third")
    assert seen == ["outside", "outside", "second", "changed"]
    assert variable.get() == "changed"


async def test_what_work_raises_before_it_waits_is_raised_to_who_began_it(
    tasks: EagerTasks,
) -> None:
    async def fails() -> None:
        raise ValueError("at once")

    async def is_cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="at once"):
        tasks.begin(fails(), "fails")
    assert tasks.begin(is_cancelled(), "is cancelled") is None


async def test_what_work_raises_later_is_in_its_task(tasks: EagerTasks) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    task = begun(tasks, fails())
    await asyncio.wait([task], timeout=DEADLINE)
    assert isinstance(task.exception(), ValueError)


async def test_nothing_is_left_when_the_owner_closes() -> None:
    async def work() -> None:
        return None

    tasks = EagerTasks()
    tasks.begin(work(), "work")
    tasks.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=DEADLINE)
    assert all(task.cancelled() for task in left)


async def test_work_that_closes_its_owner_leaves_nothing_either() -> None:
    tasks = EagerTasks()

    async def work() -> None:
        tasks.close()

    for _ in range(2):
        tasks.begin(work(), "work")
    async with asyncio.timeout(DEADLINE):
        while asyncio.all_tasks() != {asyncio.current_task()}:  # noqa: ASYNC110
            await asyncio.sleep(0)
