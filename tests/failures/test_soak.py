"""A few of the rounds that `make soak` does by the thousand."""

from __future__ import annotations

import pytest

from tests.failures import queue_soak
from tests.failures.soak import soak


async def test_nothing_is_lost_whoever_of_a_shared_session_is_killed() -> None:
    async with soak(seed=41) as rounds:
        await rounds.run(3)


@pytest.mark.slow
@pytest.mark.parametrize("name", queue_soak.LINES)
async def test_prompts_that_wait_begin_once_and_in_order_whatever_is_killed(name: str) -> None:
    told = await queue_soak.soak(4, seed=5, lines=[name])
    assert told[name].total() == 4
