"""A session whose owner changes while clients of several processes have it open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acp_wire.rpc import Transport
from acphold.errors import HELD_ELSEWHERE
from acphold.journal import bounds as journal_bounds
from acphold.journal.sql.store import SqlJournal, at_one_moment
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import LINE
from acphold.live.hub.attachments import Attachments
from acphold.live.hub.restoration import Restoration
from acphold.live.server import bounds
from acphold.live.server.connection import ClientConnection
from acphold.live.server.far_line import FarLine
from acphold.live.server.reconnection import Reconnection
from acphold.live.server.remote_sessions import SessionLine
from acphold.live.server.session_opener import SessionOpener
from tests.editor import (
    DEADLINE,
    Editor,
    Refused,
    open_params,
    prompt_params,
    scripted_agent,
)
from tests.owners import program, silent, yield_up
from tests.served import Guest, guest, wrapped

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has become of an owner is found out at once; an owner finds it out by a request, not by
    its clock."""
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(journal_bounds, "RENEW_SECONDS", 600.0)


async def find_out(one: Editor, session: str) -> None:
    """Let its program notice that another has the session: by a prompt, unless it has renewed its
    claims before."""
    try:
        await one.prompt(session, {"say": "too late "})
    except Refused as exc:
        if "another acphold process" not in str(exc):
            raise


async def test_a_client_of_an_owner_that_lost_the_session_loads_it_and_prompts_the_new_one(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as left, guest(scripted_agent(), journal) as right:
        await left.initialize()
        await right.initialize()
        async with program(journal) as one:
            session = await one.talk({"say": "hello "})
            await left.load(session)
            with silent(journal, one):
                await right.load(session)  # taken over
            await find_out(one, session)
            await left.load(session)
            await left.prompt(session, {"say": "again"})
            await right.until_text("again")


async def test_a_client_of_an_owner_that_was_stopped_goes_on_at_the_one_that_took_its_session(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once the turn is settled, who comes later is not told that the agent had it from us.
    monkeypatch.setattr("acphold.live.hub.bounds.REST_SECONDS", 600.0)
    async with guest(scripted_agent(), journal) as other:
        await other.initialize()
        async with program(journal) as one:
            session = await one.new()
            await one.prompt(session, {"say": "hello "})
            with silent(journal, one):
                await other.load(session)
                await other.prompt(session, {"say": "meanwhile "})
            await find_out(one, session)
            await one.until_text("meanwhile ")
            await one.prompt(session, {"say": "from one"})
            await other.until_text("from one")
            assert one.text() == other.text()


@pytest.mark.parametrize("by_line", [False, True])
async def test_a_slow_client_whose_session_is_taken_has_all_of_its_turn_before_the_answer(
    journal: Path, monkeypatch: pytest.MonkeyPatch, *, by_line: bool
) -> None:
    kept, moved, move = open_journal(str(journal)), asyncio.Event(), Attachments.move

    def note_move(of_session: Attachments) -> None:
        move(of_session)
        moved.set()

    monkeypatch.setattr(Attachments, "move", note_move)
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", DEADLINE)
    async with guest(scripted_agent(), journal) as left, guest(scripted_agent(), journal) as right:
        await left.initialize()
        await right.initialize()
        async with wrapped(journal) as one:
            session = await one.new()
            slow, other = (left, one) if by_line else (one, left)
            await left.load(session)
            slow.reads.clear()
            turn = slow.begin_prompt(session, {"flood": [400, 10_000]})
            await other.until_text("00000399")
            async with asyncio.timeout(DEADLINE):
                while (await kept.summary(session)).turn != "idle":  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            yield_up(journal, session)
            await right.load(session)
            params = prompt_params(session, {"say": "too late"})
            late = one.begin("session/prompt", {**params, "_meta": {"acphold/sent": {"id": "1"}}})
            async with asyncio.timeout(DEADLINE):
                await moved.wait()
            assert not turn.done()
            slow.reads.set()
            assert await turn == {"stopReason": "end_turn"}
            assert len(slow.text(session_id=session)) >= 400 * 10_008
            assert await late == {"stopReason": "end_turn"}
            assert one.text(session_id=session).endswith("too late")
    await kept.aclose()


async def take(journal: Path, session: str, other: Editor | Guest) -> None:
    """Let this client's process have the session, unnoticed by its owner."""
    yield_up(journal, session)
    await other.load(session)


async def end(one: Guest, session: str, method: str) -> None:
    """Have the session's prompts end, by a request or a notification of this method."""
    if method == "session/cancel":
        one.tell(method, {"sessionId": session})
    else:
        assert await one.call(method, {"sessionId": session}) == {}


ENDS = pytest.mark.parametrize("method", ["session/cancel", "session/close"])


@ENDS
async def test_a_waiting_prompt_that_is_ended_is_answered_and_does_not_run_at_the_next_owner(
    journal: Path, method: str
) -> None:
    async with wrapped(journal) as one, wrapped(journal) as other:
        session = await one.talk({"say": "hello "})
        running = one.begin_prompt(session, {"say": "first "}, {"until": "cancel"})
        waiting = one.begin_prompt(session, {"say": "waiting "})
        await one.until_text("first ")
        await take(journal, session, other)
        await end(one, session, method)
        for turn in (waiting, running):
            assert await asyncio.wait_for(turn, DEADLINE) == {"stopReason": "cancelled"}
        await other.prompt(session, {"say": "again"})
        assert "waiting" not in other.text() + other.text("user_message_chunk")


@ENDS
async def test_a_prompt_that_is_ended_before_its_client_follows_the_session_does_not_run_there(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    may_follow, go, dial = asyncio.Event(), tmp_path / "go", SessionLine.dial

    async def late(self: SessionLine) -> Transport:
        await may_follow.wait()
        return await dial(self)

    async with wrapped(journal) as one, wrapped(journal) as other:
        session = await one.talk({"say": "hello "})
        running = one.begin_prompt(session, {"say": "first "}, {"until": str(go)})
        waiting = one.begin_prompt(session, {"say": "waiting "})
        await one.until_text("first ")
        await take(journal, session, other)
        monkeypatch.setattr(SessionLine, "dial", late)
        go.touch()
        with pytest.raises(Refused, match="another acphold process"):
            await asyncio.wait_for(running, DEADLINE)
        await end(one, session, method)
        assert await asyncio.wait_for(waiting, DEADLINE) == {"stopReason": "cancelled"}
        may_follow.set()
        await other.prompt(session, {"say": "again"})
        assert "waiting" not in other.text() + other.text("user_message_chunk")


async def test_a_session_that_is_closed_while_it_is_opened_again_is_not_followed(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go = asyncio.Event(), tmp_path / "go"

    async def hang(*_: object) -> None:
        opening.set()
        await asyncio.Event().wait()

    async with wrapped(journal) as one, wrapped(journal) as other:
        session = await one.talk({"say": "hello "})
        running = one.begin_prompt(session, {"say": "first "}, {"until": str(go)})
        await one.until_text("first ")
        await take(journal, session, other)
        monkeypatch.setattr(SessionOpener, "_open_here", hang)
        again = one.begin("session/load", open_params(session, "/"))
        await opening.wait()
        waiting = one.begin_prompt(session, {"say": "waiting "})
        go.touch()
        with pytest.raises(Refused, match="another acphold process"):
            await asyncio.wait_for(running, DEADLINE)
        assert await one.call("session/close", {"sessionId": session}) == {}
        for refused, why in ((again, "closed meanwhile"), (waiting, "not open")):
            with pytest.raises(Refused, match=why):
                await asyncio.wait_for(refused, DEADLINE)
        await other.prompt(session, {"say": "again"})
        assert "waiting" not in other.text() + other.text("user_message_chunk")


async def test_a_client_has_its_session_open_in_the_step_in_which_its_process_loses_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, has = Attachments.move, list[bool]()

    def note(of_session: Attachments) -> None:
        clients = [it.client for it in of_session]
        move(of_session)
        has.extend(it.has(session) for it in clients if isinstance(it, ClientConnection))

    async with wrapped(journal) as one, wrapped(journal) as other:
        session = await one.talk({"say": "hello "})
        monkeypatch.setattr(Attachments, "move", note)
        await take(journal, session, other)
        named = {"_meta": {"acphold/sent": {"id": "1"}}}
        await one.call("session/prompt", {**prompt_params(session, {"say": "late"}), **named})
        assert has == [True]


async def test_a_prompt_without_an_id_that_is_in_the_journal_is_not_sent_to_the_next_owner(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open, ready, kept = asyncio.Event(), Restoration.ready, open_journal(str(journal))
    first_only = iter([is_open])

    async def slowly(self: Restoration, through: int | None = None) -> None:
        for gate in first_only:
            await gate.wait()
        await ready(self, through)

    async with wrapped(journal) as first:
        session = await first.talk({"say": "hello "})
    async with wrapped(journal) as one, wrapped(journal) as other:
        await one.load(session)
        monkeypatch.setattr(Restoration, "ready", slowly)
        turn = one.begin_prompt(session, {"say": "once"})
        async with asyncio.timeout(DEADLINE):
            while (await kept.summary(session)).turn == "idle":  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        await take(journal, session, other)
        is_open.set()
        with pytest.raises(Refused, match="another acphold process"):
            await asyncio.wait_for(turn, DEADLINE)
        await other.prompt(session, {"say": "again"})
        assert other.text("user_message_chunk").count("once") == 1
    await kept.aclose()


@pytest.mark.of_a_file
async def test_a_prompt_without_an_id_that_is_not_in_the_journal_runs_at_the_next_owner(
    journal: Path,
) -> None:
    async with wrapped(journal) as one, wrapped(journal) as other:
        session = await one.talk({"say": "hello "})
        await take(journal, session, other)
        assert await one.prompt(session, {"say": "late"}) == {"stopReason": "end_turn"}
        assert one.text().endswith("late")


async def test_a_line_to_an_owner_that_was_stopped_notices_that_another_has_its_session(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as left, guest(scripted_agent(), journal) as right:
        await left.initialize()
        await right.initialize()
        async with program(journal) as one:
            sessions = [await one.new(), await one.new()]
            session, other_session = sessions
            for each in sessions:
                await one.prompt(each, {"say": "hello "})
                await left.load(each)
            with silent(journal, one):
                turn = left.begin_prompt(session, {"say": "from left "})
                await right.load(session)
                await right.prompt(session, {"say": "from right "})
                # It was never begun where it was sent to, and is run once.
                assert await turn == {"stopReason": "end_turn"}
                await left.until_text("from right ")
                await right.until_text("from left ")
            await left.prompt(other_session, {"say": "still there"})
            await one.until_text("still there")
            await one.until(lambda: "from left " in one.text(session_id=session))
        for client in (left, right, one):
            for words in ("from left ", "from right "):
                assert client.text(session_id=session).count(words) == 1


async def test_what_a_client_has_closed_is_archived_also_right_after_its_owner_was_killed(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 600.0)  # the line is still there
    async with guest(scripted_agent(), journal) as left:
        await left.initialize()
        async with program(journal) as one:
            session = await one.talk({"say": "hello "})
            await left.load(session)
            await left.call("session/close", {"sessionId": session})
            one.process.kill()
            await left.call("session/archive", {"sessionId": session})
        [info] = await left.sessions(archived="only")
        assert info["sessionId"] == session


async def test_a_line_is_refused_a_session_that_another_process_has_and_leads_there_itself(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as left, guest(scripted_agent(), journal) as right:
        await left.initialize()
        await right.initialize(_meta={LINE: True})
        session = await left.new()
        await left.prompt(session, {"say": "hello"})
        refused = await right.refused("session/load", open_params(session, "/"))
        assert refused.code == HELD_ELSEWHERE


@pytest.mark.parametrize("way", ["load", "resume", "resume behind a position"])
async def test_what_a_client_that_has_just_come_had_not_been_told_when_the_owner_died_reaches_it(
    journal: Path, way: str, client: Guest
) -> None:
    with only_the_answer_arrives():
        async with program(journal) as one:
            session = await one.new()
            if way != "load":
                await one.prompt(session, {"say": "before "})
            await come(client, session, way, journal)
            await one.prompt(session, {"say": "since"})
            await one.kill()
        await client.until_text("since")
    seen = "before since" if way == "resume behind a position" else "since"
    assert client.text() == seen


@contextmanager
def only_the_answer_arrives() -> Iterator[None]:
    """For the block, lines drop the updates that come over their first connection, as if it had
    been lost before."""
    with pytest.MonkeyPatch.context() as patch:
        go_away = Reconnection.on_loss

        async def hear_nothing(*_: object) -> None:
            pass

        def hear_again(lost: Reconnection) -> None:
            patch.undo()
            go_away(lost)

        patch.setattr(FarLine, "on_notifications", hear_nothing)
        patch.setattr(Reconnection, "on_loss", hear_again)
        yield


async def come(client: Guest, session: str, way: str, journal: Path) -> None:
    """Open a session, behind the position 1 if so."""
    if way == "load":
        await client.load(session)
    elif way == "resume":
        await client.resume(session)
    else:
        kept = open_journal(str(journal))
        lineage = (await kept.session(session)).lineage
        await kept.aclose()
        await client.resume(session, _meta={"acphold/after": 1, "acphold/lineage": lineage})


@pytest.mark.of_a_file
async def test_a_client_that_cannot_be_shown_what_it_missed_is_told_so_and_what_to_do(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guest(scripted_agent(), journal) as other:
        await other.initialize(session={"notices": {}})
        async with program(journal) as one:
            session = await one.talk({"say": "hello"})
            await other.load(session)
            # As if somebody else had gone on with the session and settled it up to here.
            exact = iter([False])
            once = at_one_moment(lambda *_: next(exact, True))
            monkeypatch.setattr(SqlJournal, "is_exact", once)
            await one.kill()
        await other.until(
            lambda: any("load the session" in u.get("description", "") for u in other.updates())
        )
        await other.prompt(session, {"say": "again"})
        assert other.text().endswith("again")


async def test_a_prompt_that_its_owner_died_with_is_not_shown_to_who_sent_it(
    journal: Path,
) -> None:
    async with guest(scripted_agent(), journal) as other:
        await other.initialize(_meta={"acphold/positions": True})
        async with program(journal) as one:
            session = await one.talk({"say": "hello"})
            await other.load(session)
            before = other.text("user_message_chunk")
            turn = other.begin_prompt(session, {"until": "cancel"})
            # It has been told that its prompt has arrived.
            await other.until(lambda: {"sessionUpdate": "session_info_update"} in other.updates())
            await one.kill()
            with pytest.raises(Refused, match="has ended"):
                await turn
        await other.prompt(session, {"say": "whole"})
        await other.until_text("whole")
        assert other.text("user_message_chunk") == before
