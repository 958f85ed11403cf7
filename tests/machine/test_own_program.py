"""Programs beside us: they are waited for, their children are not."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acphold.machine.own_program import run_beside

LEAVES = "echo hello; echo oh >&2; sleep 600 & echo $! >{}; exit 3"
"""Ends at once, and leaves a child that keeps its streams."""


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """The file with the pid of the child, which still lives in the end."""
    file = tmp_path / "left"
    yield file
    os.kill(int(file.read_text()), signal.SIGKILL)


async def test_a_child_that_keeps_the_streams_of_its_program_is_not_waited_for(left: Path) -> None:
    async with asyncio.timeout(60):
        ended = await run_beside(("sh", "-c", LEAVES.format(left)))
    assert ended == (3, b"hello\n", b"oh\n")


async def test_a_program_that_ends_before_its_streams_are_there_is_like_any_other(
    left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    busy: asyncio.Handle

    def keep_busy() -> None:  # whoever has something to do finds it later
        nonlocal busy
        time.sleep(0.05)
        busy = loop.call_soon(keep_busy)

    busy = loop.call_soon(keep_busy)
    try:
        async with asyncio.timeout(60):
            ended = await run_beside(("sh", "-c", LEAVES.format(left)))
    finally:
        busy.cancel()
    assert ended == (3, b"hello\n", b"oh\n")
    assert caplog.records == []


async def test_a_program_that_takes_too_long_is_ended_whatever_its_children_do(left: Path) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(TimeoutError):
            await run_beside(("sh", "-c", f"sleep 600 & echo $! >{left}; sleep 600"), 0.5)


async def test_all_output_of_a_program_comes_even_if_it_is_long() -> None:
    _, output, _ = await run_beside(("sh", "-c", "head -c 3000000 /dev/zero"))
    assert len(output) == 3_000_000
