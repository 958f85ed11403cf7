from __future__ import annotations

import asyncio

import pytest

from acp_wire.rpc import eager_tasks
from acp_wire.rpc.eager_tasks import Turnstile

CROWD = 10


async def passes(gate: Turnstile, number: int) -> list[tuple[int, int]]:
    """The tasks that passed, each with the pass of the event loop, while others never wait."""
    through: list[tuple[int, int]] = []
    now = 0

    async def go(who: int) -> None:
        await gate.enter()
        through.append((who, now))

    crowd = asyncio.gather(*map(go, range(number)))
    async with asyncio.timeout(10):
        while not crowd.done():
            now += 1
            await asyncio.sleep(0)
    return through


async def test_who_comes_while_there_is_time_goes_through_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager_tasks, "PASS_SECONDS", 60.0)
    through = await passes(Turnstile(1), CROWD)
    assert len({when for _, when in through}) == 1


async def test_the_others_go_through_in_their_order_so_many_in_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager_tasks, "PASS_SECONDS", 0.0)
    through = await passes(Turnstile(3), CROWD)
    assert [who for who, _ in through] == [*range(CROWD)]
    whens = [when for _, when in through]
    assert max(map(whens.count, whens)) == 3


async def test_who_waits_no_more_takes_nobodys_turn() -> None:
    gate = Turnstile(1)
    gone, stays = (asyncio.create_task(gate.wait()) for _ in range(2))
    await asyncio.sleep(0)
    assert gate.is_crowded
    gone.cancel()
    async with asyncio.timeout(10):
        await stays
    assert gone.cancelled()
    assert not gate.is_crowded
