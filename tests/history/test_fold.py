"""The fold: a conversation's entries in, its state out."""

from __future__ import annotations

import json

from hypothesis import given

from acphold.conversation.history.attributes import (
    NO_ATTRIBUTES,
    fold_settings,
    fold_update,
)
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import EMPTY, Fold, SessionState, fold
from acphold.conversation.history.raw_update import update_kind
from acphold.conversation.history.timeline import Message, ToolCall, TurnEnd
from tests.conversations import CONVERSATIONS, chunk, encode, entries_of, segments_of
from tests.history import fold_corpus

Pieces = list[tuple[str, list[bytes]]]


def updates(*values: object) -> SessionState:
    """The state after these updates."""
    return fold(Entry(seq, "update", 0, encode(value)) for seq, value in enumerate(values, 1))


def said(state: SessionState) -> list[tuple[str, str | None, str]]:
    """The messages of the timeline: role, id, text."""
    return [
        (item.role, item.message_id, item.text)
        for item in state.timeline
        if isinstance(item, Message)
    ]


def test_the_kept_sequences_fold_to_what_stands_beside_them() -> None:
    assert fold_corpus.FILE.read_text(encoding="utf-8") == fold_corpus.kept(), (
        "the rules of the fold have changed; if they should, run "
        "`python -m tests.history.fold_corpus`"
    )


def test_a_kept_sequence_folds_alike_from_what_the_server_tells_of_it() -> None:
    lines = fold_corpus.FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) == fold_corpus.KEPT + len(fold_corpus.AGENTS)
    for told in map(json.loads, lines):
        assert fold_corpus.folded(fold_corpus.entries_in(told)) == told["fold"], told["name"]


@given(CONVERSATIONS)
def test_folding_in_two_parts_is_folding_at_once(pieces: Pieces) -> None:
    entries = entries_of(segments_of(pieces))
    whole = fold(entries)
    for cut in range(len(entries)):
        assert fold(entries[cut:], fold(entries[:cut])) == whole


@given(CONVERSATIONS)
def test_attributes_folded_live_are_those_of_the_whole_fold(pieces: Pieces) -> None:
    attributes = NO_ATTRIBUTES
    entries = [entry for entry in entries_of(segments_of(pieces)) if entry.kind == "update"]
    for entry in entries:
        attributes = fold_update(attributes, update_kind(entry.raw), entry.raw)
    assert fold(entries).attributes == attributes


@given(CONVERSATIONS, CONVERSATIONS)
def test_a_fold_never_changes_the_state_it_began_with(one: Pieces, two: Pieces) -> None:
    entries = entries_of(segments_of(one))
    state = fold(entries)
    fold(entries_of(segments_of(two)), state)
    assert state == fold(entries)


@given(CONVERSATIONS)
def test_a_fold_that_is_looked_at_goes_on_as_if_it_had_not_been(pieces: Pieces) -> None:
    entries = entries_of(segments_of(pieces))
    folding = Fold()
    seen = [folding.state()]
    for entry in entries:
        folding.add(entry)
        seen.append(folding.state())
    assert seen == [fold(entries[:count]) for count in range(len(entries) + 1)]


def test_chunks_without_ids_are_one_message_until_something_else_comes_up() -> None:
    state = updates(
        chunk("agent_message", "a"),
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        chunk("agent_message", "b"),
        chunk("agent_thought", "hm"),
        chunk("agent_message", "c"),
        {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"},
        chunk("agent_message", "d"),
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"},
        chunk("agent_message", "e"),
    )
    assert said(state) == [
        ("agent", None, "ab"),
        ("thought", None, "hm"),
        ("agent", None, "c"),
        ("agent", None, "de"),
    ]


def test_chunks_with_one_id_are_one_message_wherever_they_come() -> None:
    state = updates(
        chunk("agent_message", "a", messageId="1"),
        chunk("agent_message", "x", messageId="2"),
        chunk("agent_message", "b", messageId="1"),
        chunk("agent_message", "y"),
    )
    assert said(state) == [("agent", "1", "ab"), ("agent", "2", "x"), ("agent", None, "y")]


def test_content_that_is_not_plain_text_stands_between_the_texts_byte_for_byte() -> None:
    image = b'{"type": "image",  "data": "AA==", "mimeType": "image/png"}'
    raw = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % image
    (message,) = fold(
        [
            Entry(1, "update", 0, encode(chunk("agent_message", "a"))),
            Entry(2, "update", 0, encode(chunk("agent_message", "b", _meta={}))),
            Entry(3, "update", 0, raw),
            Entry(4, "update", 0, encode(chunk("agent_message", "c"))),
        ]
    ).timeline
    assert isinstance(message, Message)
    assert message.content == (
        b'{"type":"text","text":"ab"}',
        image,
        b'{"type":"text","text":"c"}',
    )


def test_a_prompt_is_a_message_of_its_own_and_its_echo_is_none() -> None:
    state = fold(
        [
            Entry(7, "prompt", 0, b'[{"type":"text","text":"Hi"}]'),
            Entry(8, "echo", 0, encode(chunk("user_message", "Hi"))),
            Entry(9, "prompt", 0, b'[{"type":"text","text":"there"}]'),
        ]
    )
    assert said(state) == [("user", "acphold-7", "Hi"), ("user", "acphold-9", "there")]
    assert (state.turn, state.turns) == ("running", 2)


def test_each_field_of_a_tool_call_update_replaces_the_old_one_collections_included() -> None:
    def result(text: str) -> dict[str, object]:
        return {"type": "content", "content": {"type": "text", "text": text}}

    state = updates(
        {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Run", "content": [result("1")]},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [result("2")]},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": None, "title": None},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed", "kind": 5},
    )
    (call,) = state.timeline
    assert isinstance(call, ToolCall)
    assert (call.title, call.status, call.kind) == ("Run", "failed", "other")
    assert [json.loads(item) for item in call.content] == [result("2")]


def test_an_update_of_a_tool_call_never_seen_begins_it() -> None:
    state = updates({"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Late"})
    (call,) = state.timeline
    assert isinstance(call, ToolCall)
    assert (call.tool_call_id, call.title, call.status) == ("t", "Late", "pending")


def test_open_tools_are_those_neither_completed_nor_failed() -> None:
    def call(tool: str, status: str | None) -> dict[str, object]:
        return {"sessionUpdate": "tool_call", "toolCallId": tool, "title": "", "status": status}

    def update(tool: str, status: str) -> dict[str, object]:
        return {"sessionUpdate": "tool_call_update", "toolCallId": tool, "status": status}

    state = updates(
        call("b", None),
        call("a", "in_progress"),
        call("c", "completed"),
        call("d", "pending"),
        update("d", "failed"),
        {"sessionUpdate": "tool_call_update", "toolCallId": "d", "title": "Late"},
    )
    assert state.open_tools == ("a", "b")


def test_attributes_are_the_newest_complete_value_of_each() -> None:
    opened = (
        b'{"modes":{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"code"}]},'
        b'"configOptions":[{"id":"model"}]}'
    )
    state = updates(
        {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
        {"sessionUpdate": "config_option_update", "configOptions": []},
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "x"}]},
        {"sessionUpdate": "plan", "entries": [{"content": "one"}]},
        {"sessionUpdate": "plan", "entries": [{"content": "two"}]},
        {"sessionUpdate": "session_info_update", "title": "T", "updatedAt": "2026-01-01"},
        {"sessionUpdate": "session_info_update", "updatedAt": None},
    )
    begun = fold_settings(state.attributes, opened)
    assert begun.current_mode_id == "ask"
    assert begun.available_modes == b'[{"id":"ask"},{"id":"code"}]'
    assert begun.config_options == b'[{"id":"model"}]'
    assert begun.commands == b'[{"name":"x"}]'
    assert state.attributes.plan == b'[{"content":"two"}]'
    assert (begun.title, begun.updated_at) == ("T", None)
    assert fold_settings(begun, b'{"modes":null,"configOptions":null}') == begun


def test_bytes_that_nobody_can_read_change_nothing() -> None:
    broken = [b"", b"null", b"{", b"\xff", b"[" * 100_000, b'{"sessionUpdate":3}']
    kinds = ["update", "params", "prompt", "settings", "echo", "terminal", "from the future"]
    for kind in kinds:
        state = fold([Entry(1, kind, 0, raw) for raw in broken])
        assert (state.timeline, state.attributes) == (EMPTY.timeline, EMPTY.attributes)


def test_a_turn_that_was_interrupted_is_told_from_one_that_ended() -> None:
    prompt = Entry(1, "prompt", 0, b"[]")
    assert fold([prompt]).turn == "running"
    assert fold([prompt, Entry(2, "turn_end", 0, b'{"stopReason":"end_turn"}')]).turn == "idle"
    assert fold([prompt, Entry(2, "turn_end", 0, b'{"interrupted":true}')]).turn == "interrupted"


def test_the_timeline_tells_how_each_turn_ended() -> None:
    ends = [
        b'{"stopReason":"end_turn"}',
        b'{"stopReason":"refusal"}',
        b'{"stopReason":"cancelled"}',
        b'{"stopReason":"max_turn_requests"}',
        b'{"stopReason":"from_the_future"}',
        b'{"error":{"code":-32603,"message":"no"}}',
        b'{"interrupted":true}',
        b'{"interrupted":null}',
    ]
    state = fold(Entry(seq, "turn_end", seq, raw) for seq, raw in enumerate(ends))
    assert state.timeline == (
        TurnEnd("completed", 0, "end_turn"),
        TurnEnd("refused", 1, "refusal"),
        TurnEnd("cancelled", 2, "cancelled"),
        TurnEnd("limited", 3, "max_turn_requests"),
        TurnEnd("completed", 4, "from_the_future"),
        TurnEnd("failed", 5, message="no"),
        TurnEnd("interrupted", 6),
        TurnEnd("unanswered", 7),
    )


def test_a_compaction_is_open_until_it_is_said_to_be_over() -> None:
    def compaction(status: str) -> dict[str, str]:
        return {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": status}

    summary = {
        "sessionUpdate": "compaction_summary_chunk",
        "compactionId": "c1",
        "content": {"type": "text", "text": "what was said"},
    }
    begun = [compaction("in_progress"), summary]
    assert updates(*begun).open_compactions == ("c1",)
    assert updates(summary).open_compactions == ("c1",)  # one that is not known yet goes on
    for status in ("completed", "failed"):
        over = updates(*begun, compaction(status))
        assert over.open_compactions == ()
        assert fold([Entry(9, "update", 0, encode(compaction("in_progress")))], over) == updates(
            *begun, compaction(status), compaction("in_progress")
        )
        assert updates(compaction(status)).open_compactions == ()
