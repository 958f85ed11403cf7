"""Sub-agents in the history: folded, compacted, taken in from files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.children import DEEPEST, within
from acphold.conversation.history.compaction import compact
from acphold.conversation.history.entries import Segment
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import Message, SubAgent, ToolCall

Raw = tuple[str, bytes]


def update(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": kind, **fields}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def said(words: str, **fields: Any) -> dict[str, Any]:
    return update("agent_message_chunk", content=text(words), **fields)


def own(body: dict[str, Any]) -> Raw:
    return "update", json.dumps(body).encode()


def of(child: str, body: dict[str, Any]) -> Raw:
    return "child", json.dumps({"sessionId": child, "update": body}).encode()


def opencodes(child: str, **fields: Any) -> Raw:
    params = {"rootSessionId": "s", "parentSessionId": "s", "childSessionId": child, **fields}
    raw = {"method": "opencode/session/child_update", "params": params}
    return "child", json.dumps(raw).encode()


def announced(child: str, **fields: Any) -> dict[str, Any]:
    return update("subagent_update", sessionId=child, **fields)


def segments(*entries: Raw) -> list[Segment]:
    return [Segment(seq, seq, kind, 0, raw) for seq, (kind, raw) in enumerate(entries, 1)]


def folded(found: list[Segment], state: SessionState | None = None) -> SessionState:
    entries = [entry for segment in found for entry in segment.entries()]
    return fold(entries) if state is None else fold(entries, state)


def test_what_is_said_in_a_sub_agent_stands_in_it_and_not_in_the_session() -> None:
    state = folded(
        segments(
            own(said("mine")),
            own(announced("kid", title="Explorer", state={"state": "running"})),
            of("kid", said("its ")),
            own(said("mine, too")),
            of("kid", said("own")),
            of("kid", update("current_mode_update", currentModeId="plan")),
        )
    )
    first, kid, second = state.timeline
    assert isinstance(kid, SubAgent)
    [message] = kid.timeline
    assert isinstance(message, Message)
    assert (message.text, kid.title, kid.status) == ("its own", "Explorer", "running")
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert (first.text, second.text) == ("mine", "mine, too")
    assert state.attributes.current_mode_id is None


@pytest.mark.parametrize("spelling", ["update", "spawned", "opencode"])
def test_each_spelling_says_what_it_is_called_and_how_it_ended(spelling: str) -> None:
    begin, end = {
        "update": (
            own(announced("kid", title="E", state={"state": "running"})),
            own(announced("kid", state={"state": "idle", "stopReason": "cancelled"})),
        ),
        "spawned": (
            own(update("subagent_spawned", subagentSessionId="kid", name="E")),
            own(update("subagent_state_update", subagentSessionId="kid", state="cancelled")),
        ),
        "opencode": (
            opencodes("kid", type="status", status="created", title="E"),
            opencodes("kid", type="status", status="interrupted"),
        ),
    }[spelling]
    [open_child] = folded(segments(begin)).open_children
    assert (open_child.session_id, open_child.spelling, open_child.is_at_work) == (
        "kid",
        spelling,
        True,
    )
    state = folded(segments(begin, end))
    [kid] = state.timeline
    assert isinstance(kid, SubAgent)
    assert (kid.title, kid.status, kid.stop_reason) == ("E", "idle", "cancelled")
    assert state.open_children == ()


@pytest.mark.parametrize(
    "announcement",
    [
        announced("kid", title="E", description="look around"),
        update("subagent_spawned", subagentSessionId="kid", name="E", task="look around"),
    ],
)
def test_each_announcement_says_what_the_sub_agent_is_to_do(announcement: dict[str, Any]) -> None:
    [kid] = folded(segments(own(announcement))).timeline
    assert isinstance(kid, SubAgent)
    assert (kid.title, kid.description) == ("E", "look around")


def test_a_task_stands_in_the_sub_agent_that_it_is_given_to() -> None:
    given_to = update(
        "session_message",
        messageId="m",
        senderSessionId="s",
        recipientSessionId="kid",
        recipientMessageId="theirs",
    )
    heard = update("session_message", messageId="theirs", recipientSessionId="kid")
    [kid] = folded(
        segments(
            own(announced("kid")),
            own({**given_to, "content": [text("Look ")]}),
            own(update("session_message_chunk", messageId="m", content=text("there"))),
            of("kid", {**heard, "content": [text("Look there!")]}),
        )
    ).timeline
    assert isinstance(kid, SubAgent)
    [task] = kid.timeline
    assert isinstance(task, Message)
    assert (task.role, task.text) == ("user", "Look there!")


def test_sub_agents_lie_in_one_another_only_so_deep() -> None:
    nested = [of(f"k{n}", announced(f"k{n + 1}")) for n in range(5 * DEEPEST)]
    state = folded(segments(own(announced("k0")), *nested))

    def depth(item: Any) -> int:
        return 1 + max(map(depth, item.timeline), default=0)

    assert max(map(depth, state.timeline)) == DEEPEST


children = st.sampled_from(["a", "b"])
updates = st.one_of(
    st.builds(said, st.text("xy", min_size=1)),
    st.builds(lambda words: said(words, messageId="m"), st.text("xy", min_size=1)),
    st.just(update("tool_call", toolCallId="t", title="T")),
    st.just(update("tool_call_update", toolCallId="t", status="completed")),
    st.builds(lambda child: announced(child, state={"state": "running"}), children),
    st.builds(lambda child: announced(child, state={"state": "idle"}), children),
    st.just(update("notice", severity="info", title="n")),
    st.just(update("plan", entries=[])),
)
entries = st.one_of(
    st.builds(own, updates),
    st.builds(of, children, updates),
    st.builds(lambda body: opencodes("o", type="update", update=body), updates),
    st.just(opencodes("o", type="status", status="running")),
    st.just(("prompt", b"[]")),
    st.just(("turn_end", b"{}")),
)


@given(st.lists(entries, max_size=30))
def test_compacted_entries_of_sub_agents_fold_to_the_same_state(told: list[Raw]) -> None:
    found = segments(*told)
    compacted = compact(found)
    assert [segment.first_seq for segment in compacted][:1] == [1][: len(found)]
    assert folded(compacted) == folded(found)


@given(st.lists(entries, max_size=20), st.integers(0, 20))
def test_a_fold_goes_on_from_any_state_as_if_it_had_folded_all(told: list[Raw], cut: int) -> None:
    found = segments(*told)
    assert folded(found[cut:], folded(found[:cut])) == folded(found)


def test_what_one_sub_agent_says_becomes_one_entry_however_several_take_turns() -> None:
    told = [of(child, said(f"{n}")) for n in range(50) for child in ("a", "b")]
    assert sum(segment.raw.count(b"\n") + 1 for segment in compact(segments(*told))) == 2


def test_a_tool_call_of_a_sub_agent_is_not_that_of_the_session() -> None:
    state = folded(
        segments(
            own(update("tool_call", toolCallId="t", title="mine")),
            of("kid", update("tool_call", toolCallId="t", title="its", status="completed")),
        )
    )
    assert state.open_tools == ("t",)
    mine, kid = state.timeline
    assert isinstance(mine, ToolCall)
    assert mine.title == "mine"
    assert isinstance(kid, SubAgent)


def test_a_file_can_name_no_session_but_its_own() -> None:
    kind, raw = of("victim", announced("other", title="x"))
    taken = json.loads(within("s", kind, raw))
    assert taken["sessionId"] == "s:victim"
    assert taken["update"]["sessionId"] == "s:other"
    assert (
        within("s", kind, json.dumps(taken).encode())
        == json.dumps(taken, separators=(",", ":")).encode()
        or json.loads(within("s", kind, json.dumps(taken).encode())) == taken
    )
    _, raw = opencodes("victim", type="status")
    params = json.loads(within("mine", "child", raw))["params"]
    assert (params["rootSessionId"], params["childSessionId"]) == ("mine", "mine:victim")
    assert json.loads(within("s", *own(announced("victim"))))["sessionId"] == "s:victim"
