"""A disk that hangs blocks nobody who can do without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from acp_wire.workspace import bounds, threads
from acp_wire.workspace.threads import Checkpoint, Threads


async def test_work_gives_its_result_or_its_error() -> None:
    def fail() -> None:
        raise OSError("no")

    pool = Threads(1)
    assert await pool.run(lambda: 1) == 1
    with pytest.raises(OSError, match="no"):
        await pool.run(fail)


async def test_work_that_is_cancelled_is_told_and_given_time_to_clean_up() -> None:
    started, cleaned = threading.Event(), threading.Event()

    def work(checkpoint: Checkpoint) -> None:
        started.set()
        try:
            while True:
                checkpoint()
        finally:
            cleaned.set()

    task = asyncio.create_task(Threads(1).run_in_steps(work))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_work_that_hangs_keeps_its_slot_but_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "ABANDON_SECONDS", 0.01)
    pool, release = Threads(2), threading.Event()
    hung = asyncio.create_task(pool.run(lambda: release.wait(20)))
    assert await pool.run(lambda: "served") == "served"
    hung.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await hung
        more = asyncio.create_task(pool.run(lambda: release.wait(20)))
        waiting = asyncio.create_task(pool.run(lambda: "late"))
        assert await asyncio.wait([more, waiting], timeout=0.05) == (set(), {more, waiting})
        release.set()
        assert await waiting == "late"
        assert await more


async def test_a_thread_does_the_next_work_too_and_ends_when_none_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_spare", [])
    pool = Threads(1)
    first = await pool.run(lambda: threading.current_thread())
    async with asyncio.timeout(5):
        while await pool.run(lambda: threading.current_thread()) is not first:
            pass
    monkeypatch.setattr(bounds, "SPARE_THREAD_SECONDS", 0.0)
    last = await pool.run(lambda: threading.current_thread())
    await asyncio.to_thread(last.join, 5)
    assert not last.is_alive()
    assert await pool.run(lambda: "served") == "served"


def test_a_forked_program_has_threads_of_its_own() -> None:
    code = """
import asyncio, os
from acp_wire.workspace.threads import Threads
async def main(text):
    print(await Threads(1).run(lambda: text), flush=True)
asyncio.run(main("parent"))
child = os.fork()
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
asyncio.run(main("child"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=45)
    assert done.stdout == b"parent\nchild\n"


def test_a_program_ends_though_its_disk_hangs() -> None:
    code = """
import asyncio, time
from acp_wire.workspace.threads import Threads
async def main():
    try:
        async with asyncio.timeout(0.05):
            await Threads(1).run(lambda: time.sleep(600))
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=45)
    assert done.stdout == b"gave up\n"
