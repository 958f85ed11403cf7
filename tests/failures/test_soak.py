"""A few of the rounds that `make soak` does by the thousand."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from tests.failures.soak import soak


async def test_nothing_is_lost_whoever_of_a_shared_session_is_killed() -> None:
    async with soak(seed=41) as rounds:
        await rounds.run(3)


@pytest.mark.parametrize(
    ("line", "kills"), [("alone", 10), ("background", 3), ("serve", 3), ("nodes", 3)]
)
async def test_prompts_that_wait_begin_once_and_in_order_whatever_is_killed(
    line: str, kills: int
) -> None:
    soaking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.failures.queue_soak", str(kills), "5", line),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "wire:check"},  # as `make soak` does
        stdout=PIPE,
        stderr=STDOUT,
    )
    told, _ = await soaking.communicate()
    assert b"each prompt once, in order" in told, told.decode()
