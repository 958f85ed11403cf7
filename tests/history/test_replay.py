"""Replay: a client that was not there gets the conversation of one that was."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given

from acphold.conversation.history.compaction import LINE_BYTES, compact
from acphold.conversation.history.entries import Entry, Segment
from acphold.conversation.history.fold import fold
from acphold.conversation.history.replay import Replayed, replay
from acphold.conversation.history.timeline import Item, ToolCall, TurnEnd, terminal_entry
from tests.conversations import CONVERSATIONS, chunk, encode, entries_of, segments_of

Pieces = list[tuple[str, list[bytes]]]


def as_entries(replayed: list[Replayed]) -> list[Entry]:
    """The entries of a client that folds this stream."""
    kinds = {False: "update", True: "params"}
    return [
        Entry(seq, kinds[sent.whole_params], 0, sent.raw) for seq, sent in enumerate(replayed, 1)
    ]


def replay_updates(*updates: bytes) -> list[bytes]:
    """The replay of these updates, appended at once."""
    return [sent.raw for sent in replay(segments_of([("update", [*updates])]))]


def _as_replayed(timeline: tuple[Item, ...]) -> Iterator[Item]:
    """A timeline without ends of turns, which are told in a mark."""
    return (item for item in timeline if not isinstance(item, TurnEnd))


@given(CONVERSATIONS)
def test_folding_the_replay_gives_the_state_of_the_conversation(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    told = fold(as_entries(list(replay(segments))))
    known = fold(entries_of(segments))
    assert told.timeline == tuple(_as_replayed(known.timeline))
    assert told.attributes == known.attributes


def test_params_without_an_update_tell_nothing() -> None:
    pieces = [("params", [b'{"sessionId":"s"}', b'{"sessionId":"s","update":{"a":1},"x":1}'])]
    assert [sent.seq for sent in replay(segments_of(pieces))] == [2]


@given(CONVERSATIONS)
def test_positions_in_a_replay_grow_and_each_is_that_of_an_entry(pieces: Pieces) -> None:
    for segments in (segments_of(pieces), compact(segments_of(pieces))):
        ends = {seq for segment in segments for seq, _ in segment.raws()}
        places = [sent.seq for sent in replay(segments) if sent.seq]
        assert places == sorted(set(places))
        assert ends.issuperset(places)


@given(CONVERSATIONS)
def test_a_replay_is_the_same_in_one_read_or_in_many(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    in_parts = [sent for segment in segments for sent in replay([segment])]
    assert fold(as_entries(in_parts)) == fold(as_entries(list(replay(segments))))


def test_plain_text_of_one_message_comes_as_one_chunk() -> None:
    texts = [encode(chunk("agent_message", text, messageId="m")) for text in ("One, ", "two")]
    (sent,) = replay_updates(*texts)
    assert json.loads(sent) == chunk("agent_message", "One, two", messageId="m")


def test_text_of_other_messages_and_text_with_more_to_it_is_not_joined() -> None:
    raws = [
        encode(chunk("agent_message", "a")),
        encode(chunk("agent_message", "a", messageId="m")),
        encode(chunk("agent_thought", "a")),
        encode(chunk("agent_thought", "a", _meta={"k": 1})),
        encode(chunk("agent_thought", "a", future=True)),
    ]
    assert replay_updates(*raws) == raws


@pytest.mark.parametrize("text", ["x" * 1000, "漢" * 999, '"\n' * 500, "\x01" * 300, "🙂"])
@pytest.mark.parametrize("message_id", [None, "漢" * 100])
def test_no_joined_line_is_longer_than_clients_read(text: str, message_id: str | None) -> None:
    raws = [encode(chunk("agent_message", text, messageId=message_id)) for _ in range(1000)]
    segments = segments_of([("update", raws)])
    for joined in (segments, compact(segments)):
        lines = [sent.raw for sent in replay(joined)]
        assert max(map(len, lines)) <= LINE_BYTES
        assert "".join(json.loads(line)["content"]["text"] for line in lines) == text * 1000
        # Bounded, but not by much less: a replay has few lines.
        assert len(lines) <= 3 * sum(map(len, lines)) / LINE_BYTES + 1


def test_what_was_longer_live_stays_as_it_was() -> None:
    raws = [encode(chunk("agent_message", text)) for text in ("a", "x" * LINE_BYTES, "b", "c")]
    assert replay_updates(*raws) == [raws[0], raws[1], encode(chunk("agent_message", "bc"))]


@pytest.mark.parametrize(
    ("end", "mark"),
    [
        ({"stopReason": "refusal"}, {"outcome": "refused", "stopReason": "refusal"}),
        ({"stopReason": "cancelled"}, {"outcome": "cancelled", "stopReason": "cancelled"}),
        ({"stopReason": "max_tokens"}, {"outcome": "limited", "stopReason": "max_tokens"}),
        ({"error": {"code": -1, "message": "no"}}, {"outcome": "failed", "message": "no"}),
        ({"interrupted": True}, {"outcome": "interrupted"}),
        ({"interrupted": None}, {"outcome": "unanswered"}),
    ],
)
def test_a_turn_that_was_not_completed_is_told_from_one_that_was(
    end: dict[str, object], mark: dict[str, str]
) -> None:
    pieces = [
        ("prompt", [b'[{"type":"text","text":"Hi"}]']),
        ("update", [encode(chunk("agent_message", "a"))]),
        ("turn_end", [encode(end)]),
    ]
    *_, last = replay(segments_of(pieces))
    assert json.loads(last.raw) == {
        "sessionUpdate": "session_info_update",
        "_meta": {"acphold/turn": mark},
    }
    pieces[-1] = ("turn_end", [b'{"stopReason":"end_turn"}'])
    assert b"acphold/turn" not in b"".join(sent.raw for sent in replay(segments_of(pieces)))


CALL = b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","content":%b,"x":1.0}'
TERMINAL = b'{"type":"terminal","terminalId":"term-1"}'


def test_what_a_terminal_showed_is_replayed_as_text() -> None:
    content = b"[%b]" % TERMINAL
    shown = terminal_entry("t", content, {"term-1": "$ ls\na.py"})
    pieces = [("update", [CALL % content]), ("terminal", [shown])]
    for segments in (segments_of(pieces), compact(segments_of(pieces))):
        (call,) = fold(as_entries(list(replay(segments)))).timeline
        assert isinstance(call, ToolCall)
        assert [json.loads(item) for item in call.content] == [
            {"type": "content", "content": {"type": "text", "text": "$ ls\na.py"}}
        ]
        assert fold(entries_of(segments)).timeline == (call,)


def test_what_acphold_does_not_know_passes_byte_for_byte() -> None:
    raws = [b'{ "sessionUpdate" : "brand_new", "n": 1.0e2 }', b'{"sessionUpdate":"\\ud83d"}']
    assert replay_updates(*raws) == raws


def test_a_prompt_comes_as_one_chunk_for_each_block_under_one_id() -> None:
    blocks = (
        b'[{"type":"text","text":"See"},{"type":"resource_link", "uri":"file:///a","name":"a"}]'
    )
    sent = [json.loads(sent.raw) for sent in replay([Segment(5, 5, "prompt", 0, blocks)])]
    assert sent == [
        {"sessionUpdate": "user_message_chunk", "messageId": "acphold-5", "content": block}
        for block in json.loads(blocks)
    ]


def test_a_prompt_that_stands_for_more_numbers_keeps_its_id() -> None:
    (sent,) = replay([Segment(5, 9, "prompt", 0, b'[{"type":"text","text":"See"}]')])
    assert json.loads(sent.raw)["messageId"] == "acphold-5"


def test_params_with_more_than_an_update_come_whole() -> None:
    params = b'{"sessionId":"theirs","update":{"sessionUpdate":"plan","entries":[]},"_meta":{}}'
    assert list(replay([Segment(1, 1, "params", 0, params)])) == [Replayed(params, True, 1)]


def test_notices_echoes_and_the_ends_of_completed_turns_are_not_replayed() -> None:
    notice = b'{"sessionUpdate":"notice","message":"hi"}'
    pieces = [
        ("update", [notice]),
        ("params", [b'{"sessionId":"s","update":%b,"_meta":{}}' % notice]),
        ("echo", [encode(chunk("user_message", "Hi"))]),
        ("turn_end", [b'{"stopReason":"end_turn"}']),
        ("settings", [b'{"modes":null}']),
    ]
    assert list(replay(segments_of(pieces))) == []


def test_the_later_of_two_clients_named_before_a_prompt_has_sent_it() -> None:
    names = [b'{"name":"zed","version":"1"}', b'{"name":"nvim","version":"2"}']
    said = [*replay(segments_of([("author", names), ("prompt", [b'[{"type":"text"}]'])]))]
    assert [json.loads(each.raw)["_meta"] for each in said] == [
        {"acphold/client": {"name": "nvim", "version": "2"}}
    ]
