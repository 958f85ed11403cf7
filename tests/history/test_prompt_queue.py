"""The queue of prompts: each change has one meaning, and no prompt is lost or begins twice."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import encode
from acphold.conversation.history.entries import LATEST_MS, QUEUE, Entry, Segment
from acphold.conversation.history.fold import fold
from acphold.conversation.history.prompt_queue import (
    DAY_MS,
    ENDED,
    GOING_ON,
    NO_QUEUE,
    PromptQueue,
    QueueChange,
    after_change,
    after_entry,
    after_turn,
    content_in,
    fitting,
    moment as to_moment,
)

HOUR = 3_600_000
TEXT = b'[{"type":"text","text":"do it"}]'
DONE = b'{"stopReason":"end_turn"}'
ENDS = {
    "failed": b'{"error":{"code":-1,"message":"no"}}',
    "refused": b'{"stopReason":"refusal"}',
    "cancelled": b'{"stopReason":"cancelled"}',
    "interrupted": b'{"interrupted":true}',
}


def raw(do: str, **fields: object) -> bytes:
    return encode({"do": do, **fields})


def after(*raws: bytes, queue: PromptQueue = NO_QUEUE) -> PromptQueue:
    """The queue after these entries; those without `do` are ends of turns."""
    for seq, each in enumerate(raws, 1):
        is_change = b'"do"' in each
        queue = after_entry(queue, each, seq, seq) if is_change else after_turn(queue, each, seq)
    return queue


def with_prompts(*ids: str) -> PromptQueue:
    return after(*(raw("add", id=it, prompt=[{"type": "text", "text": it}]) for it in ids))


def order(queue: PromptQueue) -> list[str]:
    return [it.id for it in queue.waiting]


IDS = st.sampled_from(["a", "b", "c", "d", ""])
CHANGES = st.one_of(
    st.builds(
        lambda id, before: raw("add", id=id, before=before, prompt=[{"type": "text", "text": id}]),
        *(IDS, IDS),
    ),
    st.builds(lambda id: raw("edit", id=id, prompt=[{"type": "text", "text": "else"}]), IDS),
    st.builds(lambda id, before: raw("move", id=id, before=before), IDS, IDS),
    st.builds(lambda id: raw("drop", id=id), IDS),
    st.builds(lambda id: raw("begin", id=id), IDS),
    st.sampled_from([raw("hold"), raw("go"), raw("set", goesOn=True), b"{", b'{"do":"else"}']),
    st.sampled_from([DONE, *ENDS.values()]),
)


@given(st.lists(CHANGES))
def test_a_prompt_is_in_one_place_and_leaves_only_by_beginning_or_being_taken_back(
    entries: list[bytes],
) -> None:
    queue = NO_QUEUE
    for seq, entry in enumerate(entries, 1):
        before, known = queue, set(order(queue))
        queue = after(entry, queue=before)
        ids = [*order(queue), *([queue.begun.id] if queue.begun else [])]
        assert len(ids) == len(set(ids))
        gone = known - set(order(queue))
        if gone:
            assert b'"drop"' in entry or b'"begin"' in entry, seq
            assert len(gone) == 1
        if b'"begin"' in entry and queue != before:
            assert queue.begun is not None
            assert queue.begun.id in known


@given(st.lists(CHANGES), st.data())
def test_folded_in_two_parts_it_is_the_same(entries: list[bytes], data: st.DataObject) -> None:
    kinds = [
        Entry(seq, "queue" if b'"do"' in it or it == b"{" else "turn_end", seq, it)
        for seq, it in enumerate(entries, 1)
    ]
    cut = data.draw(st.integers(0, len(kinds)))
    assert fold(kinds[cut:], fold(kinds[:cut])).queue == fold(kinds).queue


@given(st.lists(CHANGES))
def test_what_fits_is_what_changes(entries: list[bytes]) -> None:
    """A change that is refused would have changed nothing, and one that is taken is folded."""
    queue = NO_QUEUE
    for seq, entry in enumerate(entries, 1):
        queue = after(entry, queue=queue)
        change = QueueChange("drop", "a")
        try:
            taken = fitting(queue, change)
        except InvalidParamsError:
            assert after_entry(queue, encode(change), seq, seq) == queue
        else:
            assert order(after_entry(queue, taken, seq, seq)) == [
                it for it in order(queue) if it != "a"
            ]


def test_a_stop_while_the_last_one_begins_holds_nothing_that_comes_later() -> None:
    queue = after(raw("hold", why="cancelled"), raw("begin", id="a"), queue=with_prompts("a"))
    queue = after(ENDS["cancelled"], queue=queue)
    assert (queue.held, order(queue)) == ("", [])


@pytest.mark.parametrize("outcome", ENDS)
def test_behind_a_turn_that_is_not_done_the_rest_is_held(outcome: str) -> None:
    queue = after(raw("begin", id="a"), ENDS[outcome], queue=with_prompts("a", "b"))
    assert (queue.held, queue.begun, queue.next(HOUR)) == (outcome, None, None)
    assert [it.status for it in queue.ended] == [outcome]
    going = after(raw("go"), queue=queue).next(HOUR)
    assert going is not None
    assert going.id == "b"


@pytest.mark.parametrize("outcome", ENDS)
def test_it_goes_on_behind_a_failed_or_refused_turn_if_it_was_told_to(outcome: str) -> None:
    told = after(raw("set", goesOn=True), queue=with_prompts("a", "b"))
    queue = after(raw("begin", id="a"), ENDS[outcome], queue=told)
    assert bool(queue.held) == (outcome in ("cancelled", "interrupted"))


def test_a_turn_of_somebody_else_that_fails_holds_what_waits() -> None:
    assert after(ENDS["failed"], queue=with_prompts("a")).held == "failed"
    assert after(ENDS["failed"]).held == ""


def test_when_the_last_one_is_taken_back_nothing_is_held_but_by_a_person() -> None:
    queue = after(ENDS["failed"], raw("drop", id="a"), queue=with_prompts("a"))
    assert queue.held == ""
    assert [it.status for it in queue.ended] == ["takenBack"]
    assert after(raw("hold"), raw("drop", id="a"), queue=with_prompts("a")).held == "person"


def test_prompts_keep_their_order_unless_somebody_moves_them() -> None:
    queue = with_prompts("a", "b", "c")
    assert order(after(raw("move", id="c", before="a"), queue=queue)) == ["c", "a", "b"]
    assert order(after(raw("move", id="a"), queue=queue)) == ["b", "c", "a"]
    assert order(after(raw("edit", id="b", prompt=[]), queue=queue)) == ["a", "b", "c"]
    first = raw("add", id="d", before="b", prompt=[{"type": "text", "text": "d"}])
    assert order(after(first, queue=queue)) == ["a", "d", "b", "c"]


def test_one_with_a_moment_lets_the_others_pass_until_then() -> None:
    later = raw("add", id="late", at=HOUR, prompt=[{"type": "text", "text": "late"}])
    queue = after(later, queue=NO_QUEUE)
    queue = after(raw("add", id="b", prompt=[{"type": "text", "text": "b"}]), queue=queue)
    assert [it and it.id for it in (queue.next(0), queue.next(HOUR))] == ["b", "late"]
    assert after(raw("drop", id="b"), queue=queue).wakes_at == HOUR


def test_what_is_held_until_a_moment_goes_on_by_itself_then() -> None:
    queue = after_change(with_prompts("a"), QueueChange("hold", why="limited", until=HOUR), 9, 9)
    assert queue.next(HOUR - 1) is None
    assert queue.next(HOUR) is not None
    assert queue.wakes_at == HOUR
    assert after(raw("begin", id="a"), queue=queue).held == ""


def test_a_person_who_holds_it_while_one_begins_holds_the_rest() -> None:
    queue = after(raw("hold"), raw("begin", id="a"), DONE, queue=with_prompts("a", "b"))
    assert (queue.held, queue.next(HOUR)) == ("person", None)


@pytest.mark.parametrize("outcome", ["cancelled", "refused"])
def test_a_turn_that_a_person_cancels_ends_the_wait_for_a_limit(outcome: str) -> None:
    waits = after_change(with_prompts("a"), QueueChange("hold", why="limited", until=HOUR), 9, 9)
    queue = after(ENDS[outcome], queue=waits)
    assert (queue.held, queue.next(2 * HOUR)) == (outcome, None)


def test_a_prompt_without_text_is_told_by_what_it_is() -> None:
    blocks = [{"type": "text", "text": "Look\n at"}, {"type": "image", "data": "AAAA"}]
    [it] = after(raw("add", id="a", prompt=blocks)).waiting
    assert it.words == "Look at [image]"


def test_a_change_that_does_not_fit_is_refused_in_words() -> None:
    queue = after(raw("begin", id="a"), queue=with_prompts("a", "b"))
    for change, why in (
        (QueueChange("drop", "a"), "has begun"),
        (QueueChange("drop", "z"), "is not in the queue"),
        (QueueChange("begin", "b"), "begins prompts by itself"),
        (QueueChange("move", "b", before="z"), "is not waiting"),
        (QueueChange("add", "z"), "content blocks"),
        (QueueChange("add", "b", Raw(TEXT)), "in use"),
    ):
        with pytest.raises(InvalidParamsError, match=why):
            fitting(queue, change)


@pytest.mark.parametrize("moment", [-1, LATEST_MS, 1_770_000_000_000_000, 10**40])
def test_a_moment_that_no_calendar_has_is_refused_and_one_that_is_there_can_be_shown(
    moment: int,
) -> None:
    for change, field in (
        (QueueChange("add", "z", Raw(TEXT), at=moment), "change.at"),
        (QueueChange("edit", "b", at=moment), "change.at"),
        (QueueChange("hold", until=moment), "change.until"),
    ):
        with pytest.raises(InvalidParamsError, match=field):
            fitting(with_prompts("a", "b"), change)
    there = after(
        raw("add", id="a", prompt=[], at=moment),
        raw("hold", until=moment),
        queue=with_prompts("b"),
    )
    assert order(there) == ["b", "a"]
    first, last = to_moment(0), to_moment(LATEST_MS - 1)
    for at in (there.waiting[1].at_ms, there.until_ms, moment):
        assert at is not None
        assert to_moment(at) == (first if moment < 0 else last)


def test_prompts_by_which_a_session_went_on_are_counted_for_a_day_whatever_came_since() -> None:
    queue, at = NO_QUEUE, 1_000_000_000_000
    for number in range(3 * ENDED):
        id_ = f"{GOING_ON}{number}" if number < 3 else str(number)
        prompt = Raw(b'[{"type":"text","text":"x"}]')
        queue = after_change(queue, QueueChange("add", id_, prompt), 1, at)
        queue = after_change(queue, QueueChange("begin", id_), 2, at)
        queue = after_turn(queue, b'{"stopReason":"end_turn"}', at + number)
    went_on = [f"{GOING_ON}{number}" for number in range(3)]
    last = [str(number) for number in range(2 * ENDED, 3 * ENDED)]
    assert [it.id for it in queue.ended] == went_on + last
    queue = after_change(queue, QueueChange("add", "late", prompt), 1, at)
    queue = after_change(queue, QueueChange("drop", "late"), 2, at + DAY_MS + 1)
    assert [it.id for it in queue.ended] == [f"{GOING_ON}2", *last[1:], "late"]


def test_the_words_of_a_prompt_are_those_of_its_own_entry() -> None:
    [waits] = with_prompts("a").waiting
    words = raw("add", id="a", prompt=[{"type": "text", "text": "a"}])
    found = content_in([Segment(waits.seq, waits.seq, QUEUE, 1, words)], waits)
    assert (found.id, bytes(found.prompt)) == ("a", b'[{"type":"text","text":"a"}]')
    others = [
        Segment(waits.seq, waits.seq, "update", 1, words),
        Segment(waits.seq + 1, waits.seq + 1, QUEUE, 1, words),
    ]
    for segments in ([], *([other] for other in others)):
        with pytest.raises(ValueError, match="'a' is not in entry 1"):
            content_in(segments, waits)
