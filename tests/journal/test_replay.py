"""Replay: a client that was not there gets the conversation of one that was."""

from __future__ import annotations

import json

from hypothesis import given, settings

from acphold.journal.compaction import CHUNK_CHARACTERS
from acphold.journal.entries import Entry, Segment
from acphold.journal.fold import fold
from acphold.journal.replay import Replayed, replay
from tests.journal.conversations import CONVERSATIONS, chunk, encode, entries_of, segments_of

Pieces = list[tuple[str, list[bytes]]]


def as_entries(replayed: list[Replayed]) -> list[Entry]:
    """What a client that folds the stream has."""
    kinds = {False: "update", True: "params"}
    return [
        Entry(seq, kinds[sent.whole_params], 0, sent.raw) for seq, sent in enumerate(replayed, 1)
    ]


def replay_updates(*updates: bytes) -> list[bytes]:
    """The replay of these updates, appended at once."""
    return [sent.raw for sent in replay(segments_of([("update", [*updates])]))]


@settings(deadline=None)
@given(CONVERSATIONS)
def test_folding_the_replay_gives_the_state_of_the_conversation(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    told = fold(as_entries(list(replay(segments))))
    known = fold(entries_of(segments))
    assert told.timeline == known.timeline
    assert told.standing == known.standing


@settings(deadline=None)
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


def test_joined_chunks_stay_within_their_bound() -> None:
    raws = [encode(chunk("agent_message", "x" * 1000)) for _ in range(100)]
    sent = [json.loads(raw)["content"]["text"] for raw in replay_updates(*raws)]
    assert max(map(len, sent)) <= CHUNK_CHARACTERS
    assert "".join(sent) == "x" * 100_000
    assert len(sent) == 4


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
    assert list(replay([Segment(1, 1, "params", 0, params)])) == [Replayed(params, True)]


def test_notices_echoes_and_the_ends_of_turns_are_not_replayed() -> None:
    notice = b'{"sessionUpdate":"notice","message":"hi"}'
    pieces = [
        ("update", [notice]),
        ("params", [b'{"sessionId":"s","update":%b,"_meta":{}}' % notice]),
        ("echo", [encode(chunk("user_message", "Hi"))]),
        ("turn_end", [b'{"stopReason":"end_turn"}']),
        ("settings", [b'{"modes":null}']),
    ]
    assert list(replay(segments_of(pieces))) == []
