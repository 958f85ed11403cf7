"""The state that a client has of a session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from acphold.client.remote_turn import LiveState
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import fold
from acphold.conversation.history.replay import turn_mark
from acphold.conversation.history.timeline import Message, ToolCall, TurnEnd


def raw(kind: str, **members: Any) -> bytes:
    """One update."""
    return json.dumps({"sessionUpdate": kind, **members}).encode()


def said(text: str, kind: str = "agent_message_chunk", **members: Any) -> bytes:
    """A chunk of text."""
    return raw(kind, content={"type": "text", "text": text}, **members)


def prompt(*texts: str) -> bytes:
    """The `prompt` of a request."""
    return json.dumps([{"type": "text", "text": text} for text in texts]).encode()


STATUS = st.sampled_from(["pending", "in_progress", "completed", "failed"])
UPDATES = st.lists(
    st.one_of(
        st.builds(said, st.text("ab", max_size=3)),
        st.builds(said, st.text("ab", max_size=3), st.just("agent_thought_chunk")),
        st.builds(
            lambda tool, status: raw("tool_call", toolCallId=tool, title="T", status=status),
            st.sampled_from("xy"),
            STATUS,
        ),
        st.builds(
            lambda tool, status: raw("tool_call_update", toolCallId=tool, status=status),
            st.sampled_from("xyz"),
            STATUS,
        ),
        st.builds(lambda title: raw("session_info_update", title=title), st.text("t", max_size=2)),
    ),
    max_size=12,
)


@given(UPDATES)
def test_without_turns_it_is_the_journals_fold(raws: list[bytes]) -> None:
    live = LiveState()
    live.hear("update", raws)
    assert live.value == fold(Entry(seq, "update", 0, raw) for seq, raw in enumerate(raws, 1))


@pytest.mark.parametrize(
    "end",
    [
        TurnEnd("interrupted", 0),
        TurnEnd("unanswered", 0),
        TurnEnd("failed", 0, message="out of order"),
        TurnEnd("cancelled", 0, "cancelled"),
        TurnEnd("refused", 0, "refusal"),
        TurnEnd("limited", 0, "max_tokens"),
        TurnEnd("limited", 0, "end_turn", "in an hour", 4_000_000_000_000),
    ],
)
def test_an_end_that_a_replay_marks_is_what_the_agent_has(end: TurnEnd) -> None:
    live = LiveState()
    live.hear("update", [said("Hello", "user_message_chunk"), turn_mark(end)])
    assert replace(live.value.timeline[-1], at_ms=0) == end
    was_cut = end.outcome == "interrupted"
    assert live.value.turn == ("interrupted" if was_cut else "idle")
    live.hear("update", [said("Hello again", "user_message_chunk", messageId="2")])
    assert live.value.turn == "idle"


def test_prompts_and_ends_of_turns_are_on_the_timeline() -> None:
    live = LiveState()
    first = live.begin_turn(prompt("hello"))
    assert (live.value.turn, live.value.turns) == ("running", 1)
    live.hear("update", [said("hi")])
    behind = live.end_turn(b'{"stopReason":"refusal"}')
    assert live.value.turn == "idle"
    user, agent, end = live.items(first, behind)
    assert isinstance(user, Message)
    assert (user.role, user.text) == ("user", "hello")
    assert isinstance(agent, Message)
    assert agent.text == "hi"
    assert isinstance(end, TurnEnd)
    assert end.outcome == "refused"


def test_a_prompt_that_the_agent_sends_back_is_there_once() -> None:
    live = LiveState()
    live.begin_turn(prompt("hello ", "you"))
    live.hear("update", [said("hello you", "user_message_chunk"), said("hi")])
    live.hear("update", [said("hello ", "user_message_chunk")])
    assert [item.text for item in live.value.timeline if isinstance(item, Message)] == [
        "hello you",
        "hi",
    ]
    live.end_turn(b'{"stopReason":"end_turn"}')
    live.hear("update", [said("hello you", "user_message_chunk")])  # of another client, then
    assert isinstance(live.value.timeline[-1], Message)


def test_a_prompt_is_never_part_of_a_message_that_was_replayed() -> None:
    live = LiveState()
    ours = [said("before", "user_message_chunk", messageId=f"acphold-{n}") for n in range(-3, 5)]
    live.hear("update", [ours[4]])
    for number in range(4):
        live.begin_turn(prompt(f"new {number}"))
        live.end_turn(b'{"stopReason":"end_turn"}')
    texts = [item.text for item in live.value.timeline if isinstance(item, Message)]
    assert texts == ["before", "new 0", "new 1", "new 2", "new 3"]


def test_cancelling_marks_what_is_not_finished_until_the_agent_says_how_it_ended() -> None:
    live = LiveState()
    live.hear(
        "update",
        [
            raw("tool_call", toolCallId="done", title="D", status="completed"),
            raw("tool_call", toolCallId="runs", title="R", status="in_progress"),
            raw("tool_call", toolCallId="waits", title="W"),
        ],
    )
    live.cancel_tools()
    assert statuses(live) == {"done": "completed", "runs": "cancelled", "waits": "cancelled"}
    assert live.value.open_tools == ()
    live.hear("update", [raw("tool_call_update", toolCallId="runs", status="completed")])
    assert statuses(live)["runs"] == "completed"
    live.hear("update", [raw("tool_call_update", toolCallId="waits", title="Still")])
    assert statuses(live)["waits"] == "cancelled"


def statuses(live: LiveState) -> dict[str, str]:
    """Of all tool calls, by id."""
    tools = [item for item in live.value.timeline if isinstance(item, ToolCall)]
    return {tool.tool_call_id: tool.status for tool in tools}
