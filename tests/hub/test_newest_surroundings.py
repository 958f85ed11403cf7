"""An agent starts again in the surroundings of the editor that has opened a session of it last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.live.hub.desk import Desk
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE
from tests.hub.shared import PuppetAgent, Shared, methods, shared

ONE, TWO = Surroundings({"WHO": "one"}, "/one"), Surroundings({"WHO": "two"}, "/two")


@asynccontextmanager
async def editors(
    journal: Path, one: Surroundings | None = ONE, two: Surroundings | None = TWO
) -> AsyncIterator[tuple[Shared, Shared]]:
    """The desks of two editors with the same agent."""
    async with asyncio.timeout(DEADLINE), shared(journal) as first:
        agents: list[PuppetAgent] = []

        def make(listener: object) -> PuppetAgent:
            agents.append(PuppetAgent(listener))  # type: ignore[arg-type]
            return agents[0]

        first.desk.surroundings = one
        first.agent.surroundings = one or ONE
        desk = Desk(first.hub, make, ServeOptions(cancel_grace=0.2), surroundings=two)
        second = Shared(desk, agents[0], first.journal)
        second.agent.surroundings = two or TWO
        for house in (first, second):
            house.agent.can("load", "close")
        try:
            yield first, second
        finally:
            await second.aclose()


async def test_they_are_those_of_the_editor_that_opened_a_session_last_and_is_there(
    journal: Path,
) -> None:
    async with editors(journal) as (first, second):
        newest = first.agent.newest_surroundings
        one, session = await first.opened()
        assert newest() is ONE
        two = await second.loaded(session)
        assert newest() is TWO
        await one.load(session)
        assert newest() is ONE
        await first.leave(one)
        assert newest() is TWO
        await second.leave(two)
        assert newest() is None  # it keeps what it has


async def test_a_client_that_is_no_editor_brings_none(journal: Path) -> None:
    async with editors(journal, two=None) as (first, second):
        one, session = await first.opened()
        await second.loaded(session)
        assert first.agent.newest_surroundings() is ONE
        await first.leave(one)
        assert first.agent.newest_surroundings() is None


async def left_by_one(first: Shared) -> str:
    """A session with a turn, in which no client is any more."""
    one, session = await first.talked("hello", "hi")
    await first.leave(one)
    return session


def opened_at(house: Shared) -> list[str]:
    return [method for method, _ in house.agent.asked if method != "session/list"]


async def test_a_session_that_an_editor_has_left_comes_to_the_next_ones_agent_with_its_own(
    journal: Path,
) -> None:
    async with editors(journal) as (first, second):
        session = await left_by_one(first)
        two = await second.loaded(session)
        assert opened_at(first)[-1] == "session/close"
        assert opened_at(second) == ["session/load"]
        await second.turn(two, session, "go on", "I do")
        await two.until_text("I do")


@pytest.mark.parametrize("why", ["as it was", "no way back", "in use", "in a turn"])
async def test_it_stays_where_it_is_if_it_would_gain_nothing_or_lose_something(
    journal: Path, why: str
) -> None:
    two_has = Surroundings(ONE.env, "/two") if why == "as it was" else TWO
    async with editors(journal, two=two_has) as (first, second):
        session = await left_by_one(first)
        if why == "no way back":
            second.agent.can("close")
        if why == "in use":
            page = await first.loaded(session)
            assert "session/update" in methods(page)
        if why == "in a turn":
            one = await first.loaded(session)
            turn = await first.begun(one, session, "work")
            await first.leave(one)
        await second.loaded(session)
        assert opened_at(second) == []
        if why == "in a turn":
            await first.agent.end(session)
            turn.cancel()


async def test_an_agent_that_cannot_close_a_session_ends_if_that_was_its_only_one(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def end() -> None:
        ended.append("one")

    async with editors(journal) as (first, second):
        first.agent.can("load")
        session, other = await left_by_one(first), await left_by_one(first)
        monkeypatch.setattr(first.agent, "aclose", end)
        two = await second.loaded(session)
        assert (ended, opened_at(second)) == ([], [])  # it has another one
        await first.hub.close(other)
        await two.call("session/close", {"sessionId": session})
        last = await left_by_one(first)
        await two.load(last)
        assert (ended, opened_at(second)) == (["one"], ["session/load"])
