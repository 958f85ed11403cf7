"""`session/cancel`: every turn ends as cancelled, whatever the agent does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.editor import prompt_params, received
from tests.served import Guest, wrapped

CANCELLED = {"stopReason": "cancelled"}


async def test_cancel_is_relayed_and_the_answer_is_cancelled(log: Path, client: Guest) -> None:
    session = await client.new()
    turn = client.begin_prompt(
        session, {"say": "a"}, {"until": "cancel"}, {"say": "b"}, {"stop": "cancelled"}
    )
    await client.until_text("a")
    client.tell("session/cancel", {"sessionId": session, "_meta": {"x": 1}})
    assert await turn == CANCELLED
    assert client.text() == "ab"  # text before the agent's answer still counts
    assert len(received(log, "session/cancel")) == 1


async def test_the_answer_is_cancelled_even_when_the_agent_answers_otherwise(
    client: Guest,
) -> None:
    session = await client.new()
    for number, end in enumerate(
        (
            {"error": {"code": -32603, "message": "aborted"}},
            {"error": {"code": -32800, "message": "cancelled"}},
            {"stop": "end_turn"},
            {"stop": "refusal"},
        )
    ):
        turn = client.begin_prompt(session, {"say": f"a{number}"}, {"until": "cancel"}, end)
        await client.until_text(f"a{number}")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED
        assert await client.prompt(session, {"say": "b"}) == {"stopReason": "end_turn"}


async def test_the_answer_is_cancelled_even_when_the_agent_dies_of_it(client: Guest) -> None:
    session = await client.new()
    turn = client.begin_prompt(session, {"say": "a"}, {"until": "cancel"}, {"exit": 3})
    await client.until_text("a")
    client.tell("session/cancel", {"sessionId": session})
    assert await turn == CANCELLED
    assert await client.prompt(session, {"say": "b"}) == {"stopReason": "end_turn"}


async def test_a_cancel_right_behind_the_prompt_is_not_lost(client: Guest) -> None:
    session = await client.new()
    turn = client.begin_prompt(session, {"until": "cancel"})
    client.tell("session/cancel", {"sessionId": session})
    assert await turn == CANCELLED


async def test_a_cancel_without_a_turn_or_for_an_unknown_session_is_ignored(client: Guest) -> None:
    session = await client.new()
    client.tell("session/cancel", {"sessionId": session})
    client.tell("session/cancel", {"sessionId": "no-such"})
    client.tell("session/cancel", {})
    client.tell("session/cancel", [])
    assert await client.prompt(session, {"say": "a"}) == {"stopReason": "end_turn"}
    assert all("error" not in message for message in client.messages)


async def test_an_agent_that_does_not_stop_within_the_grace_is_answered_for_and_its_rest_dropped(
    journal: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go = tmp_path / "go"
    caplog.set_level(logging.INFO)
    async with wrapped(journal, cancel_grace=0.2) as client:
        session = await client.new()
        tool = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}
        turn = client.begin_prompt(
            session, {"update": tool}, {"say": "a"}, {"until": str(go)}, {"say": "late"}
        )
        await client.until_text("a")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED
        seen = len(client.updates())
        # The next prompt goes to the agent only when it has ended the old turn.
        after = client.begin_prompt(session, {"say": "b"})
        go.touch()
        assert await after == {"stopReason": "end_turn"}
        assert client.text() == "ab"
        assert "late" not in str(client.updates()[seen:-1])
    assert "dropped" in caplog.text
    assert "ended a cancelled turn" in caplog.text
    async with wrapped(journal) as client:
        await client.load(session)
        assert client.text() == "ab"


async def test_state_that_an_overdue_turn_tells_of_is_kept(journal: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    async with wrapped(journal, cancel_grace=0.1) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"say": "a"}, {"until": str(go)}, {"update": commands})
        await client.until_text("a")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED
        go.touch()
        await client.until(lambda: commands in client.updates())


async def test_a_prompt_that_waits_for_an_overdue_turn_can_be_cancelled(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, cancel_grace=0.3, log=str(log)) as client:
        session = await client.new()
        first = client.begin_prompt(session, {"say": "a"}, {"until": "cancel ignored"})
        await client.until_text("a")
        client.tell("session/cancel", {"sessionId": session})
        assert await first == CANCELLED
        second = client.begin_prompt(session, {"say": "b"})
        client.tell("session/cancel", {"sessionId": session})
        assert await second == CANCELLED
        assert len(received(log, "session/prompt")) == 1


async def test_nothing_of_a_cancelled_turn_follows_its_answer(journal: Path) -> None:
    late = {"sessionUpdate": "x-late"}
    title = {"sessionUpdate": "session_info_update", "title": "Late, and no part of the turn"}
    async with wrapped(journal) as client:
        session = await client.new()
        turn = client.begin_prompt(
            session, {"say": "a"}, {"later": late}, {"later": title}, {"until": "cancel"}
        )
        await client.until_text("a")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == CANCELLED
        await client.until(lambda: title in client.updates())
        await client.prompt(session, {"say": "b"}, {"later": {"sessionUpdate": "x-fine"}})
        await client.until(lambda: {"sessionUpdate": "x-fine"} in client.updates())
        assert late not in client.updates()


async def test_a_prompt_cannot_go_to_an_agent_stuck_in_one_session_and_at_work_in_another(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with wrapped(journal, cancel_grace=0.1) as client:
        stuck, busy = await client.new(), await client.new()
        turn = client.begin_prompt(stuck, {"say": "a"}, {"until": "cancel ignored"})
        other = client.begin_prompt(busy, {"until": str(go)}, {"say": "b"})
        await client.until_text("a")
        client.tell("session/cancel", {"sessionId": stuck})
        assert await turn == CANCELLED
        error = await client.refused("session/prompt", prompt_params(stuck, "c"))
        assert "cancelled turn" in error.message
        go.touch()
        assert await other == {"stopReason": "end_turn"}
        # Nobody else is served now: the agent can be started again.
        assert await client.prompt(stuck, {"say": "d"}) == {"stopReason": "end_turn"}
