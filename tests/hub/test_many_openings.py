"""Hundreds of sessions opened at once do not stall clients that already have one open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from acp_wire.rpc import eager_tasks
from acphold.journal.journal import Lease
from acphold.journal.rows import NewSession
from acphold.live.hub import bounds
from tests.editor import DEADLINE
from tests.hub.shared import Shared

CROWD = 3 * bounds.OPENED_AT_ONCE


async def passes_until(all_of: Sequence[asyncio.Future[Any]], passed: list[int]) -> None:
    """Count the passes of the event loop until these are done; others never wait."""
    async with asyncio.timeout(DEADLINE):
        while not all(each.done() for each in all_of):
            passed[0] += 1
            await asyncio.sleep(0)


async def test_a_few_of_the_sessions_that_are_begun_at_once_are_made_in_each_pass(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(eager_tasks, "PASS_SECONDS", 0.0)
    client = await house.client()
    create, now, made = house.journal.create, [0], list[int]()

    async def noted(new: NewSession) -> Lease:
        made.append(now[0])
        return await create(new)

    monkeypatch.setattr(house.journal, "create", noted)
    params = {"cwd": "/", "mcpServers": []}
    begun = [client.begin("session/new", params) for _ in range(CROWD)]
    await passes_until(begun, now)
    assert len({each.result()["sessionId"] for each in begun}) == CROWD
    assert max(map(made.count, made)) <= bounds.OPENED_AT_ONCE


@pytest.mark.of_a_file
async def test_so_are_those_that_are_loaded(monkeypatch: pytest.MonkeyPatch, house: Shared) -> None:
    monkeypatch.setattr(eager_tasks, "PASS_SECONDS", 0.0)
    sessions = [await (await house.client()).new() for _ in range(CROWD)]
    client = await house.client()
    session, now, looked = house.journal.complete, [0], list[int]()

    async def noted(session_id: str) -> None:
        looked.append(now[0])
        await session(session_id)

    monkeypatch.setattr(house.journal, "complete", noted)
    begun = [
        client.begin("session/load", {"sessionId": each, "cwd": "/", "mcpServers": []})
        for each in sessions
    ]
    await passes_until(begun, now)
    assert all(each.exception() is None for each in begun)
    assert max(map(looked.count, looked)) <= bounds.OPENED_AT_ONCE
