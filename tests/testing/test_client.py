"""The client in memory, as authors use it in their own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import acphold
from acphold.schema import RequestPermissionRequest
from acphold.testing import connect
from tests.library.test_turn import agent_that


async def ask(turn: acphold.Turn) -> None:
    await turn.say(str(bool(await turn.ask_permission(turn.text))))


async def test_permissions_are_answered_by_a_script_or_a_function() -> None:
    def choose(asked: RequestPermissionRequest) -> str:
        return "allow_once" if asked.tool_call.title == "Good?" else "reject_once"

    for permission in (["allow_once", "reject_once"], choose):
        async with connect(agent_that(ask), permission=permission) as client:
            session = await client.new_session()
            assert [(await session.prompt(text)).text for text in ("Good?", "Bad?")] == [
                "True",
                "False",
            ]


async def test_an_answer_that_was_not_offered_is_a_mistake_of_the_test() -> None:
    async with connect(agent_that(ask), permission="perhaps") as client:
        with pytest.raises(acphold.RemoteError, match="the agent offers no 'perhaps'"):
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
    assert result.of("plan")[0]["entries"][0]["content"] == "first"
    assert len(again.tool_calls) == 1, "of this turn only"
    assert len(session.received.tool_calls) == 2


async def test_a_session_lives_through_a_restart_and_a_kill() -> None:
    async with connect(agent_that(lambda turn: turn.say(turn.text))) as client:
        session = await client.new_session()
        for number, kill in enumerate((False, True, True)):
            await session.prompt(str(number))
            await client.restart(kill=kill)
            session = await client.load_session(session.id)
        assert session.replayed.text == "012"
        assert [info.title for info in await client.sessions()] == ["0"]


async def test_a_journal_may_be_kept(tmp_path: Path) -> None:
    journal = tmp_path / "kept.db"
    for times in (1, 2):
        async with connect(agent_that(lambda turn: turn.say("x")), journal=journal) as client:
            await (await client.new_session()).prompt("go")
            assert len(await client.sessions()) == times


async def test_an_agent_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(acphold.DeclarationError, match="answers no prompts"):
        async with connect(acphold.Agent("test", version="1")):
            pass
