"""A timeline as models are told it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acp_wire.schema import decode_blocks
from acphold.bridges.conversation import (
    BEGINNING,
    CANCELLED,
    CUT_OFF,
    INTERRUPTED,
    ModelInput,
    Response,
    call,
    conversation,
    text,
)
from acphold.conversation.history.timeline import ToolCall
from tests.bridges.conversations import EVERYTHING, ID, NAME, called, end, prompt, said, timeline


def told(*happened: Any) -> list[str]:
    """Each step in a few words."""
    lines = []
    for step in conversation(timeline(*happened)):
        match step:
            case ModelInput():
                lines.append("user: " + " ".join(map(text, step.blocks)))
            case Response():
                words = [f"{role}: {text(block)}" for role, block in step.parts]
                calls = [
                    f"{it.name} {it.arguments} -> {it.outcome}: {it.result}" for it in step.calls
                ]
                lines.append(" | ".join([*words, *calls]))
    return lines


def test_a_call_has_its_result_and_what_is_said_behind_it_is_another_response() -> None:
    assert told(
        prompt("Read"),
        said("hm", "agent_thought_chunk"),
        said("I read."),
        called("t", name="read", rawInput={"path": "a"}, rawOutput={"lines": 2}),
        called("u", name="list", rawOutput="none"),
        said("Two lines."),
        end(),
    ) == [
        "user: Read",
        "thought: hm | agent: I read. | read {'path': 'a'} -> success: {\"lines\": 2}"
        " | list {} -> success: none",
        "agent: Two lines.",
    ]


def test_a_call_without_a_result_gets_one() -> None:
    assert told(
        prompt("Go"), called("t", status="in_progress", kind="execute"), end("cancelled")
    ) == ["user: Go", f"execute {{}} -> interrupted: {CUT_OFF}", f"user: {CANCELLED}"]


def test_what_a_tool_showed_is_its_result_where_it_has_no_output() -> None:
    diff = {"type": "diff", "path": "/w/a", "newText": "x"}
    shown = {"type": "content", "content": {"type": "text", "text": "4 lines"}}
    [_, line] = told(prompt("Go"), called("t", status="failed", content=[shown, diff]))
    assert line == "other {} -> failed: 4 lines\n/w/a was changed."
    [_, line] = told(prompt("Go"), called("t"))
    assert line == "other {} -> success: The call has succeeded."


def test_a_refused_turn_is_left_out() -> None:
    assert told(prompt("Bad"), said("No."), end("refusal"), prompt("Good"), said("Yes.")) == [
        "user: Good",
        "agent: Yes.",
    ]


def test_turns_that_did_not_end_well_say_so() -> None:
    crash = ("turn_end", {"interrupted": True})
    failed = ("turn_end", {"error": {"code": 1, "message": "secret"}})
    assert told(prompt("One"), crash, prompt("Two"), said("Half"), failed, prompt("Three")) == [
        f"user: One {INTERRUPTED} Two",
        "agent: Half",
        f"user: {INTERRUPTED} Three",
    ]


def test_a_summary_stands_for_what_was_before_it() -> None:
    compacted = {
        "sessionUpdate": "compaction_update",
        "compactionId": "c",
        "status": "completed",
        "summary": [{"type": "text", "text": "They said hello."}],
    }
    before = [prompt("Hello"), said("Hello!"), end()]
    after = [prompt("And now?"), said("Bye.")]
    assert told(*before, compacted, *after) == ["user: They said hello. And now?", "agent: Bye."]
    untold = {**compacted, "summary": None}
    assert told(*before, untold, *after)[0] == "user: Hello"


def test_the_first_to_speak_is_a_person_and_nothing_is_empty() -> None:
    assert told(said(" "), said("Hello")) == [f"user: {BEGINNING}", "agent:  Hello"]
    assert told(prompt("Go"), said("\n\n"), end()) == ["user: Go"]
    assert told() == []


def test_names_and_ids_are_such_as_services_take() -> None:
    calls = [
        it for step in conversation(EVERYTHING) if isinstance(step, Response) for it in step.calls
    ]
    assert all(ID.fullmatch(it.id) and NAME.fullmatch(it.name) for it in calls)
    same = [called("a/b"), called("a.b"), called("x" * 80 + "1"), called("x" * 80 + "2")]
    [_, step] = conversation(timeline(prompt("Go"), *same))
    assert isinstance(step, Response)
    assert len({it.id for it in step.calls}) == 4
    assert NAME.fullmatch(call(ToolCall("", {"name": '"é ☃"'.encode() * 1})).name)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "resource_link", "name": "a", "uri": "file:///a"}, "[a](file:///a)"),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}},
            '<file uri="file:///a">\nx\n</file>',
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}},
            "(a file: file:///a)",
        ),
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/ogg"}, "(audio/ogg)"),
        ({"type": "hologram"}, "(hologram)"),
    ],
)
def test_what_has_no_place_in_a_message_is_put_into_words(
    block: dict[str, Any], words: str
) -> None:
    [found] = decode_blocks(json.dumps([block]).encode()).value
    assert text(found) == words
