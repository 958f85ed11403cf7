"""The client in memory, as authors use it in their own tests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.testing import connect
from tests.library.test_turn import agent_that


async def ask(turn: acphold.Turn) -> None:
    await turn.say(str(bool(await turn.ask_permission(turn.text))))


async def test_permissions_are_answered_by_a_script_or_a_function() -> None:
    def choose(asked: acphold.PermissionQuestion) -> str:
        return "allow_once" if asked.tool_call.title == "Good?" else "reject_once"

    persons: list[Any] = [["allow_once", "reject_once"], choose]
    for person in persons:
        async with connect(agent_that(ask), on_permission=person) as client:
            session = await client.new_session()
            assert [(await session.prompt(text)).text for text in ("Good?", "Bad?")] == [
                "True",
                "False",
            ]


async def test_an_answer_that_was_not_offered_is_a_mistake_of_the_test() -> None:
    async with connect(agent_that(ask), on_permission="perhaps") as client:
        with pytest.raises(acphold.DeclarationError, match="the agent offers no option 'perhaps'"):
            await (await client.new_session()).prompt("Well?")


async def test_a_result_has_everything_the_agent_did() -> None:
    async def work(turn: acphold.Turn) -> None:
        await turn.think("hm")
        await turn.plan(["first"])
        async with turn.tool("Look") as call:
            await call.content("seen")
        await turn.say("done")

    async with connect(agent_that(work)) as client:
        session = await client.new_session()
        result = await session.prompt("go")
        again = await session.prompt("go")
    assert (result.text, result.thoughts, result.stop_reason) == ("done", "hm", "end_turn")
    assert [call.title for call in result.tool_calls] == ["Look"]
    assert result.received.of("plan")[0]["entries"][0]["content"] == "first"
    assert len(again.tool_calls) == 1, "of this turn only"
    assert len(session.received.tool_calls) == 2


async def test_a_session_lives_through_a_restart_and_a_kill() -> None:
    async with connect(agent_that(lambda turn: turn.say(turn.text))) as client:
        session = await client.new_session()
        for number, kill in enumerate((False, True, True)):
            await session.prompt(str(number))
            await client.restart(kill=kill)
            session = await client.load_session(session.id)
        assert session.received.text == "012"
        assert [info.title for info in [info async for info in client.sessions()]] == ["0"]


async def test_a_journal_may_be_kept(tmp_path: Path) -> None:
    journal = tmp_path / "kept.db"
    for times in (1, 2):
        async with connect(agent_that(lambda turn: turn.say("x")), journal=journal) as client:
            await (await client.new_session()).prompt("go")
            assert len([info async for info in client.sessions()]) == times


async def test_an_agent_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(acphold.DeclarationError, match="answers no prompts"):
        async with connect(acphold.Agent("test", version="1")):
            pass


# -- exceptions of the author's code -----------------------------------------------------------


class Mistake(Exception):
    """Of an author."""


async def fails(turn: acphold.Turn) -> None:
    async with turn.tool("Look"):
        raise Mistake("off by one")


async def test_what_the_agents_code_raises_is_raised_in_the_test() -> None:
    async with connect(agent_that(fails)) as client:
        session = await client.new_session()
        turn = session.prompt("go")
        with pytest.raises(Mistake, match="off by one") as raised:
            await turn
        assert raised.traceback[-1].name == "fails", "its own traceback"
        assert [call.status for call in turn.tool_calls] == ["failed"]


async def test_a_test_may_want_to_see_what_a_client_is_told_instead() -> None:
    async with connect(agent_that(fails), raise_agent_exceptions=False) as client:
        with pytest.raises(acphold.RemoteError, match="internal error"):
            await (await client.new_session()).prompt("go")


async def test_what_an_agent_refuses_is_what_its_client_is_told() -> None:
    async def broke(turn: acphold.Turn) -> None:
        raise acphold.AcpError("the budget is used up")

    async with connect(agent_that(broke)) as client:
        with pytest.raises(acphold.RemoteError, match="the budget is used up"):
            await (await client.new_session()).prompt("go")
        for reopen in (client.load_session, client.resume_session):
            with pytest.raises(acphold.RemoteError, match="no session 'none'"):
                await reopen("none")


async def test_what_a_hook_raises_that_nobody_waits_for_is_raised_at_the_end() -> None:
    agent = agent_that(lambda turn: turn.say("x"))

    @agent.on_close
    async def closed(session: acphold.Session) -> None:
        raise Mistake("left open")

    async def test() -> None:
        async with connect(agent) as client:
            session = await client.new_session()
            assert (await session.prompt("go")).text == "x"
            await session.close()

    with pytest.raises(Mistake, match="left open"):
        await test()


async def test_what_an_author_prints_can_be_read() -> None:
    printed: list[str] = []

    async def work(turn: acphold.Turn) -> None:
        turn.session.store["visits"] = 1
        form = await turn.ask_form("Who?", {"name": {"type": "string"}})
        async with turn.tool("Look") as call:
            printed.append(f"{turn} {turn.session} {turn.session.store} {call} {form}")

    agent = agent_that(work)
    async with connect(agent, on_form=lambda question: {"name": "Ada"}) as client:
        session = await client.new_session()
        turn = await session.prompt("go " * 50)
        [call] = turn.tool_calls
        assert repr(turn.received) == f"<Received {len(turn.received.raws)} updates: ''>"
    of = repr(session.id)
    assert printed == [
        f"<Turn of {of}: {('go ' * 50)[:59] + '…'!r}> <Session {of} in {session.cwd!r}> "
        f"<Store with 'visits'> <RunningTool {call.tool_call_id!r} in_progress: 'Look'> "
        "<FormAnswer accepted: {'name': 'Ada'}>"
    ]
    assert repr(agent) == "<Agent 'test' 1>"


async def test_a_wait_has_the_deadline_of_the_test() -> None:
    async def wait(turn: acphold.Turn) -> None:
        await turn.say("waiting")
        await asyncio.Event().wait()

    async with connect(agent_that(wait), timeout=2) as client:
        session = await client.new_session()
        with pytest.raises(acphold.AgentTimeoutError, match=r"within 2 s"):
            await session.prompt("go")
        with pytest.raises(TimeoutError, match="has not said 'never' in time, but 'waiting'"):
            await session.until_said("never")


# -- one vocabulary ----------------------------------------------------------------------------


async def test_what_may_be_asked_is_answered_in_the_words_of_connect(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on the disk")

    async def work(turn: acphold.Turn) -> None:
        allowed = [bool(await turn.ask_permission("?", kind=kind)) for kind in ("read", "edit")]
        form = await turn.ask_form("Who?", {"name": {"type": "string"}})
        page = await turn.ask_page("Go", "https://example.org/")
        text = await turn.files.read("a.txt")
        await turn.say(f"{allowed} {form['name']} {page.agreed} {text}")

    async with connect(
        agent_that(work),
        permission={"read": "allow", "*": "reject"},
        on_form=lambda question: {"name": "Ada"},
        on_page=lambda question: True,
        files=True,
    ) as client:
        turn = await (await client.new_session(tmp_path)).prompt("go")
        assert turn.text == "[True, False] Ada True on the disk"
        assert ("fs/read_text_file", str(tmp_path / "a.txt")) in [
            (method, params.get("path")) for method, params in client.requests
        ]


async def test_files_that_cannot_be_served_are_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    agent, missing = agent_that(lambda turn: turn.say("hello")), tmp_path / "missing"
    with pytest.raises(NotADirectoryError, match=f"folder '{missing}' does not exist; make it"):
        async with connect(agent, files=[missing]):
            pass
    with pytest.raises(ValueError, match=r"'a\.txt' is not an absolute path"):
        async with connect(agent, files={"a.txt": "not saved"}):
            pass
    async with connect(agent, files={str(missing / "a.txt"): "not saved"}) as client:
        with pytest.raises(NotADirectoryError, match=f"folder '{missing}' does not exist; make it"):
            await client.new_session(missing)
        await client.new_session(tmp_path)


async def test_the_agent_and_sessions_under_test_are_those_that_connect_gives() -> None:
    async with connect(agent_that(lambda turn: turn.say("hello"))) as client:
        session = await client.new_session()
        assert isinstance(client, acphold.RemoteAgent)
        assert isinstance(session, acphold.RemoteSession)
        assert isinstance(session.prompt("go"), acphold.RemoteTurn)
        await session.until_said("hello")
        assert session.state.timeline[0].text == "go"  # type: ignore[union-attr]
        assert f"{client!r} {session!r}".startswith("<RemoteAgent 'test'> <RemoteSession 'sess")


async def test_a_journal_that_no_store_claims_is_refused_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(turn: acphold.Turn) -> None: ...

    monkeypatch.chdir(tmp_path)
    with pytest.raises(acphold.JournalError, match="no store for mine:// journals"):
        async with connect(agent_that(nothing), journal="mine://somewhere/else"):
            pass
    assert os.listdir(tmp_path) == []
    async with connect(agent_that(nothing), journal=f"sqlite:///{tmp_path}/a.db") as client:
        assert client.journal == tmp_path / "a.db"
