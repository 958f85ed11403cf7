"""The time at which a session is settled, and the callers that wait for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from acphold.errors import JournalBusyError
from acphold.journal.sqlite import search_index
from acphold.journal.sqlite.connection import Connection
from acphold.journal.sqlite.store import SqliteJournal
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds
from acphold.live.hub.rest import Rest
from tests.hub.shared import Shared, said, until
from tests.hub.test_positions import POSITIONS

DEADLINE = 60


class Indexing:
    """Indexes the words of a session, as late as a test likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun, self.may_end = threading.Event(), threading.Event()
        self._index = search_index.index
        monkeypatch.setattr(search_index, "index", self._late)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._begun.wait, DEADLINE)

    def _late(
        self, connection: Connection, session: int | None = None, since: int = 0
    ) -> Iterator[None]:
        self._begun.set()
        while not self.may_end.is_set():
            yield
        yield from self._index(connection, session, since)


@pytest.mark.of_a_file
async def test_a_load_does_not_wait_until_all_words_are_indexed(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    index = Indexing(monkeypatch)
    _one, session = await house.talked("hi", "hello ", "you")
    await index.begun()
    other = await house.loaded(session)
    assert other.text() == "hello you"
    index.may_end.set()


@pytest.mark.of_a_file
async def test_a_client_cut_off_while_words_are_indexed_keeps_its_position_with_the_next_owner(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    one, session = await house.opened()
    before = await house.client(**POSITIONS)
    await before.load(session)
    await before.call("session/close", {"sessionId": session})
    index = Indexing(monkeypatch)
    await house.turn(one, session, "hi", "hello")
    await index.begun()
    other = await house.client(**POSITIONS)
    await other.load(session)
    await house.leave(other)
    index.may_end.set()
    resting = house.hub.conversation(session).session.rest
    while resting._settling is not None:
        await asyncio.wait([resting._settling])
    await house.begun(one, session, "more")
    assert (await house.journal.session(session)).followers


async def settled(house: Shared, session: str) -> None:
    """Wait until all that was said is settled."""
    through = "SELECT settled_through FROM sessions WHERE session_id = ?"
    journal = house.journal
    assert isinstance(journal, SqliteJournal)
    async with asyncio.timeout(DEADLINE):
        while True:
            done = await journal._background.run(
                lambda db: db.execute(through, (session,)).fetchone()[0]
            )
            if done == house.hub.conversation(session).session.last_seq:
                return
            await asyncio.sleep(0.01)


MODES = {"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}}


@pytest.mark.of_a_file
@pytest.mark.parametrize("positions", [False, True])
async def test_what_was_said_is_settled_while_a_client_lags_which_is_told_all_of_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch, positions: bool, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "UNNOTICED_SECONDS", 0.0)
    monkeypatch.setattr(bounds, "LAG_BYTES", 1000)
    house.agent.opened = MODES
    house.agent.results["session/set_mode"] = b"{}"
    one, slow, session = await house.pair(**(POSITIONS if positions else {}))
    first = await house.begun(slow, session, "the slow one's")
    slow.reads.clear()
    for number in range(40):
        await house.agent.say(session, f"<{number}{'x' * 20_000}>")
    await house.agent.end(session)
    setting = slow.begin("session/set_mode", {"sessionId": session, "modeId": "b"})
    await one.until(lambda: "currentModeId" in one.updates()[-1])
    for number in range(3):
        plan = {"sessionUpdate": "plan", "entries": [{"content": f"step {number}"}]}
        behind = [json.dumps(plan).encode(), said(f"behind {number}")]
        await house.agent.listener.hear(Updates(session, "update", behind))
    await house.turn(one, session, "the other's", "hello ", "you")
    await settled(house, session)
    slow.reads.set()
    assert await first == {"stopReason": "end_turn"}
    await setting
    await until([slow], "hello you")
    assert slow.text() == one.text()
    modes = [update for update in slow.updates() if "currentModeId" in update]
    assert modes == []
    assert slow.text("user_message_chunk") == "the other's"
    answers = [slow.place_of_answer(slow.last_id - 1), slow.place_of_answer(slow.last_id)]
    lines = [line.decode() for line in slow.lines]
    assert "<39x" in "".join(lines[: answers[0]])
    assert "behind" in "".join(lines[answers[1] :])
    assert "behind" not in "".join(lines[: answers[0]])


@pytest.mark.of_a_file
async def test_settling_that_failed_is_tried_again_without_another_turn(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    settle, times = house.journal.settle, 0

    async def fails_twice(*args: Any, **how: Any) -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise JournalBusyError("database is locked")
        await settle(*args, **how)

    monkeypatch.setattr(house.journal, "settle", fails_twice)
    _one, session = await house.talked("hi", "hello")
    await settled(house, session)


class Settling:
    """Settles as slowly as a test likes."""

    def __init__(self) -> None:
        self.times = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def settle(self) -> bool:
        self.times += 1
        self.begun.set()
        await self.may_end.wait()
        return True

    def look(self) -> None:
        """There is nothing to write."""


async def test_of_many_that_come_to_rest_at_once_some_are_settled_and_nobody_waits_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    room = asyncio.Semaphore(1)
    one, two = Settling(), Settling()
    first, second = Rest(one.settle, one.look, room), Rest(two.settle, two.look, room)
    async with asyncio.timeout(DEADLINE):
        first.begin(positions=False)
        await one.begun.wait()
        second.settle_now()
        await second.compaction_ends()  # it had not begun, so readers see no change
        assert two.times == 0
        one.may_end.set()
        await two.begun.wait()
        two.may_end.set()
        await second.compaction_ends()


@pytest.mark.parametrize("in_a_turn", [False, True])
async def test_what_comes_to_rest_while_it_is_settled_is_settled_behind_that_but_not_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, in_a_turn: bool
) -> None:
    monkeypatch.setattr(bounds, "REST_SECONDS", 0.0)
    settling = Settling()
    resting = Rest(settling.settle, settling.look, asyncio.Semaphore(1))
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
        await resting.compaction_ends()
        assert settling.times == 2 - in_a_turn


async def test_nothing_is_put_together_while_somebody_reads() -> None:
    settling = Settling()
    resting = Rest(settling.settle, settling.look, asyncio.Semaphore(1))
    async with asyncio.timeout(DEADLINE):
        async with resting.reading():
            resting.settle_now()
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert settling.times == 0
        await settling.begun.wait()
        settling.may_end.set()
        async with resting.reading():
            assert settling.times == 1
