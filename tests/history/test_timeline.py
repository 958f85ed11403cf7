"""The typed items of a timeline, as programs read them."""

from __future__ import annotations

import json
from typing import Any

from acp_wire import schema
from acp_wire.schema import Content, Diff, Terminal, UnknownContent
from acphold.conversation.history.entries import UPDATE, Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import (
    Message,
    ToolCall,
    answer_in,
    end_entry,
    turn_end,
)


def state_of(*updates: dict[str, Any]) -> SessionState:
    """The state of a session in which this was said."""
    return fold(
        Entry(seq, UPDATE, 0, json.dumps(update).encode()) for seq, update in enumerate(updates, 1)
    )


DIFF = {"type": "diff", "path": "/w/a.txt", "oldText": "one", "newText": "two"}
TEXT = {"type": "content", "content": {"type": "text", "text": "done"}}


def test_a_tool_call_has_its_values_and_their_bytes() -> None:
    state = state_of(
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "t",
            "title": "Edit a.txt",
            "name": "edit",
            "rawInput": {"path": "a.txt"},
            "locations": [{"path": "/w/a.txt", "line": 3}],
        },
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "t",
            "status": "completed",
            "content": [DIFF, TEXT, {"type": "terminal", "terminalId": "x"}],
            "rawOutput": ["ok"],
        },
    )
    [call] = state.timeline
    assert isinstance(call, ToolCall)
    assert (call.name, call.input, call.output) == ("edit", {"path": "a.txt"}, ["ok"])
    assert (call.raw_input, call.raw_output) == (b'{"path": "a.txt"}', b'["ok"]')
    assert call.diffs == (Diff(path="/w/a.txt", old_text="one", new_text="two"),)
    assert call.blocks == (schema.TextContent(text="done"),)
    assert [type(part) for part in call.produced] == [Diff, Content, Terminal]
    assert call.locations == (schema.ToolCallLocation(path="/w/a.txt", line=3),)
    assert repr(call) == "<ToolCall 't' completed: 'Edit a.txt'>"


def test_a_tool_call_of_which_nothing_is_told_has_no_values() -> None:
    call = ToolCall("t", {})
    assert (call.name, call.input, call.output, call.raw_input) == (None, None, None, None)
    assert (call.diffs, call.blocks, call.locations, call.content) == ((), (), (), [])


def test_values_that_cannot_be_read_are_none() -> None:
    deep = b"[" * 100_000
    call = ToolCall("t", {"name": b"5", "rawInput": deep, "content": b'[{"type":"diff"}]'})
    assert (call.name, call.input, call.diffs) == (None, None, ())
    assert call.raw_input is deep


def test_a_message_has_its_blocks_and_their_bytes() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    newer = {"type": "hologram", "data": "x"}
    state = state_of(
        *(
            {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content}
            for content in (
                {"type": "text", "text": "a "},
                {"type": "text", "text": "word"},
                image,
                newer,
                {"type": "image"},
            )
        )
    )
    [message] = state.timeline
    assert isinstance(message, Message)
    text, picture, unknown, broken = message.blocks
    assert text == schema.TextContent(text="a word")
    assert picture == schema.ImageContent(data="aGk=", mime_type="image/png")
    assert isinstance(unknown, UnknownContent)
    assert (unknown.kind, json.loads(unknown.raw)) == ("hologram", newer)
    assert isinstance(broken, UnknownContent)
    assert [json.loads(raw)["type"] for raw in message.content] == [
        "text",
        "image",
        "hologram",
        "image",
    ]
    assert repr(message) == "<Message of agent: 'a word'>"


def test_the_plan_is_typed_and_its_steps_are_those_that_authors_make() -> None:
    steps = [
        {"content": "Look", "priority": "high", "status": "completed"},
        {"content": "of a later release"},
    ]
    state = state_of({"sessionUpdate": "plan", "entries": steps})
    assert state.plan == (schema.PlanEntry(content="Look", priority="high", status="completed"),)
    assert json.loads(state.attributes.plan or b"") == steps
    assert state_of().plan == ()


def test_an_odd_answer_of_an_agent_is_the_answer_in_the_end_of_its_turn() -> None:
    for odd in (
        b'{"stopReason":5}',
        b'{"stopReason":null}',
        b'{"stopReason":"end_turn","error":"none"}',
    ):
        assert answer_in(odd) == odd


def test_no_answer_of_an_agent_tells_that_acphold_failed_or_crashed() -> None:
    for cut_off in (b"true", b"null"):
        answer = b'{"stopReason":"end_turn","interrupted":%b,"error":{"code":1,"message":"m"}}'
        assert turn_end(end_entry(answer % cut_off), 0).outcome == "completed"
    assert end_entry(b'{"stopReason": "end_turn"}') == b'{"stopReason": "end_turn"}'
