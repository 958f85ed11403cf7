"""A few of the rounds that `make soak` does by the thousand."""

from __future__ import annotations

from tests.failures.soak import soak


async def test_nothing_is_lost_whoever_of_a_shared_session_is_killed() -> None:
    async with soak(seed=41) as rounds:
        await rounds.run(3)
