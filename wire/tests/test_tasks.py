"""Tasks: started for a block or by an owner, and ended within bounds."""

from __future__ import annotations

import asyncio

import pytest

from acp_wire.tasks import TaskSet, beside, end, finish, first, timeout


class Endless:
    """Work that goes on until it is cancelled, and then as long as `held` is not set."""

    def __init__(self) -> None:
        self.begun, self.held, self.is_over = asyncio.Event(), asyncio.Event(), False
        self.held.set()

    async def run(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.held.wait()
            self.is_over = True


async def test_a_task_beside_a_block_has_ended_behind_it_even_if_the_block_fails() -> None:
    endless = Endless()

    async def fail() -> None:
        async with beside(endless.run(), "endless") as task:
            await endless.begun.wait()
            assert not task.done()
            raise KeyError("the block's own")

    with pytest.raises(KeyError, match="the block's own"):
        await fail()
    assert endless.is_over


async def test_a_set_ends_what_it_has_started_and_forgets_what_has_ended() -> None:
    tasks, endless = TaskSet(), Endless()
    short = tasks.start(asyncio.sleep(0), "short")
    tasks.start(endless.run(), "endless")
    await first(short)
    await endless.begun.wait()
    assert len(tasks) == 1
    assert not endless.is_over
    await tasks.aclose()
    assert endless.is_over
    assert len(tasks) == 0
    await tasks.aclose()


async def test_a_set_lets_its_tasks_end_by_themselves_for_a_while() -> None:
    tasks = TaskSet()
    short = tasks.start(asyncio.sleep(0.01, "done"), "short")
    endless = tasks.start(asyncio.Event().wait(), "endless")
    await tasks.finish(0.5)
    assert short.result() == "done"
    assert endless.cancelled()


async def test_a_task_that_is_begun_while_the_others_end_has_the_same_time() -> None:
    tasks = TaskSet()
    begun: list[asyncio.Task[str]] = []

    async def begin() -> None:
        begun.append(tasks.start(asyncio.sleep(0.01, "done"), "second"))

    tasks.start(begin(), "first")
    await tasks.finish(30)
    assert begun[0].result() == "done"


async def test_a_task_that_does_not_end_is_named_and_not_waited_for_any_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endless = Endless()
    endless.held.clear()
    task = asyncio.create_task(endless.run(), name="deaf")
    await endless.begun.wait()
    await end(task, None, seconds=0.01)
    assert not task.done()
    endless.held.set()
    await end(task)
    assert task.done()
    assert "does not end within 0.01 s" in caplog.text
    assert "deaf" in caplog.text


async def test_the_error_of_a_task_stays_in_it() -> None:
    async def fail() -> None:
        raise KeyError("its own")

    async with beside(fail(), "fails") as task:
        await first(task)
    with pytest.raises(KeyError, match="its own"):
        task.result()


async def test_closing_goes_on_to_its_end_however_often_it_is_cancelled_and_is_cancelled_then() -> (
    None
):
    begun, go_on, ends = asyncio.Event(), asyncio.Event(), []

    async def close() -> None:
        begun.set()
        await go_on.wait()
        ends.append(True)

    closing = asyncio.create_task(finish(close))
    await begun.wait()
    for _ in range(3):
        closing.cancel()
        await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await first(closing)
    assert closing.cancelled()
    assert ends == [True]


async def test_closing_that_fails_while_it_is_cancelled_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def close() -> None:
        begun.set()
        await go_on.wait()
        raise KeyError("its own")

    closing = asyncio.create_task(finish(close))
    await begun.wait()
    closing.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await first(closing)
    assert closing.cancelled()
    assert "closing failed while it was cancelled" in caplog.text
    assert "its own" in caplog.text


async def test_closing_that_does_not_end_is_left_after_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await finish(Endless().run, seconds=0.01)
    assert "closing does not end within 0.01 s" in caplog.text


async def test_a_task_that_is_cancelled_has_its_time_to_clean_up_and_goes_on_behind_it() -> None:
    begun, said = asyncio.Event(), list[str]()

    async def run() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            try:
                async with timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                said.append("late")

    running = asyncio.create_task(run())
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert said == ["late"]
    assert running.cancelled()


async def test_who_is_cancelled_within_its_time_is_cancelled() -> None:
    begun = asyncio.Event()

    async def run() -> None:
        async with timeout(60):
            begun.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_timeout_and_a_cancellation_in_one_step_are_a_cancellation() -> None:
    begun = asyncio.Event()

    async def run() -> None:
        async with timeout(None) as limit:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                limit.reschedule(0)
                await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
