"""The inbox: everything that waits for a person over all sessions, and past decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acphold.conversation.history.decisions import answer_entry
from acphold.conversation.history.entries import ANSWER, QUESTION, Origin
from acphold.journal.rows import NewSession, RowChange
from acphold.journal.stores import open_journal
from acphold.live.reading.inbox import ALL, InboxQuestion, Whose, decisions, open_questions
from acphold.live.reading.json_facts import question_json
from acphold.live.reading.processes import live_anywhere
from tests.editor import DEADLINE
from tests.served import wrapped

OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]


def ask(call: str, **tool: Any) -> dict[str, Any]:
    """A step: the agent asks whether it may."""
    request = {"toolCall": {"toolCallId": call, **tool}, "options": OPTIONS}
    return {"ask": ["session/request_permission", request]}


def called(call: str, **tool: Any) -> dict[str, Any]:
    """A step: the agent tells of a tool call."""
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": call, **tool}}


@asynccontextmanager
async def reading(journal: Path) -> AsyncIterator[Any]:
    """The journal, for the block."""
    kept = open_journal(journal)
    try:
        yield kept
    finally:
        await kept.aclose()


async def waiting(kept: Any, count: int, only: Whose = ALL) -> list[InboxQuestion]:
    """Return the open questions as soon as there are `count`."""
    async with asyncio.timeout(DEADLINE):
        while len(found := await open_questions(kept, await live_anywhere(kept), only)) != count:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)
    return found


async def test_every_open_question_is_there_with_all_that_was_said_of_its_call(
    journal: Path,
) -> None:
    async with wrapped(journal) as editor, reading(journal) as kept:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        editor.answers["session/request_permission"] = lambda _: answer
        first, second = await editor.new(), await editor.new()
        diff = {"type": "diff", "path": "/a", "oldText": "1\n", "newText": "2\n"}
        told = called("t1", title="Edit /a", kind="edit", content=[diff])
        turn = editor.begin_prompt(first, told, {"say": "May I?"}, ask("t1", status="pending"))
        await waiting(kept, 1)
        other = editor.begin_prompt(second, ask("t2", title="Run", rawInput={"command": "make"}))
        oldest, newest = await waiting(kept, 2)
        assert (oldest.row.session_id, newest.row.session_id) == (first, second)
        assert (oldest.asks, newest.asks) == ("Edit /a", "Run")
        facts = json.loads(question_json(oldest))
        assert facts["toolCall"]["content"] == [diff]
        assert facts["params"]["options"] == OPTIONS
        assert facts["place"] == f"{first}@{oldest.seq}"
        assert [it.asks for it in await waiting(kept, 1, Whose(session_id=second))] == ["Run"]
        answer.set_result({"outcome": {"outcome": "selected", "optionId": "stop"}})
        await turn
        await other
        assert await waiting(kept, 0) == []
        found, following = await decisions(kept, await live_anywhere(kept), 5)
        assert following is None
        assert {(it.asks, it.row.session_id) for it in found} == {
            ("Edit /a", first),
            ("Run", second),
        }
        facts = json.loads(question_json(found[0]))
        assert (facts["how"], facts["said"], facts["outcome"]) == (
            "reject_once",
            "Stop it",
            "answered",
        )
    async with reading(journal) as kept:  # the turns are put in order now
        assert {it.asks for it in (await decisions(kept, await live_anywhere(kept), 5))[0]} == {
            "Edit /a",
            "Run",
        }


async def test_decisions_are_read_page_by_page_each_once_over_all_sessions(journal: Path) -> None:
    async with wrapped(journal) as editor, reading(journal) as kept:
        for number in range(3):
            steps = [ask(f"t{number}{step}", title=f"{number}{step}") for step in range(3)]
            await editor.talk(*steps)
        one = await editor.talk(ask("t9", title="alone"))
        found: list[str] = []
        before: int | None = None
        async with asyncio.timeout(DEADLINE):
            while True:
                page, before = await decisions(kept, await live_anywhere(kept), 2, before)
                found += [each.asks for each in page]
                if before is None:
                    break
        assert found[0] == "alone"
        assert sorted(found) == sorted([*(f"{n}{m}" for n in range(3) for m in range(3)), "alone"])
        alone, _ = await decisions(kept, {}, 9, None, Whose(session_id=one))
        assert [each.asks for each in alone] == ["alone"]


async def test_what_is_asked_elsewhere_or_left_by_a_crash_is_not_open(journal: Path) -> None:
    async with wrapped(journal) as editor, reading(journal) as kept:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        editor.answers["session/request_permission"] = lambda _: never
        session_id = await editor.new()
        editor.begin_prompt(session_id, ask("t1", title="Run"))
        await waiting(kept, 1)
        async with reading(journal.with_name("other.db")) as other:
            assert await live_anywhere(other) == {}
            assert await open_questions(other, {}) == []
    async with reading(journal) as kept:
        assert await open_questions(kept, await live_anywhere(kept)) == []
        (gone,), _ = await decisions(kept, await live_anywhere(kept), 5)
        assert gone.decided is not None
        assert gone.decided.outcome == "cancelled"


async def test_a_decision_is_told_once_however_often_its_session_was_copied(journal: Path) -> None:
    params = {"toolCall": {"toolCallId": "t1", "title": "Run"}, "options": OPTIONS}
    asked = {"id": "q1", "method": "session/request_permission", "params": params}
    came = answer_entry("q1", "answered", result=b'{"outcome":{"optionId":"go"}}')
    copied = Origin("first", "scripted", 2)
    async with reading(journal) as kept:
        for name, origins in (("copy", (copied,)), ("first", ()), ("other", (copied, copied))):
            lease = await kept.create(NewSession(name, "scripted", "/", origins=origins))
            for kind, raw in ((QUESTION, json.dumps(asked).encode()), (ANSWER, came)):
                await kept.append(lease, [(kind, [raw])])
            await kept.change(lease, RowChange(prompted=True))
            await kept.settle(lease, lease.next_seq - 1)
        for whose, told in ((ALL, "first"), (Whose(session_id="copy"), "copy")):
            (found,), following = await decisions(kept, {}, 1, None, whose)
            assert (found.row.session_id, following) == (told, None)
