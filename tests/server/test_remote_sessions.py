"""A session that is live in another process: opening it here attaches there."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from acphold.journal.bounds import SILENT_SECONDS
from acphold.journal.owners import At, Free, Whose
from acphold.journal.stores import open_journal
from acphold.live.reading import one_question
from acphold.machine import unix
from acphold.machine.runtime_folder import runtime_folder
from tests.editor import DEADLINE, Editor, Refused, open_params, scripted_agent
from tests.owners import make_silent, program, silent
from tests.served import Guest, guest, wrapped

ASK: dict[str, Any] = {
    "toolCall": {"toolCallId": "t1", "title": "Run it"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}


@asynccontextmanager
async def two(journal: Path, **agent: Any) -> AsyncIterator[tuple[Guest, Guest]]:
    """Two clients, each with a hub of its own, over one journal."""
    command = scripted_agent(**agent)
    async with guest(command, journal) as one, guest(command, journal) as other:
        await one.initialize()
        await other.initialize()
        yield one, other


@pytest.mark.parametrize(("opens", "seen"), [("load", "beforehalf "), ("resume", "")])
async def test_opening_a_session_in_the_middle_of_a_turn_shows_what_comes_and_a_load_the_past(
    journal: Path, tmp_path: Path, opens: str, seen: str
) -> None:
    go = tmp_path / "go"
    async with two(journal) as (one, other):
        session = await one.talk({"say": "before"})
        turn = one.begin_prompt(session, {"say": "half "}, {"until": str(go)}, {"say": "whole"})
        await one.until_text("half ")
        await (other.load(session) if opens == "load" else other.resume(session))
        assert other.text() == seen
        go.touch()
        await other.until_text(f"{seen}whole")
        await turn


LEFT_OUT = "An update is missing here"


async def test_what_is_longer_than_a_client_takes_is_told_in_its_place_live_and_in_a_replay(
    journal: Path,
) -> None:
    limit, command = 200_000, scripted_agent()
    async with (
        guest(command, journal) as one,
        guest(command, journal, limit=limit) as two,
        guest(command, journal, limit=limit) as three,
    ):
        await one.initialize()
        await two.initialize(session={"notices": {}})
        await three.initialize(_meta={"acphold/positions": True})
        session = await one.talk({"say": "first "})
        await two.load(session)
        long = {"flood": [1, 2 * limit]}
        await one.prompt(session, {"say": "before "}, long, {"say": "after "})
        await two.until_text("after ")
        kinds = ["agent_message_chunk", "notice", "agent_message_chunk"]
        assert [update["sessionUpdate"] for update in two.updates()][-3:] == kinds
        told = two.updates()[-2]
        assert told["title"] == LEFT_OUT
        assert "is over the limit of" in told["description"]
        await three.load(session)
        assert f"before \n\n[acphold] {LEFT_OUT}" in three.text()
        assert three.text().endswith("after ")
        # The line behind knows the place, too: it does not come twice.
        places = [
            message["params"]["_meta"]["acphold/seq"]
            for message in three.messages
            if message.get("method") == "session/update" and "_meta" in message["params"]
        ]
        assert len(places) > 3
        assert places == sorted(set(places))


async def test_the_second_client_of_a_session_is_told_nothing_that_it_did_not_offer_to_show(
    journal: Path,
) -> None:
    compaction = {"sessionUpdate": "compaction_update", "compactionId": "c"}
    async with two(journal) as (one, plain), guest(scripted_agent(), journal) as shows:
        await shows.initialize(session={"notices": {}, "compaction": {}})
        session = await one.new()
        for client in (plain, shows):
            await client.load(session)
        offered = [
            {"sessionUpdate": "notice", "severity": "info", "title": "Look"},
            {**compaction, "status": "in_progress"},
            {**compaction, "status": "completed"},
        ]
        await one.prompt(
            session, {"say": "one "}, *({"update": it} for it in offered), {"say": "2"}
        )
        for client in (plain, shows):
            await client.until_text("one 2")
            await client.call("session/close", {"sessionId": session})
        assert [it for it in shows.updates() if it in offered] == offered
        assert not {it["sessionUpdate"] for it in plain.updates()} & {
            "notice",
            "compaction_update",
        }


async def test_both_may_prompt_and_each_is_shown_what_the_other_said(journal: Path) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "to one"})
        await other.load(session)
        await other.prompt(session, {"say": "to other"})
        await one.until_text("to other")
        assert '"to other"' in one.text("user_message_chunk")
        assert '"to other"' not in other.text("user_message_chunk")
        turns = [
            one.begin_prompt(session, {"say": "first "}),
            other.begin_prompt(session, {"say": "second"}),
        ]
        assert [await turn for turn in turns] == [{"stopReason": "end_turn"}] * 2
        for client in (one, other):
            await client.until_text("second")


async def test_an_agent_of_the_second_process_is_never_asked(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with wrapped(journal) as one:
        session = await one.talk({"say": "hello"})
        async with guest(scripted_agent(log=str(log)), journal) as other:
            await other.initialize()
            await other.load(session)
            await other.prompt(session, {"say": "again"})
            await other.call("session/set_mode", {"sessionId": session, "modeId": "x"})
    methods = [json.loads(line)["method"] for line in log.read_text().splitlines()]
    assert methods == ["initialize"]


async def test_a_client_there_that_leaves_with_a_question_open_refuses_nothing(
    journal: Path,
) -> None:
    command = scripted_agent()
    async with two(journal) as (one, other), guest(command, journal) as third:
        session = await one.talk({"say": "hello"})
        await other.load(session)
        await one.call("session/close", {"sessionId": session})  # the other one keeps it open there
        asked = asyncio.Event()

        async def never(_: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        other.answers["session/request_permission"] = never
        other.begin_prompt(session, {"ask": ["session/request_permission", ASK]})
        await asked.wait()
        await other.leave()
        await third.initialize()
        await third.load(session)  # a client that attaches gets the question again
        await third.until_text('"yes"')


async def test_closing_it_there_and_loading_it_again_goes_on_as_before(journal: Path) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "hello"})
        await other.load(session)
        await other.call("session/close", {"sessionId": session})
        error = await other.refused("session/prompt", {"sessionId": session, "prompt": []})
        assert error.code == -32002
        await other.load(session)
        await other.prompt(session, {"say": "again"})
        assert other.text().endswith("again")


async def test_who_may_prompt_there_still_may_once_it_is_opened_again_only_to_read(
    journal: Path,
) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "hello"})
        await other.load(session)
        await other.load(session, _meta={"acphold/reads": True})
        await other.prompt(session, {"say": "again"})
        await one.until_text("again")


async def test_requests_right_behind_the_one_that_opens_it_find_it_there(journal: Path) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "hello"})
        loading = other.begin("session/load", open_params(session, "/"))
        mode = other.begin("session/set_mode", {"sessionId": session, "modeId": "x"})
        turn = other.begin_prompt(session, {"say": "at once"}, {"until": "cancel"})
        await loading
        await mode
        await other.until_text("at once")
        other.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}


async def test_a_prompt_that_is_cancelled_before_the_session_is_open_there_is_never_sent(
    journal: Path,
) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "hello"})
        loading = other.begin("session/load", open_params(session, "/"))
        turn = other.begin_prompt(session, {"say": "never"})
        other.tell("session/cancel", {"sessionId": session})
        await loading
        assert await turn == {"stopReason": "cancelled"}
        assert "never" not in one.text()


async def test_when_the_owner_leaves_the_client_there_goes_on_and_opens_nothing(
    journal: Path, client: Guest
) -> None:
    async with wrapped(journal) as one:
        session = await one.talk({"say": "hello"})
        await client.load(session)
    await client.prompt(session, {"say": "goodbye"})
    assert client.text().startswith("hello")
    assert client.text().endswith("goodbye")


async def test_what_the_owner_had_kept_and_not_told_reaches_the_client_there_once(
    journal: Path, client: Guest
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "hello "})
        await client.load(session)
        with stopped_reading(client):
            turn = one.begin_prompt(session, {"flood": [500, 5000]}, {"until": "cancel"})
            await one.until(lambda: len(one.updates(session)) > 500)
            await one.kill()
        turn.exception() if turn.done() else turn.cancel()
    await client.until(lambda: "00000499" in client.text())
    assert [word for word in client.text().split("x") if word] == [
        "hello 00000000",
        *(f"{number:08}" for number in range(1, 500)),
    ]


@contextmanager
def stopped_reading(client: Guest) -> Iterator[None]:
    """It takes nothing meanwhile."""
    client.reads.clear()
    yield
    client.reads.set()


@pytest.mark.of_a_file
async def test_what_a_dead_owner_had_is_free_at_once_and_nobody_is_waited_for(
    journal: Path, monkeypatch: pytest.MonkeyPatch, client: Guest
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "hello"})
        left = await owner(journal, session)
        assert isinstance(left, At)
        assert left.owner.pid == one.process.pid
        await one.kill()
        assert await owner(journal, session) == Free(left.epoch)

        async def asked(*_: Any) -> Any:
            raise AssertionError("it is dead")

        with monkeypatch.context() as patch:
            patch.setattr(one_question, "connect", asked)
            await client.load(session)
    taken = await owner(journal, session)
    assert isinstance(taken, At)
    assert (taken.owner.pid, taken.epoch > left.epoch) == (os.getpid(), True)
    assert client.text() == "hello"


async def owner(journal: Path, session: str) -> Whose:
    """The session's owner, as seen by an outsider."""
    reader = open_journal(journal)
    try:
        return await reader.owner(session)
    finally:
        await reader.aclose()


async def test_two_that_take_over_a_session_at_once_are_one_owner_and_one_client(
    journal: Path,
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "hello"})
        await one.kill()
    async with two(journal) as (left, right):
        await asyncio.gather(left.load(session), right.load(session))
        await left.prompt(session, {"say": "to both"})
        await right.until_text("to both")
        assert left.text() == right.text()


async def test_an_owner_that_was_stopped_loses_the_session_and_cannot_write_when_it_comes_back(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with program(journal) as one:
        session = await one.talk({"say": "hello"})
        turn = one.begin_prompt(session, {"until": str(go)}, {"say": "too late"})
        await until_running(journal, session, 4)
        async with wrapped(journal) as other:
            with silent(journal, one):
                await other.load(session)
            go.touch()
            with pytest.raises(Refused, match="another acphold process"):
                await turn
            await other.prompt(session, {"say": "mine"})
            assert "too late" not in other.text()


async def until_running(journal: Path, session: str, seq: int) -> None:
    """Wait until the journal has this entry."""
    reader = open_journal(journal)
    async with asyncio.timeout(DEADLINE):
        while (await reader.session(session)).last_seq < seq:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    await reader.aclose()


async def test_the_stale_socket_file_of_a_dead_process_hinders_nobody_and_is_removed(
    journal: Path,
) -> None:
    async with program(journal) as one:
        await one.new()
        left = str(one.process.pid)
        assert [name for name in os.listdir(runtime_folder()) if name.startswith(left)]
        await one.kill()
    async with program(journal) as next_one:
        await next_one.new()
    assert not [name for name in os.listdir(runtime_folder()) if name.startswith(left)]


async def test_a_client_of_another_process_that_reads_nothing_slows_nobody_down(
    journal: Path,
) -> None:
    async with program(journal) as one, program(journal) as slow:
        session = await one.talk({"say": "hello"})
        await slow.load(session)
        with reading_nothing(slow):
            await one.prompt(session, {"flood": [3000, 4000]})
            assert len(one.updates(session)) > 3000
        await slow.until(lambda: len(slow.updates(session)) > 3000)


@contextmanager
def reading_nothing(client: Editor) -> Iterator[None]:
    """The pipe fills meanwhile."""
    assert client.process.stdout is not None
    pipe = client.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    pipe.pause_reading()
    yield
    pipe.resume_reading()


async def test_only_this_users_processes_are_let_in(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(journal) as (one, other):
        session = await one.talk({"say": "hello"})
        kernel, asked = unix.credentials, asyncio.Event()

        def of_another(at: socket.socket) -> unix.Credentials:
            asked.set()
            return unix.Credentials(os.getuid() + 1, kernel(at).pid)

        monkeypatch.setattr(unix, "credentials", of_another)
        make_silent(journal, os.getpid(), SILENT_SECONDS - 2)
        loading = asyncio.create_task(other.load(session))
        await asyncio.wait_for(asked.wait(), DEADLINE)
        make_silent(journal, os.getpid(), 0)  # it has reported
        with pytest.raises(Refused, match=f"process {os.getpid()} on .* belongs to another user"):
            await loading
        await one.prompt(session, {"say": "mine still"})


async def test_a_turn_goes_on_at_the_owner_when_the_client_there_that_began_it_leaves(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with program(journal) as owner:
        session = await owner.new()
        await owner.prompt(session, {"say": "hello "})
        async with guest(scripted_agent(), journal) as other:
            await other.initialize()
            await other.load(session)
            other.begin_prompt(session, {"say": "half "}, {"until": str(go)}, {"say": "whole"})
            await other.until_text("half ")
        go.touch()
        await owner.until_text("whole")


async def test_cancel_request_of_a_prompt_there_ends_its_turn_at_the_owner(journal: Path) -> None:
    async with two(journal) as (one, other):
        session = await one.new()
        await one.prompt(session, {"say": "hello "})
        await other.load(session)
        turn = other.begin_prompt(session, {"say": "half"}, {"until": "cancel"})
        await one.until_text("half")
        other.tell("$/cancel_request", {"requestId": other.last_id})
        with pytest.raises(Refused, match="cancelled"):
            await turn
        assert (await one.prompt(session, {"say": "next"}))["stopReason"] == "end_turn"
        await other.until_text("next")
