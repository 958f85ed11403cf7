"""Several agents in one hub: each has a desk, and clients of one join live sessions of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.tasks import beside
from acphold.errors import HELD_ELSEWHERE
from acphold.journal.access import Share
from acphold.live.agents.capabilities import WATCHES
from acphold.live.agents.interface import HubAgent
from acphold.live.hub import bounds
from acphold.live.hub.attachment import Attachment
from acphold.live.hub.desk import Desk
from acphold.live.server.principals import Principal
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE, Refused, open_params
from tests.hub.shared import PERMISSION, Onlooker, Person, PuppetAgent, Shared, shared
from tests.watched_processes import until


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
        first, session = await one.talked("hello", "hi")
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
        await two.ended(session, turn)
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
        await one.leave(first)
        assert one.desk.has_clients
        await two.leave(second)
        assert not one.desk.has_clients
        assert not two.desk.has_clients


async def test_a_session_of_the_journal_is_not_made_live_where_clients_only_join(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, _):
        first, session = await one.talked("hello", "hi")
        joining = Desk(one.hub, lambda _: HubAgent(), ServeOptions(), only_joins=True)
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


async def test_a_slow_client_has_all_of_its_turn_before_the_answer_when_the_desk_ends(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, two):
        _first, session = await one.opened()
        slow = await two.client()
        await slow.load(session)
        turn = await ended_unread(one, slow, session)
        ending = asyncio.create_task(one.desk.aclose())
        slow.reads.set()
        assert await turn == {"stopReason": "end_turn"}
        assert slow.text().count("x ") == 400
        await ending


async def test_a_line_that_lags_is_answered_nothing_by_a_desk_that_ends(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CATCH_UP_CLOSE_SECONDS", 0.1)
    async with two_desks(journal) as (one, _):
        _first, session = await one.opened()
        joining = Desk(one.hub, lambda _: HubAgent(), ServeOptions(), only_joins=True)
        three = Shared(joining, one.agent, one.journal)
        try:
            line = await three.client(_meta={"acphold/line": True})
            await line.load(session)
            turn = await ended_unread(one, line, session)
            await one.desk.aclose()
            line.reads.set()
            await three.gone(line)
            assert not (turn.done() and turn.exception() is None)
        finally:
            await three.aclose()


async def ended_unread(house: Shared, client: Onlooker, session: str) -> asyncio.Future[object]:
    """A turn that has ended, and of which its client has read nothing since it began."""
    turn = await house.begun(client, session, "flood")
    client.reads.clear()
    await house.agent.flood(session)
    await house.agent.end(session)
    await until(lambda: house.hub.conversation(session).turns.running is None)
    assert not turn.done()
    return turn


async def test_a_client_that_comes_while_the_desk_of_its_session_ends_is_served_by_the_next(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_desks(journal) as (one, two):
        two.agent.key = one.agent.key
        two.agent.can("load")
        _first, session = await one.talked("hello", "hi")
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


async def test_a_session_that_is_read_at_one_desk_is_continued_at_that_of_whoever_continues_it(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, goes_on, replay = asyncio.Event(), asyncio.Event(), Attachment.replay

    async def slowly(self: Attachment, end: int) -> None:
        if not reading.is_set():
            reading.set()
            await goes_on.wait()
        await replay(self, end)

    async with two_desks(journal) as (one, two):
        editor, session = await two.opened()
        await two.turn(editor, session, "hello", "hi", own="s0")
        await editor.call("session/close", {"sessionId": session})
        looks = Principal(name="looks", scopes=frozenset({"watch", "answer"}), sees_all=True)
        reader = one.stranger(looks)
        await reader.introduce(None, {})
        monkeypatch.setattr(Attachment, "replay", slowly)
        opening = reader.begin("session/load", open_params(session, "/"))
        await reading.wait()
        two.agent.can("additionalDirectories")  # and the other cannot
        await editor.load(session, additionalDirectories=[str(tmp_path)])
        turn = editor.begin_prompt(session, "go on")
        await two.agent.until_at_work()
        [own] = two.agent.at_work
        person = Person(reader)
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": "t", "title": "Do it"}
        editor.answers[PERMISSION] = Person(editor)._asked
        asking = two.agent.ask_client(PERMISSION, sessionId=own, toolCall=call, options=options)
        async with beside(asking, "ask") as asked:
            goes_on.set()
            await opening
            await person.asked.wait()  # whoever was reading meanwhile is asked, too
            person.answer.set_result({"outcome": {"outcome": "selected", "optionId": "yes"}})
            await asked
        await one.desk.aclose()
        await two.agent.say(own, "still here")
        await two.ended(own, turn)
        for client in (reader, editor):
            await client.until_text("still here")
        assert one.agent.asked == []


async def test_a_session_that_a_guest_continues_stays_with_the_agent_that_does(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, two):
        alice = Principal(name="alice", tenant="alice")
        editor = two.stranger(alice)
        await editor.introduce(None, {})
        session = await editor.new()
        await two.turn(editor, session, "hello", "hi", own="s0")
        await editor.call("session/close", {"sessionId": session})
        guest = one.stranger(Principal(name="bert", tenant="bert"))
        await guest.introduce(None, {})
        for prompts in (False, True):
            await one.journal.access.keep_share(Share(session, "bert", prompts))
            if not prompts:
                await guest.load(session)
        turn = guest.begin_prompt(session, "go on")
        await one.agent.until_at_work()
        await editor.load(session)
        [own] = one.agent.at_work
        await one.agent.say(own, "at work")
        await one.ended(own, turn)
        await editor.until_text("at work")
        assert [method for method, _ in two.agent.asked].count("session/prompt") == 1


async def test_a_session_that_is_read_is_moved_by_no_client_that_only_watches(
    journal: Path,
) -> None:
    async with two_desks(journal) as (one, two):
        editor, session = await two.opened()
        await two.turn(editor, session, "hello", "hi", own="s0")
        await editor.call("session/close", {"sessionId": session})
        reader = two.stranger(Principal(name="looks", scopes=frozenset({"watch"}), sees_all=True))
        await reader.introduce(None, {})
        await reader.load(session)
        watcher = await one.client(_meta={WATCHES: True})
        await watcher.load(session)
        assert one.hub.conversation(session).side.agent is two.agent
        assert one.agent.asked == []


async def test_a_sign_in_outside_restarts_the_agent_unless_it_is_at_work(house: Shared) -> None:
    _, session, turn = await house.in_turn("hi")
    before = house.agent.generation
    await house.desk.on_sign_in_outside()
    assert house.agent.generation == before
    await house.agent.end(session)
    await turn
    await house.desk.on_sign_in_outside()
    assert house.agent.generation == before + 1
