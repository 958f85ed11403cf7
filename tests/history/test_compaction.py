"""Compaction: fewer entries, the same state, no number missing."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.attributes import NO_ATTRIBUTES, SNAPSHOTS, fold_update
from acphold.conversation.history.compaction import compact
from acphold.conversation.history.entries import Segment
from acphold.conversation.history.fold import fold
from acphold.conversation.history.raw_update import text_block, update_kind
from acphold.conversation.history.replay import replay
from acphold.conversation.history.timeline import ContextCompaction
from tests.conversations import (
    CONVERSATIONS,
    PIECES,
    SETTINGS,
    chunk,
    encode,
    entries_of,
    segments_of,
)
from tests.history import fold_corpus

MADE_VOID = {
    *SNAPSHOTS,
    "plan",
    "session_info_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
}

Pieces = list[tuple[str, list[bytes]]]


@given(st.lists(st.one_of(PIECES, st.tuples(st.just("settings"), st.tuples(SETTINGS).map(list)))))
def test_folding_the_compacted_history_gives_the_same_state(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    assert fold(entries_of(compact(segments))) == fold(entries_of(segments))


@pytest.mark.parametrize("steps", fold_corpus.AGENTS.values(), ids=fold_corpus.AGENTS)
def test_what_agents_send_folds_to_the_same_state_compacted(steps: list[fold_corpus.Step]) -> None:
    entries = fold_corpus.entries_of(steps)
    segments = [Segment(it.seq, it.seq, it.kind, it.at, it.raw) for it in entries]
    assert fold(entries_of(compact(segments))) == fold(entries)


@given(CONVERSATIONS, CONVERSATIONS)
def test_history_compacted_turn_by_turn_folds_to_the_same_state(one: Pieces, two: Pieces) -> None:
    first = segments_of(one)
    second = segments_of(two, first[-1].last_seq + 1 if first else 1)
    compacted = [*compact(first), *compact(second)]
    assert fold(entries_of(compacted)) == fold(entries_of([*first, *second]))


@given(CONVERSATIONS, st.integers(0, 60))
def test_all_behind_a_position_is_as_it_came_where_nothing_was_merged(
    pieces: list[tuple[str, list[bytes]]], place: int
) -> None:
    before = segments_of(pieces)
    behind = [segment for segment in compact(before) if segment.last_seq > place]
    if any(segment.is_merged for segment in behind):
        return
    came = {seq: raw for segment in before for seq, raw in segment.raws()}
    stands = {seq: raw for segment in behind for seq, raw in segment.raws() if seq > place}
    assert stands.keys() == {seq for seq in came if seq > place}
    changed = {seq: raw for seq, raw in stands.items() if raw != came[seq]}
    assert all(raw == b"" for raw in changed.values())
    assert {update_kind(came[seq]) for seq in changed} <= MADE_VOID


@given(CONVERSATIONS)
def test_compacted_once_or_twice_the_same_numbers_are_covered_without_a_gap(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    for _ in range(2):
        compacted = compact(segments)
        ends = [(segment.first_seq, segment.last_seq) for segment in compacted]
        assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]
        assert bool(ends) == bool(segments)
        if ends:
            assert (ends[0][0], ends[-1][1]) == (1, segments[-1].last_seq)
        assert fold(entries_of(compacted)) == fold(entries_of(segments))
        assert len(entries_of(compacted)) <= len(entries_of(segments))
        segments = compacted


@given(CONVERSATIONS)
def test_a_replay_of_the_compacted_history_says_the_same(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    before = entries_of(_live([r.raw for r in replay(segments) if not r.whole_params]))
    after = entries_of(_live([r.raw for r in replay(compact(segments)) if not r.whole_params]))
    assert fold(after) == fold(before)


def _live(raws: list[bytes]) -> list[Segment]:
    return segments_of([("update", [raw]) for raw in raws])


@given(CONVERSATIONS, st.sets(st.integers(0, 40), max_size=4))
def test_who_has_read_a_part_as_it_came_goes_on_behind_it_with_what_was_put_together(
    pieces: Pieces, apart: set[int]
) -> None:
    segments = segments_of(pieces)
    compacted = compact(segments, apart)
    assert fold(entries_of(compacted)) == fold(entries_of(segments))
    for place in apart:
        assert not [it for it in compacted if it.first_seq <= place < it.last_seq]
        read = [entry for entry in entries_of(segments) if entry.seq <= place]
        rest = entries_of([segment for segment in compacted if segment.first_seq > place])
        assert fold([*read, *rest]) == fold(entries_of(segments))


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


def test_only_the_last_snapshot_of_a_kind_stays() -> None:
    usage = [b'{"sessionUpdate":"usage_update","used":%d,"size":9}' % n for n in range(3)]
    wrong = b'{"sessionUpdate":"available_commands_update","availableCommands":5}'
    commands = b'{"sessionUpdate":"available_commands_update","availableCommands":[]}'
    said = encode(chunk("agent_message", "a"))
    raws = [usage[0], said, commands, usage[1], wrong, said, usage[2]]
    compacted = compact(segments_of([("update", raws)]))
    kept = [entry.raw for entry in entries_of(compacted)]
    assert kept == [b"", said, commands, b"", wrong, said, usage[2]]
    assert [sent.raw for sent in replay(compacted)] == [said, commands, wrong, said, usage[2]]


def kept_of(raws: list[bytes]) -> list[bytes]:
    """What is left of these updates, compacted."""
    return [entry.raw for entry in entries_of(compact(segments_of([("update", raws)])))]


def compaction(status: str, **fields: object) -> bytes:
    update = {"sessionUpdate": "compaction_update", "compactionId": "c", "status": status}
    return encode({**update, **fields})


def summary_chunk(text: str) -> bytes:
    content = {"type": "text", "text": text}
    kind = "compaction_summary_chunk"
    return encode({"sessionUpdate": kind, "compactionId": "c", "content": content})


def test_a_summary_in_very_many_chunks_is_told_in_one_live_and_settled() -> None:
    raws = [compaction("in_progress"), *map(summary_chunk, 1500 * "x"), compaction("completed")]
    segments = segments_of([("update", [raw]) for raw in raws])
    told = [raws[0], summary_chunk("x" * 1500), raws[-1]]
    assert [json.loads(sent.raw) for sent in replay(segments)] == [*map(json.loads, told)]
    assert [json.loads(entry.raw) for entry in entries_of(compact(segments))] == [
        *map(json.loads, told)
    ]
    [item] = fold(entries_of(segments)).timeline
    assert item == ContextCompaction("c", "completed", (text_block("x" * 1500),))


def test_what_counts_of_many_updates_of_one_thing_in_a_turn_is_told() -> None:
    plans = [
        encode({"sessionUpdate": "plan", "entries": [{"content": f"{n}"}]}) for n in range(300)
    ]
    infos = [encode({"sessionUpdate": "session_info_update", "title": f"{n}"}) for n in range(300)]
    progress = [compaction("in_progress", _meta={"percent": n}) for n in range(300)]
    end = ("turn_end", [b'{"stopReason":"end_turn"}'])
    turn = [("update", [raw]) for run in zip(plans, infos, progress, strict=True) for raw in run]
    segments = segments_of([*turn, end, ("update", [plans[0]]), end])
    compacted = compact(segments)
    assert [sent.raw for sent in replay(compacted)] == [
        progress[0],
        plans[-1],
        infos[-1],
        progress[-1],
        plans[0],
    ]
    assert fold(entries_of(compacted)) == fold(entries_of(segments))


def test_updates_of_compactions_that_cannot_be_told_apart_all_stay() -> None:
    raws = [compaction("in_progress", compactionId=id_) for id_ in (None, 5, "", None, 6, "")]
    assert kept_of(raws) == raws


def test_what_the_next_update_does_not_say_again_stays() -> None:
    raws = [
        encode({"sessionUpdate": "session_info_update", "title": "T"}),
        encode({"sessionUpdate": "session_info_update", "updatedAt": "2026-01-31T12:00:00Z"}),
        encode({"sessionUpdate": "session_info_update", "updatedAt": None, "_meta": {"own": 1}}),
        encode({"sessionUpdate": "session_info_update", "updatedAt": 5, "_meta": {"own": 2}}),
        encode({"sessionUpdate": "session_info_update", "updatedAt": None, "_meta": {"other": 2}}),
    ]
    assert kept_of(raws) == [raws[0], b"", *raws[2:]]


def test_a_notice_is_not_kept_when_its_turn_is_settled() -> None:
    notice = b'{"sessionUpdate":"notice","severity":"info","title":"Look"}'
    said = encode(chunk("agent_message", "a"))
    assert kept_of([notice, said]) == [b"", said]


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


@given(CONVERSATIONS)
def test_the_state_stays_the_same_where_calls_are_too_long_to_be_joined(pieces: Pieces) -> None:
    segments = segments_of(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acphold.conversation.history.compaction.LINE_BYTES", 100)
        assert fold(entries_of(compact(segments))) == fold(entries_of(segments))


def test_a_long_call_that_shows_all_of_its_content_again_and_again_keeps_it_once() -> None:
    update = b'{"sessionUpdate":"tool_call_update","toolCallId":"a","%b":["%b"]}'
    raws = [
        b'{"sessionUpdate":"tool_call","toolCallId":"a","title":"%b","content":[]}' % (b"t" * 2000)
    ]
    for size in range(100_000, 200_000, 10_000):
        raws += [update % (b"content", b"x" * size), update % (b"locations", b"y" * size)]
    segments = segments_of([("update", raws)])
    compacted = compact(segments)
    assert fold(entries_of(compacted)) == fold(entries_of(segments))
    assert sum(len(segment.raw) for segment in compacted) < 2.2 * 200_000


META = (
    b'{"sessionUpdate":"session_info_update","_meta":{"a":1}}',
    b'{"sessionUpdate":"session_info_update","title":"x"}',
    b'{"sessionUpdate":"session_info_update","title":"y","_meta":{"b":2}}',
    b'{"sessionUpdate":"session_info_update","_meta":null}',
    b'{"sessionUpdate":"session_info_update","_meta":{"a":1e999}}',
    b'{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":1}}}',
)


@pytest.mark.parametrize("number", [2, 3])
def test_what_an_agent_says_of_a_session_is_the_same_behind_it(number: int) -> None:
    def meta(segments: list[Segment]) -> bytes | None:
        folded = NO_ATTRIBUTES
        for entry in (it for segment in segments for it in segment.entries() if it.raw):
            if entry.kind == "update":
                folded = fold_update(folded, "session_info_update", entry.raw)
        return folded.meta

    for said in product(META, repeat=number):
        updates = [Segment(seq, seq, "update", 0, raw) for seq, raw in enumerate(said, 2)]
        end = Segment(number + 2, number + 2, "turn_end", 0, b"{}")
        segments = [Segment(1, 1, "prompt", 0, b"[]"), *updates, end]
        assert meta(compact(segments)) == meta(segments), said
