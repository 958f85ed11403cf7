"""Several agents in one hub: each has a desk, and clients of one join live sessions of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acphold.errors import HELD_ELSEWHERE
from acphold.live.agents.interface import AbsentAgent
from acphold.live.hub.desk import Desk
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE, Refused
from tests.hub.shared import PuppetAgent, Shared, shared


@asynccontextmanager
async def two_desks(journal: Path | str) -> AsyncIterator[tuple[Shared, Shared]]:
    """Two agents in one hub."""
    async with asyncio.timeout(DEADLINE), shared(journal) as one:
        agents: list[PuppetAgent] = []

        def make(listener: object) -> PuppetAgent:
            agents.append(PuppetAgent(listener))  # type: ignore[arg-type]
            agents[0].key = "other"
            return agents[0]

        desk = Desk(one.hub, make, ServeOptions(cancel_grace=0.2))
        two = Shared(desk, agents[0], one.journal)
        try:
            yield one, two
        finally:
            await two.aclose()


async def test_a_session_that_is_live_keeps_its_agent_when_a_client_of_another_joins(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, two):
        first, session = await one.opened()
        await one.turn(first, session, "hello", "hi")
        second = await two.client()
        await second.load(session)
        await one.turn(second, session, "go on", "I do")
        await first.until_text("I do")
        await second.until_text("I do")
        assert [method for method, _ in two.agent.asked if method == "session/prompt"] == []


async def test_a_client_of_another_agent_may_give_what_the_sessions_own_agent_supports(
    journal: Path, tmp_path: Path
) -> None:
    async with two_desks(journal) as (one, two):
        one.agent.can("additionalDirectories")
        first, session = await one.opened()
        second = await two.client()
        await second.load(session, additionalDirectories=[str(tmp_path)])
        [listed] = await first.sessions()
        assert listed["additionalDirectories"] == [str(tmp_path)]


async def test_two_agents_may_give_their_sessions_the_same_id(journal: Path) -> None:
    async with two_desks(journal) as (one, two):
        first, session = await one.opened()
        second, other = await two.opened()
        assert session != other
        own = [params["sessionId"] for name, params in two.agent.asked if name == "session/prompt"]
        turn = await two.begun(second, other, "hello", own=session)
        await two.agent.say(session, "of two")
        await two.agent.end(session)
        await turn
        await second.until_text("of two")
        assert own == []
        assert "of two" not in str(first.messages)


async def test_the_end_of_one_desk_closes_its_sessions_and_no_other(journal: Path) -> None:
    async with two_desks(journal) as (one, two):
        first, session = await one.opened()
        second, other = await two.opened()
        await two.desk.aclose()
        assert not one.hub.holds(other)
        await second.until(lambda: "acphold has stopped" in str(second.messages))
        assert "acphold has stopped" not in str(first.messages)
        await one.turn(first, session, "hello", "still here")
        await first.until_text("still here")


async def test_a_desk_is_needed_while_a_client_of_another_has_a_session_of_it_open(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, two):
        first, session = await one.opened()
        second = await two.client()
        await second.load(session)
        await first.leave()
        await one.gone(first)
        assert one.desk.has_clients
        await second.leave()
        await two.gone(second)
        assert not one.desk.has_clients
        assert not two.desk.has_clients


async def test_a_session_of_the_journal_is_not_made_live_where_clients_only_join(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, _):
        first, session = await one.opened()
        await one.turn(first, session, "hello", "hi")
        joining = Desk(one.hub, lambda _: AbsentAgent(), ServeOptions(), only_joins=True)
        three = Shared(joining, one.agent, one.journal)
        try:
            guest = await three.client(_meta={"acphold/line": True})
            await guest.load(session)
            await first.call("session/close", {"sessionId": session})
            await guest.call("session/close", {"sessionId": session})
            with pytest.raises(Refused) as refused:
                await guest.load(session)
            assert refused.value.code == HELD_ELSEWHERE
            with pytest.raises(Refused, match="no agent is started here"):
                await guest.new()
        finally:
            await three.aclose()


async def test_a_client_that_comes_while_the_desk_of_its_session_ends_is_served_by_the_next(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_desks(journal) as (one, two):
        two.agent.key = one.agent.key
        two.agent.can("load")
        two.agent.results["session/load"] = b"{}"
        first, session = await one.opened()
        await one.turn(first, session, "hello", "hi")
        is_ending, may_end = asyncio.Event(), asyncio.Event()

        async def end_slowly() -> None:
            is_ending.set()
            await may_end.wait()

        monkeypatch.setattr(one.agent, "aclose", end_slowly)
        ending = asyncio.create_task(one.desk.aclose())
        await is_ending.wait()
        second = await two.client()
        resuming = asyncio.create_task(second.resume(session))
        await asyncio.wait([resuming], timeout=0.1)
        may_end.set()
        await ending
        await resuming
        await two.turn(second, session, "go on", "I do")
        await second.until_text("I do")
