"""When a session is settled, and who waits for that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acphold.hub import rest
from acphold.hub.rest import Rest
from tests.hub.shared import shared
from tests.hub.test_positions import POSITIONS

DEADLINE = 30


class Indexing:
    """Finds nothing to index, as late as a test likes."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def piece(self, *_: object) -> bool:
        self.begun.set()
        await self.may_end.wait()
        return False


async def test_a_load_does_not_wait_until_all_words_are_indexed(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "DELAY", 0.0)
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        index = Indexing()
        monkeypatch.setattr(house.journal, "_index", index.piece)
        one = await house.client()
        session = await one.new()
        await house.turn(one, session, "hi", "hello ", "you")
        await index.begun.wait()
        other = await house.loaded(session)
        assert other.text() == "hello you"
        index.may_end.set()


async def test_who_is_cut_off_while_words_are_indexed_keeps_its_place_with_the_next_owner(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "DELAY", 0.0)
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        index = Indexing()
        one = await house.client()
        session = await one.new()
        before = await house.client(**POSITIONS)
        await before.load(session)
        await before.call("session/close", {"sessionId": session})
        monkeypatch.setattr(house.journal, "_index", index.piece)
        await house.turn(one, session, "hi", "hello")
        await index.begun.wait()
        other = await house.client(**POSITIONS)
        await other.load(session)
        await other.go()
        await house.gone(other)
        index.may_end.set()
        resting = house.hub.held(session).session._rest
        while resting._settling is not None:
            await asyncio.wait([resting._settling])
        await house.begun(one, session, "more")
        assert await house.journal.followers(session)


class Settling:
    """Settles as slowly as a test likes."""

    def __init__(self) -> None:
        self.times = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def settle(self) -> None:
        self.times += 1
        self.begun.set()
        await self.may_end.wait()


@pytest.mark.parametrize("in_a_turn", [False, True])
async def test_what_comes_to_rest_while_it_is_settled_is_settled_behind_that_but_not_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, in_a_turn: bool
) -> None:
    monkeypatch.setattr(rest, "DELAY", 0.0)
    settling = Settling()
    resting = Rest(settling.settle)
    async with asyncio.timeout(DEADLINE):
        resting.begin(positions=False)
        await settling.begun.wait()
        resting.begin(positions=False)
        for _ in range(5):
            await asyncio.sleep(0.001)
        if in_a_turn:
            resting.end()
        settling.begun.clear()
        settling.may_end.set()
        if not in_a_turn:
            await settling.begun.wait()
        await resting.compacted()
        assert settling.times == 2 - in_a_turn
