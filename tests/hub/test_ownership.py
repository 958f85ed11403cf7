"""One process owns a session: one that lost it holds it no more, and can take it back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from acphold.conversation.history.entries import Segment
from acphold.errors import (
    HELD_ELSEWHERE,
    AgentExitedError,
    JournalUnavailableError,
    LeaseLostError,
)
from acphold.journal import bounds as journal_bounds
from acphold.journal.journal import Lease, state_of, take_lease
from acphold.journal.owners import Free
from acphold.journal.rows import NewSession, RowChange, SessionRow
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import LINE
from acphold.live.hub import bounds, ownership
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.ownership import BACK
from acphold.live.hub.session import HubSession
from acphold.machine.addresses import unix_address
from tests.editor import DEADLINE, Refused, open_params, prompt_params
from tests.hub.shared import PERMISSION, Shared, apart, full, said, shared
from tests.owners import owning
from tests.watched_processes import until


async def test_a_live_session_can_be_loaded_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    _, session = await house.opened()
    await house.agent.say(session, "kept")
    monkeypatch.setattr(house.journal, "renew", full)
    two = await house.loaded(session)
    assert two.text() == "kept"


async def test_a_session_that_the_journal_cannot_take_is_closed_at_the_agent(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    house.agent.can("close")
    house.agent.results["session/close"] = b"{}"
    client = await house.client()
    monkeypatch.setattr(house.journal, "create", full)
    error = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
    assert "the disk is full" in error.message
    await house.agent.was_asked("session/close")
    assert house.agent.asked[-1] == ("session/close", {"sessionId": "s0"})


async def test_the_session_of_a_killed_process_is_taken_at_once_whoever_asks(
    journal: Path, tmp_path: Path, house: Shared
) -> None:
    one, session = await house.talked("go", "gone")
    await one.call("session/close", {"sessionId": session})
    line = house.stranger()
    await line.initialize(_meta={LINE: True})  # it looks for no owner itself
    async with owning(journal, session, unix_address(str(tmp_path / "nobody.sock"))):
        error = await line.refused("session/load", open_params(session, "/"))
        assert error.code == HELD_ELSEWHERE
    async with asyncio.timeout(journal_bounds.SILENT_SECONDS / 2):
        # The database notices its end in a moment.
        while not isinstance(await house.journal.owner(session), Free):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        await line.load(session)


async def test_a_long_turn_that_a_crash_cut_off_is_closed_without_reading_all_of_it(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    lease = await house.journal.create(NewSession("long", "puppet", "/"))
    call = b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","_meta":{"its":1}}'
    words = [said(f"{number:100}") for number in range(6000)]
    await house.journal.append(lease, [("prompt", [b'[{"type":"text","text":"Go."}]'])])
    for place in range(0, len(words), 20):
        await house.journal.append(lease, [("update", words[place : place + 20])])
    await house.journal.append(lease, [("update", [call, *words[:20]])])
    await house.journal.change(lease, RowChange(prompted=True))
    await house.journal.release(lease)
    close, read = Conversation.close_interrupted_turn, HubSession.read
    sizes: list[int] = []

    async def counted(session: HubSession, after: int, limit_bytes: int) -> list[Segment]:
        page = await read(session, after, limit_bytes)
        sizes.append(sum(len(segment.raw) for segment in page))
        return page

    async def closed(conversation: Conversation) -> None:
        sizes.clear()
        await close(conversation)
        assert sum(sizes) < 300_000  # of 1.1 MB

    monkeypatch.setattr(Conversation, "close_interrupted_turn", closed)
    monkeypatch.setattr(HubSession, "read", counted)
    client = await house.loaded("long")
    shown = client.updates("long")
    [failed] = [one for one in shown if one["sessionUpdate"] == "tool_call_update"]
    assert failed["_meta"]["its"] == 1
    assert (await house.journal.session("long")).title == "Go"


async def test_loading_takes_a_session_back_from_the_process_that_took_it_over(
    journal: Path,
) -> None:
    async with apart(journal) as (first, second):
        one, two = await first.client(), await second.client()
        session = await one.new()
        await one.call("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        await two.load(session)
        await second.turn(two, session, "said in the second", "answered in the second", own="s0")
        await one.load(session)
        assert one.text() == "answered in the second"
        assert await first.turn(one, session, "said in the first", own="s1") == {
            "stopReason": "end_turn"
        }


async def test_a_prompt_that_is_refused_because_the_session_was_taken_never_reaches_the_agent(
    journal: Path,
) -> None:
    async with shared(journal) as first, shared(journal) as second:
        await first.give_way()
        one, two = await first.client(), await second.client()
        session = await one.new()
        await two.load(session)
        error = await one.refused("session/prompt", prompt_params(session, "mine"))
        # It goes along to the next owner, unless a database may have it already.
        is_url = "://" in str(journal)
        why = "owned by another acphold process" if is_url else "which cannot be reached from here"
        assert why in error.message
        assert "session/prompt" not in [method for method, _ in first.agent.asked]
        # It is not open here any more, and the other process shares nothing.
        await one.refused("session/prompt", prompt_params(session, "mine"))
        assert "session/prompt" not in [method for method, _ in first.agent.asked]


async def test_a_session_that_is_taken_in_the_middle_of_a_turn_is_told_and_leaves(
    journal: Path,
) -> None:
    async with apart(journal) as (first, second):
        one, two = await first.client(), await second.client()
        session = await one.new()
        turn = await first.begun(one, session, "go")
        await two.load(session)
        await first.agent.say(session, "too late")
        assert "another acphold process" in str(
            (await asyncio.gather(turn, return_exceptions=True))[0]
        )
        await asyncio.wait_for(first.agent.cancelled.wait(), 5)
        assert not first.hub.open_ids
        assert two.text() == ""


async def test_an_id_that_is_given_out_again_never_shows_the_old_session_the_new_words(
    journal: Path,
) -> None:
    async with apart(journal) as (first, second):
        one, two = await first.client(), await second.client()
        session = await one.new()
        await first.told(one, session, "of the old one")
        await second.journal.delete(session)
        assert await two.new() == session  # the puppet counts anew
        await second.told(two, session, "of the new one")
        error = await one.refused("session/prompt", prompt_params(session, "mine"))
        assert "deleted" in error.message or "another" in error.message
        assert one.text().startswith("of the old one\n\n[acphold] This session was deleted")
        assert "of the new one" not in one.text()
        await one.load(session)
        assert one.text().endswith("of the new one")


@pytest.mark.of_a_file
async def test_what_a_closed_session_still_wants_to_say_does_not_end_the_one_that_was_loaded_since(
    house: Shared,
) -> None:
    house.agent.results["session/set_mode"] = b"{}"
    client, session = await house.opened()
    house.agent.may_answer.clear()
    late = client.begin("session/set_mode", {"sessionId": session, "modeId": "code"})
    await house.agent.was_asked("session/set_mode")
    await client.call("session/close", {"sessionId": session})
    loading = client.begin("session/load", open_params(session, "/"))
    await client.call("session/list", {})
    house.agent.may_answer.set()
    await asyncio.wait([late])
    assert late.exception() is not None
    await asyncio.wait_for(loading, 5)
    assert await house.turn(client, session, "hi", own="s1") == {"stopReason": "end_turn"}


async def test_a_session_is_closed_to_the_end_though_nobody_waits_for_it(house: Shared) -> None:
    house.agent.heeds_cancel = False  # so that closing takes a while
    client, session, turn = await house.in_turn("hi")
    closing = client.begin("session/close", {"sessionId": session})
    await asyncio.wait_for(house.agent.cancelled.wait(), 20)
    client.tell("$/cancel_request", {"requestId": client.last_id})
    with pytest.raises(Refused, match="cancelled"):
        await closing
    assert await turn == {"stopReason": "cancelled"}
    async with asyncio.timeout(20):
        while not isinstance(await house.journal.owner(session), Free):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.load(session)


async def test_a_session_that_takes_its_time_to_close_holds_up_no_load_of_another(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, other = await house.client(), await house.client()
    slow, session = await client.new(), await other.new()
    closing, may_end = asyncio.Event(), asyncio.Event()
    release = house.journal.release

    async def slowly(lease: Lease) -> None:
        closing.set()
        await may_end.wait()
        await release(lease)

    monkeypatch.setattr(house.journal, "release", slowly)
    close = client.begin("session/close", {"sessionId": slow})
    await closing.wait()
    again = client.begin("session/load", open_params(slow, "/"))
    await other.load(session)
    assert not close.done()
    assert not again.done()
    may_end.set()
    await close
    await again


async def test_an_owner_goes_on_to_tell_that_it_is_there_though_that_failed_unforeseen(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 0.01)
    async with shared(journal) as house, asyncio.timeout(40):
        _client, session = await house.opened()
        told: list[str] = []
        told_twice = asyncio.Event()

        async def renew(leases: Sequence[Lease] = (), **_: bool) -> list[LeaseLostError]:
            told.extend(lease.session_id for lease in leases)
            if len(told) == 1:
                raise RuntimeError("a fault of ours")
            told_twice.set()
            return []

        monkeypatch.setattr(house.journal, "renew", renew)
        await told_twice.wait()
        assert {*told} == {session}


async def test_nothing_is_asked_of_a_session_that_is_open_and_idle_and_a_name_given_is_told(
    journal: Path, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client = await house.client()
    sessions = [await client.new() for _ in range(3)]
    owned = house.hub.ownership
    await owned._look_at_titles()
    asked: list[str] = []
    session = house.journal.session

    async def noted(session_id: str, *, counted: bool = False) -> SessionRow:
        asked.append(session_id)
        return await session(session_id, counted=counted)

    monkeypatch.setattr(house.journal, "session", noted)
    async with asyncio.timeout(DEADLINE):
        await owned._look_at_titles()
        while asked:  # changes that others began earlier may come late
            asked.clear()
            await owned._look_at_titles()
    other = open_journal(journal)
    await other.change(sessions[1], RowChange(given="Mine"))
    await other.aclose()
    async with asyncio.timeout(DEADLINE):
        while sessions[1] not in asked:
            await owned._look_at_titles()
    assert (await state_of(house.journal, sessions[1])).attributes.title == "Mine"


async def test_others_have_their_turn_while_the_titles_of_all_that_is_live_are_looked_at(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "TITLES_STEP_SECONDS", 0.0)  # each look has taken long
    async with shared(journal) as house, asyncio.timeout(40):
        client = await house.client()
        sessions = [await client.new() for _ in range(3)]
        looked_in: list[int] = []
        step = 0

        async def count() -> None:
            nonlocal step
            while True:
                step += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        row_of = house.journal.session

        async def session(session_id: str, *, counted: bool = False) -> SessionRow:
            looked_in.append(step)
            return await row_of(session_id, counted=counted)

        monkeypatch.setattr(house.journal, "session", session)
        other = open_journal(journal)
        for name in sessions:
            await other.change(name, RowChange(archived=True))
        await other.aclose()
        await until(lambda: len(looked_in) >= 3)
        counting.cancel()
        assert len({*looked_in}) == len(looked_in)


async def test_an_agent_that_hangs_while_it_starts_again_does_not_hold_up_the_end(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    starting = asyncio.Lock()

    async def hangs() -> None:
        async with starting:
            begun.set()
            await asyncio.Event().wait()

    async def ends() -> None:
        async with starting:  # as a program is ended: not while it starts
            ended.set()

    async with asyncio.timeout(40):
        async with shared(journal) as house:
            client, session = await house.opened()
            monkeypatch.setattr(house.agent, "ensure", hangs)
            monkeypatch.setattr(house.agent, "aclose", ends)
            house.agent.generation += 1  # it has crashed
            client.begin_prompt(session, "hi")
            await begun.wait()
    assert ended.is_set()


@pytest.mark.of_a_file
async def test_a_question_that_ended_unseen_does_not_keep_a_session_shut_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    one, session, turn = await house.in_turn("hi")
    await house.agent.say(session, "kept")
    tool = {"toolCallId": "t", "title": "Run it"}
    asking = asyncio.create_task(
        house.agent.ask_client(PERMISSION, sessionId=session, toolCall=tool, options=[])
    )
    await house.leave(one)
    await house.agent.end(session, AgentExitedError("it ended", "exit status 1", ""))
    await asyncio.wait([asking])
    assert isinstance(asking.exception(), AgentExitedError)
    append = house.journal.append
    monkeypatch.setattr(house.journal, "append", full)
    two = await house.loaded(session)
    assert two.text() == "kept"
    monkeypatch.setattr(house.journal, "append", append)
    three = await house.loaded(session)
    await three.until_text("The question was: Run it")
    turn.cancel()


async def test_a_turn_of_an_agent_that_cannot_be_stopped_waits_for_the_journal_of_several_machines(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 0.01)
    now = 0.0
    monkeypatch.setattr(ownership, "clock", lambda: now)
    async with shared(journal) as house, asyncio.timeout(40):
        client, session, turn = await house.in_turn("work on")

        async def cut_off(*_: object, **__: object) -> None:
            raise JournalUnavailableError("no route to host")

        with monkeypatch.context() as away:
            away.setattr(house.journal, "renew", cut_off)
            away.setattr(house.journal, "file", None)
            now = journal_bounds.TRUSTED_SECONDS + 1
            outage = house.hub.conversation(session).session.outage
            await until(lambda: outage.is_paused)
            saying = asyncio.create_task(house.agent.say(session, "meanwhile"))
            asking = asyncio.create_task(
                house.agent.ask_client("fs/read_text_file", sessionId=session, path="/a")
            )
            await asyncio.sleep(0.1)
            assert not any(it.done() for it in (turn, saying, asking))
            assert "meanwhile" not in client.text()
        await client.until_text(BACK)
        await saying
        await asyncio.wait([asking])
        assert "meanwhile" in client.text()
        await house.agent.end(session)
        assert (await turn)["stopReason"] == "end_turn"


async def test_a_session_without_plans_is_at_home_in_the_journal_that_opens_it(
    house: Shared,
) -> None:
    client, session = await house.talked("hello", "hi")
    await client.call("session/close", {"sessionId": session})
    lease = await take_lease(house.journal, session)
    await house.journal.change(lease, RowChange(home="of another"))
    await house.journal.release(lease)
    await client.load(session)
    assert (await house.journal.session(session)).home == lease.journal
