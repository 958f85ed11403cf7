"""`acphold.open`: the same of a file, of a database and of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.errors import DeclarationError, JournalError, UnknownSessionError
from acphold.machine.runtime_folder import sockets
from tests.editor import DEADLINE
from tests.served import wrapped

OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]
CALL = {"toolCallId": "t1", "title": "Edit /a", "kind": "edit"}
ASK = {"ask": ["session/request_permission", {"toolCall": CALL, "options": OPTIONS}]}


async def until(sessions: AsyncIterator[acphold.KeptSession], id: str, state: str) -> None:
    """Read on until a session is in a state."""
    async with asyncio.timeout(DEADLINE):
        async for session in sessions:
            if (session.id, session.status) == (id, state):
                return


async def test_sessions_are_listed_and_read_without_any_process(journal: Path) -> None:
    async with wrapped(journal) as editor:
        first, second = await editor.new(), await editor.new()
        await editor.prompt(first, {"say": "Hello there"})
        await editor.prompt(second, {"say": "Goodbye"})
    running = sockets()
    async with acphold.open(str(journal)) as history:
        found = [it async for it in history.sessions()]
        assert [it.id for it in found] == [second, first]
        assert found[0].status == "completed"
        assert datetime.now(UTC) - found[0].updated_at < timedelta(minutes=5)
        state = await history.read(first)
        assert "Hello there" in str(state.timeline)
        assert await history.read(found[1]) == state
        hits = await history.search("goodbye")
        assert [(it.session_id, it.speaker) for it in hits] == [(second, "agent"), (second, "user")]
        usage = await history.usage("agent", since=datetime.now(UTC) - timedelta(days=1))
        assert usage.sessions == 2
        assert sum(it.sessions for it in usage.groups) == 2
        with pytest.raises(UnknownSessionError):
            await history.read("nothing")
        with pytest.raises(DeclarationError):
            await history.usage(since=datetime(2026, 1, 1))
        with pytest.raises(
            DeclarationError, match="agent, day, folder, model, session, not 'week'"
        ):
            await history.usage("week")  # type: ignore[arg-type]
    assert sockets() == running


async def test_a_followed_list_tells_each_session_as_it_changes_and_goes(journal: Path) -> None:
    async with wrapped(journal) as editor, acphold.open(str(journal)) as history:
        first = await editor.new()
        await editor.prompt(first, {"say": "one"})
        async with aclosing(history.sessions(follow=True)) as sessions:
            await until(sessions, first, "completed")
            second = await editor.new()
            turn = editor.begin_prompt(second, ASK)
            editor.answers["session/request_permission"] = lambda _: asyncio.Future()
            await until(sessions, second, "waiting")
            editor.tell("session/cancel", {"sessionId": second})
            await until(sessions, second, "cancelled")
            await turn
            await editor.call("session/delete", {"sessionId": first})
            await until(sessions, first, "gone")


async def test_a_list_can_be_narrowed(journal: Path, tmp_path: Path) -> None:
    async with wrapped(journal) as editor:
        ids = []
        for words in ("red apples", "green apples"):
            ids.append(await editor.new())
            await editor.call(
                "session/prompt",
                {"sessionId": ids[-1], "prompt": [{"type": "text", "text": words}]},
            )
    async with acphold.open(str(journal)) as history:
        assert [it.id async for it in history.sessions(words="Apples RED")] == ids[:1]
        assert [it.id async for it in history.sessions(cwd="/nowhere")] == []
        async with aclosing(history.sessions(follow=True, words="green")) as sessions:
            assert (await anext(sessions)).id == ids[1]


@pytest.mark.parametrize("answer", ["go", False])
async def test_a_question_is_answered_by_whoever_follows_them(journal: Path, answer: Any) -> None:
    async with wrapped(journal) as editor, acphold.open(str(journal)) as history:
        editor.answers["session/request_permission"] = lambda _: asyncio.Future()
        session = await editor.new()
        turn = editor.begin_prompt(session, ASK)
        async with aclosing(history.questions(follow=True)) as questions:
            async with asyncio.timeout(DEADLINE):
                question = await anext(questions)
        assert (question.title, question.session.id) == ("Edit /a", session)
        assert isinstance(question.about, acphold.PermissionQuestion)
        assert question.about.tool_call.kind == "edit"
        with pytest.raises(DeclarationError):
            await question.answer("maybe")
        assert await question.answer(answer)
        await turn
        assert [it async for it in history.questions()] == []


async def test_without_a_place_it_is_the_journal_of_acphold(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wrapped(journal) as editor:
        session = await editor.new()
        await editor.prompt(session, {"say": "Hello"})
    monkeypatch.setenv("ACPHOLD_JOURNAL", str(journal))
    async with acphold.open() as history:
        assert [it.id async for it in history.sessions()] == [session]


async def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(JournalError):
        async with acphold.open(tmp_path / "journal.db") as history:
            [it async for it in history.sessions()]
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - a folder of ours
