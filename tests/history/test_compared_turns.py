"""Turns that two sides have of one conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import process_time

import pytest
from hypothesis import given, strategies as st

from acphold.conversation.history.compared_turns import (
    ENOUGH_CHARACTERS,
    MOST_STEPS,
    MOST_TURNS,
    SAME_MS,
    ComparedTurn,
    ComparedTurns,
    shared_run,
)
from acphold.conversation.history.entries import Entry
from acphold.conversation.history.handovers import BEGINNING, HEADING, HandOver, with_mark
from acphold.conversation.history.titles import title_of_words


def chunk(kind: str, text: str, message_id: str | None = None) -> bytes:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return json.dumps(update | ({"messageId": message_id} if message_id else {})).encode()


def replay(*turns: Sequence[str]) -> list[ComparedTurn]:
    """Turns of words and, if there is one, an answer and its id."""
    reading = ComparedTurns()
    for words, *answer in turns:
        reading.add(chunk("user_message_chunk", words))
        for text in answer[:1]:
            reading.add(chunk("agent_message_chunk", text, *answer[1:]))
    return reading.turns()


def letters(words: str) -> list[ComparedTurn]:
    return [ComparedTurn(words=letter) for letter in words]


LONG = "a sentence of more than forty characters without white space"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("abc", "abc", {0: 0, 1: 1, 2: 2}),
        ("abc", "", {}),
        ("abc", "xyz", {}),
        ("abcd", "ab", {0: 0, 1: 1}),  # it has forgotten the end
        ("abcd", "cd", {2: 0, 3: 1}),  # it tells the end only
        ("abc", "abcxy", {0: 0, 1: 1, 2: 2}),  # it went on elsewhere
        ("abc", "abcb", {0: 0, 1: 1, 2: 2}),  # with words that were said before
        ("aaa", "a", {2: 0}),  # nothing but the end decides
        ("baca", "ba", {0: 0, 1: 1}),  # a longer run counts more
        ("abxcd", "abycd", {0: 0, 1: 1, 3: 3, 4: 4}),
    ],
)
def test_turns_without_ids_or_times_are_shared_by_the_longest_run(
    ours: str, theirs: str, expected: dict[int, int]
) -> None:
    assert shared_run(letters(ours), letters(theirs)) == expected


def test_an_id_proves_more_than_an_answer_and_that_more_than_words() -> None:
    ours = replay(("go on", "one", "m1"), ("go on", "two"), ("go on", "three"))
    theirs = replay(("another prompt", "told anew", "m1"), ("go on", "three"))
    assert shared_run(ours, theirs) == {0: 0, 2: 1}
    assert shared_run(replay(("<a>one</a>", LONG)), replay(("one", LONG))) == {0: 0}
    assert shared_run(replay(("one", "yes")), replay(("two", "yes"))) == {}
    assert shared_run(replay((f"{LONG} and more",)), replay((LONG,))) == {0: 0}
    assert len("".join(LONG.split())) >= ENOUGH_CHARACTERS


def test_two_prompts_of_the_same_words_at_other_times_are_not_one() -> None:
    ours = [ComparedTurn(words="go on", at=1), ComparedTurn(words="go on", at=SAME_MS * 9)]
    assert shared_run(ours, [ComparedTurn(words="go on", at=SAME_MS)]) == {0: 0}


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_what_is_shared_is_the_same_and_in_order(ours: str, theirs: str) -> None:
    shared = shared_run(letters(ours), letters(theirs))
    assert all(ours[n] == theirs[m] for n, m in shared.items())
    assert [*shared.values()] == sorted(set(shared.values()))
    assert bool(shared) == bool(set(ours) & set(theirs))


def test_the_journal_and_a_replay_of_it_have_the_same_turns_however_they_are_cut() -> None:
    reading = ComparedTurns()
    prompt = json.dumps([{"type": "text", "text": "Look"}, {"type": "text", "text": "here"}])
    reading.add_entry(Entry(3, "prompt", 7, prompt.encode()))
    params = b'{"update":%b}' % chunk("agent_message_chunk", " two", "m1")
    for entry in (
        Entry(4, "update", 8, chunk("agent_message_chunk", "one ")),
        Entry(5, "params", 8, params),
    ):
        reading.add_entry(entry)
    [ours] = reading.turns()
    theirs = ComparedTurns()
    theirs.add(chunk("user_message_chunk", "Look "))
    theirs.add(b'{"sessionUpdate":"usage_update","used":1,"size":2}')
    theirs.add(chunk("user_message_chunk", "here"))
    theirs.add(chunk("agent_message_chunk", "one\ntwo"))
    [other] = theirs.turns()
    assert (ours.words, ours.answer, ours.first, ours.at) == (other.words, other.answer, 3, 7)
    assert ours.ids == {"m1"}


def test_memory_and_steps_are_bounded_for_what_others_wrote() -> None:
    reading = ComparedTurns()
    for number in range(MOST_TURNS + 5):
        reading.add(chunk("user_message_chunk", "x" * 9000, f"m{number}"))
    found = reading.turns()
    assert len(found) == MOST_TURNS
    assert max(len(turn.words) for turn in found) < 3000
    many = letters("a" * (MOST_TURNS - 1))
    assert len(many) ** 2 > MOST_STEPS
    assert len(shared_run(many, many)) == len(many)
    assert shared_run([*many, *letters("b")], [*many, *letters("c")])
    apart = ([f"{LONG}{side}{n}" for n in range(MOST_TURNS)] for side in "ab")
    ours, theirs = ([ComparedTurn(words=text) for text in side] for side in apart)
    begun = process_time()
    assert not shared_run(ours, theirs)
    assert process_time() - begun < 2  # of 25 million pairs


def test_a_prompt_that_quotes_a_mark_keeps_its_words_and_its_title() -> None:
    mark = HandOver("s", 3, "0" * 16)
    said = with_mark(f"{HEADING}\n\n{BEGINNING}.\n\nWhy does it print this?", mark)
    [ours] = replay((said, "yes"))
    assert shared_run([ours], replay((said, "yes"))) == {0: 0}
    assert ours.words.endswith("Whydoesitprintthis?")
    assert title_of_words(said)
