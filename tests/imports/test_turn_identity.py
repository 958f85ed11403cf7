"""The identity of a turn: the same in every copy of a conversation, and of no other turn."""

from __future__ import annotations

from acphold.imports.entry_writer import EntryWriter
from acphold.imports.sources import Facts
from acphold.imports.turns import KnownPart, ReadTurn, compare


def identities(*prompts: tuple[int, str, str]) -> list[str]:
    """The identities of prompts, given as time, words and the program's id."""
    writer = EntryWriter(Facts("agent", "s"))
    for at, words, turn in prompts:
        writer.clock(at)
        writer.prompt([{"type": "text", "text": words}], turn=turn)
    return [entry.turn for entry in writer.take() if entry.turn]


def test_a_prompt_is_known_by_its_programs_id_whatever_the_time() -> None:
    assert identities((1, "go", "a")) == identities((2, " go\n", "a"))
    assert identities((1, "go", "a")) != identities((1, "go", "b"))


def test_numbers_that_begin_anew_in_each_conversation_prove_nothing() -> None:
    assert identities((1, "go", "0")) != identities((1, "stop", "0"))


def test_without_an_id_words_and_their_time_are_one() -> None:
    assert identities((1, "go", "")) == identities((1, "go", ""))
    assert identities((1, "go", "")) != identities((2, "go", ""))


def test_a_time_that_goes_back_is_still_that_of_the_prompt() -> None:
    assert identities((9, "first", ""), (1, "go", ""))[1:] == identities((1, "go", ""))


def test_equal_words_at_one_time_are_several_turns() -> None:
    five = identities(*[(1, "continue", "")] * 5)
    assert len({*five}) == 5
    assert identities(*[(1, "continue", "")] * 3) == five[:3]


def test_the_rest_of_a_turn_is_told_though_it_stands_here_twice() -> None:
    ours = [ReadTurn("a", "go", 1, count=2, digest="same") for _ in range(2)]
    theirs = [ReadTurn("a", "go", 1, count=3, digest="same")]
    found = compare(KnownPart(ours), theirs)
    assert (found.void, found.rest) == ([0], 0)


def test_a_part_without_turns_has_nothing_to_tell() -> None:
    ours = [ReadTurn("a", "go", 1)]
    assert compare(KnownPart(ours, is_part=True), []).known == {}
