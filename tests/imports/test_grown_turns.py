"""What comes to a turn after it was taken in: the work of a subagent that goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from acphold.conversation.history.timeline import Message, ToolCall
from acphold.imports import Intake, reader, session_writer
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from tests.imports import test_gemini, test_qwen
from tests.imports.claude_home import Transcript, use
from tests.imports.every_reader import found
from tests.imports.told import write_lines


def claude(home: Path, turns: int, steps: int) -> None:
    transcript = Transcript("Delegate.")
    transcript.assistant(use("t1", "Agent", description="Helper", prompt="Count."))
    transcript.result("t1", "Started", toolUseResult={"agentId": "abc"})
    for _ in range(turns - 1):
        transcript.user("Meanwhile.")
        transcript.assistant("Yes.")
    folder = transcript.write(home).with_suffix("") / "subagents"
    child = Transcript(count=500)
    child.user("Count.", isSidechain=True)
    for n in range(steps):
        child.assistant(use(f"s{n}", "Bash", command=f"step {n}"), isSidechain=True)
        child.result(f"s{n}", "ok", isSidechain=True)
    write_lines(folder / "agent-abc.jsonl", *child.records)


def gemini(home: Path, turns: int, steps: int) -> None:
    log = test_gemini.Log()
    log.user("u1", "Delegate.")
    asked = test_gemini.call("c1", "invoke_agent", description="Helper")
    log.message("g1", "gemini", "", toolCalls=[asked])
    for _ in range(turns - 1):
        log.user("u2", "Meanwhile.")
        log.message("g2", "gemini", "Yes.")
    path = log.write(home)
    child = test_gemini.Log("child")
    child.user("x1", "Count.")
    for n in range(steps):
        called = test_gemini.call(f"s{n}", "run_shell_command", description=f"step {n}")
        child.message(f"y{n}", "gemini", "", toolCalls=[called])
    write_lines(path.parent / test_gemini.SESSION / "child.jsonl", *child.lines)


def qwen(home: Path, turns: int, steps: int) -> None:
    chat = test_qwen.Chat("Delegate.")
    chat.agent(test_qwen.use("call_1", "agent", description="Helper"))
    chat.result("call_1", {"type": "task_execution"}, output="Started")
    for _ in range(turns - 1):
        chat.user("Meanwhile.")
        chat.agent("Yes.")
    path = chat.write(home)
    child = test_qwen.Chat(count=100)
    child.user("Count.")
    for n in range(steps):
        child.agent(test_qwen.use(f"s{n}", "run_shell_command", command=f"step {n}"))
        child.result(f"s{n}", None, output="ok")
    folder = path.parent.parent / "subagents" / test_qwen.SESSION
    write_lines(folder / "agent-general-call_1.jsonl", *child.records)


@pytest.mark.parametrize("is_read_on", [False, True])
@pytest.mark.parametrize("turns", [[1, 1], [2, 2], [1, 2]])
@pytest.mark.parametrize("make", [claude, gemini, qwen])
async def test_what_a_subagent_does_after_its_turn_was_taken_in_is_told_in_that_turn(
    make: Callable[[Path, int, int], None],
    turns: list[int],
    is_read_on: bool,
    opened: Journal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_read_on:
        monkeypatch.setattr(session_writer, "WORTH_CHECKING", 0)
    for count, steps in zip([*turns, turns[1]], [1, 3, 3], strict=True):
        make(tmp_path, count, steps)
        (source,) = found(make.__name__, tmp_path)
        outcome = (await Intake(opened).take(source, reader(make.__name__))).outcome
    assert outcome == "same"
    (row,) = await opened.page(ListFilter())
    told = [
        item.text if isinstance(item, Message) else item.title.rpartition(" ")[2]
        for item in (await state_of(opened, row.session_id)).timeline
        if isinstance(item, Message | ToolCall)
    ]
    meanwhile = ["Meanwhile.", "Yes."] * (turns[1] - 1)
    assert told[0] == "Delegate."
    assert told[2:] == ["0", "1", "2", *meanwhile]


def helpers(home: Path, *steps: int, more: tuple[str, ...] = ()) -> None:
    """Turns that each start a subagent in the background, each at a step of its own."""
    transcript = Transcript("Begin.")
    transcript.assistant("Yes.")
    for n in range(len(steps)):
        transcript.user(f"Delegate {n}.")
        transcript.assistant(use(f"t{n}", "Agent", description="Helper", prompt=f"Count {n}."))
        transcript.result(f"t{n}", "Started", toolUseResult={"agentId": f"a{n}"})
    for words in more:
        transcript.user(words)
        transcript.assistant("Yes.")
    folder = transcript.write(home).with_suffix("") / "subagents"
    for n, count in enumerate(steps):
        child = Transcript(count=500 + 200 * n)
        child.user(f"Count {n}.", isSidechain=True)
        for step in range(count):
            child.assistant(use(f"s{n}{step}", "Bash", command=f"step {step}"), isSidechain=True)
            child.result(f"s{n}{step}", "ok", isSidechain=True)
        write_lines(folder / f"agent-a{n}.jsonl", *child.records)


async def calls_after(journal: Journal, home: Path, *steps: int, more: tuple[str, ...] = ()) -> str:
    """The titles of all calls after an import."""
    helpers(home, *steps, more=more)
    (source,) = found("claude", home)
    await Intake(journal).take(source, reader("claude"))
    timeline = (await state_of(journal, source.session_id)).timeline
    return " ".join(item.title for item in timeline if isinstance(item, ToolCall))


async def test_subagents_of_several_turns_go_on_by_turns(opened: Journal, tmp_path: Path) -> None:
    for steps in [(1, 1), (1, 3), (2, 3), (2, 4), (3, 4)]:
        told = [" ".join(["Helper", *(f"step {n}" for n in range(count))]) for count in steps]
        assert await calls_after(opened, tmp_path, *steps) == " ".join(told)


async def test_what_was_said_here_stays_as_it_was_when_a_turn_before_it_grows(
    opened: Journal, tmp_path: Path
) -> None:
    await calls_after(opened, tmp_path, 1)
    (row,) = await opened.page(ListFilter())
    lease = await opened.acquire(row.session_id)
    call = {"sessionUpdate": "tool_call", "toolCallId": "here", "title": "Only here"}
    await opened.append(lease, [("prompt", [b'[{"type":"text","text":"Said here."}]'])])
    await opened.append(lease, [("update", [json.dumps(call).encode()])])
    await opened.append(lease, [("turn_end", [b'{"stopReason":"end_turn"}'])])
    await opened.release(lease)
    for count, more in [(1, ("Said here.",)), (2, ("Said here.", "More."))]:
        assert "Only here" in await calls_after(opened, tmp_path, count, more=more)


async def test_a_step_far_back_is_told_once_it_is_worth_it_or_the_source_rests(
    opened: Journal, tmp_path: Path
) -> None:
    more = tuple(f"Meanwhile {n}." for n in range(70))
    at_first = await calls_after(opened, tmp_path, 1, more=more)
    (row,) = await opened.page(ListFilter())
    for count in (2, 2):
        assert await calls_after(opened, tmp_path, count, more=more) == at_first
    assert (await opened.session(row.session_id)).last_seq < row.last_seq + 5
    helpers(tmp_path, 2, more=(*more, "At the end."))
    (source,) = found("claude", tmp_path)
    for path in source.paths:
        with suppress(FileNotFoundError):  # no program writes all of them each time
            os.utime(path, (0, 0))
    (source,) = found("claude", tmp_path)
    assert (await Intake(opened).take(source, reader("claude"))).outcome == "grown"
    assert (await calls_after(opened, tmp_path, 2, more=(*more, "At the end."))).count("step") == 2
    assert (await calls_after(opened, tmp_path, 9, more=(*more, "At the end."))).count("step") == 9
