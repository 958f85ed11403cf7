"""Compaction: fewer entries, the same state, no number missing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acphold.journal.compaction import compact
from acphold.journal.entries import Segment
from acphold.journal.fold import fold
from acphold.journal.raw_update import update_kind
from acphold.journal.replay import replay
from acphold.journal.standing import is_snapshot
from tests.journal.conversations import (
    CONVERSATIONS,
    PIECES,
    SETTINGS,
    chunk,
    encode,
    entries_of,
    segments_of,
)

Pieces = list[tuple[str, list[bytes]]]


@given(st.lists(st.one_of(PIECES, st.tuples(st.just("settings"), st.tuples(SETTINGS).map(list)))))
def test_folding_the_compacted_history_gives_the_same_state(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    assert fold(entries_of(compact(segments))) == fold(entries_of(segments))


@given(CONVERSATIONS, CONVERSATIONS)
def test_history_compacted_turn_by_turn_folds_to_the_same_state(one: Pieces, two: Pieces) -> None:
    first = segments_of(one)
    second = segments_of(two, first[-1].last_seq + 1 if first else 1)
    compacted = [*compact(first), *compact(second)]
    assert fold(entries_of(compacted)) == fold(entries_of([*first, *second]))


@given(CONVERSATIONS, st.integers(0, 60))
def test_where_nothing_behind_a_place_was_merged_all_of_it_is_as_it_came(
    pieces: list[tuple[str, list[bytes]]], place: int
) -> None:
    before = segments_of(pieces)
    behind = [segment for segment in compact(before) if segment.last_seq > place]
    if any(segment.is_merged for segment in behind):
        return
    came = {seq: raw for segment in before for seq, raw in segment.raws()}
    stands = {seq: raw for segment in behind for seq, raw in segment.raws() if seq > place}
    assert stands.keys() == {seq for seq in came if seq > place}
    changed = [came[seq] for seq, raw in stands.items() if raw != came[seq]]
    assert all(is_snapshot(update_kind(raw), raw) for raw in changed)


@given(CONVERSATIONS)
def test_compacted_segments_cover_the_same_numbers_without_a_gap(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    compacted = compact(segments)
    ends = [(segment.first_seq, segment.last_seq) for segment in compacted]
    assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]
    assert bool(ends) == bool(segments)
    if ends:
        assert (ends[0][0], ends[-1][1]) == (1, segments[-1].last_seq)


@given(CONVERSATIONS)
def test_compacting_twice_folds_to_the_same_state_and_adds_no_entry(pieces: Pieces) -> None:
    once = compact(segments_of(pieces))
    twice = compact(once)
    assert fold(entries_of(twice)) == fold(entries_of(once))
    assert len(entries_of(twice)) <= len(entries_of(once))


@given(CONVERSATIONS)
def test_a_replay_of_the_compacted_history_says_the_same(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    before = entries_of(_live([r.raw for r in replay(segments) if not r.whole_params]))
    after = entries_of(_live([r.raw for r in replay(compact(segments)) if not r.whole_params]))
    assert fold(after) == fold(before)


def _live(raws: list[bytes]) -> list[Segment]:
    return segments_of([("update", [raw]) for raw in raws])


def test_a_run_of_text_becomes_one_entry_that_stands_for_all_its_numbers() -> None:
    raws = [encode(chunk("agent_message", text)) for text in ("Hel", "lo", " wörld")]
    (segment,) = compact(segments_of([("update", raws)]))
    assert (segment.first_seq, segment.last_seq) == (1, 3)
    assert json.loads(segment.raw) == chunk("agent_message", "Hello wörld")


def test_a_tool_call_and_its_updates_become_one_where_the_call_began() -> None:
    raws = [
        b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"Read","content":[1],"x":1.50}',
        encode(chunk("agent_message", "Meanwhile")),
        b'{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[2,3],"title":null}',
        b'{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}',
        encode(chunk("agent_message", ", done")),
    ]
    call, said = compact(segments_of([("update", raws)]))
    assert call.raw == (
        b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"Read","content":[2,3],'
        b'"x":1.50,"status":"completed"}'
    )
    assert (call.first_seq, call.last_seq, said.first_seq, said.last_seq) == (1, 1, 2, 5)


def test_an_update_that_carries_more_than_its_session_is_not_moved() -> None:
    call = b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"Read"}'
    update = b'{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"%b"}'
    params = b'{"sessionId":"s","update":%b,"_meta":{"trace":7}}' % (update % b"failed")
    pieces = [("update", [call]), ("params", [params]), ("update", [update % b"completed"])]
    assert [segment.raw for segment in compact(segments_of(pieces))] == [
        call,
        params,
        update % b"completed",
    ]


def test_what_stays_alone_keeps_its_bytes_and_shares_a_segment() -> None:
    raws = [b'{"sessionUpdate":"future","n":%d}' % n for n in range(5)]
    assert compact(segments_of([("update", raws)])) == [
        Segment(1, 5, "update", 0, b"\n".join(raws))
    ]


@pytest.mark.parametrize("kind", ["prompt", "turn_end", "echo", "settings", "params"])
def test_other_kinds_of_entries_are_left_as_they_are(kind: str) -> None:
    segments = segments_of([(kind, [b'{"a": 1}']), ("update", [b"{}"])])
    assert compact(segments) == segments


def test_of_what_says_it_all_anew_only_the_last_stays() -> None:
    usage = [b'{"sessionUpdate":"usage_update","used":%d,"size":9}' % n for n in range(3)]
    wrong = b'{"sessionUpdate":"available_commands_update","availableCommands":5}'
    commands = b'{"sessionUpdate":"available_commands_update","availableCommands":[]}'
    said = encode(chunk("agent_message", "a"))
    raws = [usage[0], said, commands, usage[1], wrong, said, usage[2]]
    segments = segments_of([("update", raws)])
    compacted = compact(segments)
    kept = [entry.raw for entry in entries_of(compacted)]
    assert kept == [b"", said, commands, b"", wrong, said, usage[2]]
    assert [sent.raw for sent in replay(compacted)] == [said, commands, wrong, said, usage[2]]


def test_a_tool_call_is_not_joined_beyond_what_clients_read() -> None:
    call = b'{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","rawInput":"%b"}'
    update = b'{"sessionUpdate":"tool_call_update","toolCallId":"t","rawOutput":"%b"}'
    raws = [call % (b"i" * 30_000)]
    raws += [update % (b"o" * size) for size in range(1000, 200_000, 5000)]
    segments = segments_of([("update", raws)])
    compacted = entries_of(compact(segments))
    longest = max(map(len, raws))
    assert len(compacted) == 2
    assert all(len(entry.raw) <= longest for entry in compacted)
    assert fold(compacted) == fold(entries_of(segments))
