"""Records that name their parents, in every order and with links that are gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from acphold.imports.record_tree import CLASHES, HELD_BYTES, KeptPart, RecordTree
from acphold.imports.salvage import RecordLine
from acphold.imports.values import ABANDONED, Missed, digest_of

Record = tuple[str, str | None, bool]
"""An id, that of the parent, and whether a person wrote it."""


def tree(records: list[Record]) -> RecordTree:
    made = RecordTree()
    for record_id, parent, typed in records:
        made.add(record_id, parent, typed=typed)
    return made


def select(made: RecordTree, *lines: RecordLine, item: str = "") -> list[bytes]:
    made.choose(item, Missed())
    return [line.raw for line in made.select(lines)]


def told(records: list[Record], item: str = "") -> list[str]:
    lines = [RecordLine(0, record[0].encode()) for record in records]
    return [raw.decode() for raw in select(tree(records), *lines, item=item)]


def chain(length: int) -> list[Record]:
    """A conversation in which nobody went back: every third record is a prompt."""
    return [(f"r{n}", f"r{n - 1}" if n else None, n % 3 == 0) for n in range(length)]


@given(st.integers(1, 30), st.randoms(use_true_random=False))
def test_all_of_a_conversation_is_told_in_whatever_order_its_lines_stand(
    length: int, random: Random
) -> None:
    records = chain(length)
    shuffled = random.sample(records, length)
    assert told(shuffled) == [record_id for record_id, _, _ in records]


def test_many_compactions_take_no_longer_than_their_records() -> None:
    def grow(records: int) -> float:
        began, made = time.process_time(), RecordTree()
        made.add("elsewhere", None, typed=False)
        for number in range(records):
            kept = KeptPart("elsewhere", f"r{number - 1}") if number % 2 else None
            made.add(f"r{number}", f"r{number - 1}", typed=False, compacts=kept)
        return time.process_time() - began

    few, many = (min(grow(records) for _ in range(3)) for records in (500, 8_000))
    assert many < 64 * few


@given(st.integers(1, 30), st.data())
def test_a_first_record_that_names_a_later_one_as_its_parent_leaves_nothing_behind(
    length: int, data: st.DataObject
) -> None:
    records = chain(length)
    records[0] = "r0", f"r{data.draw(st.integers(0, length - 1))}", True
    assert told(records) == [record_id for record_id, _, _ in records]


@given(st.integers(2, 30), st.data())
def test_the_other_lines_are_told_whichever_are_gone(length: int, data: st.DataObject) -> None:
    records = chain(length)
    gone = data.draw(st.sets(st.sampled_from(records[1:])))
    left = [record for record in records if record not in gone]
    assert told(left) == [record_id for record_id, _, _ in left]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 12), st.booleans()), max_size=20))
def test_every_record_is_told_or_on_a_branch_that_was_left(
    numbers: list[tuple[int, int, bool]],
) -> None:
    records: list[Record] = [(f"r{n}", f"r{p}" if p >= 0 else None, t) for n, p, t in numbers]
    seen = set(told(records))
    for item in tree(records).branch_ends():
        seen.update(told(records, item))
    assert seen == {record_id for record_id, _, _ in records}


def test_of_two_first_prompts_the_one_that_was_gone_on_with_is_told() -> None:
    records: list[Record] = [
        ("a", None, True),
        ("b", "a", False),
        ("c", None, True),
        ("d", "c", False),
        ("e", "never written", False),
    ]
    assert told(records) == ["c", "d", "e"]
    assert [*tree(records).branch_ends()] == [digest_of("a", 4)]
    assert told(records, digest_of("a", 4)) == ["a", "b", "e"]


def test_a_copy_of_a_record_is_not_told_again() -> None:
    records = chain(4)
    assert told([*records, *records]) == ["r0", "r1", "r2", "r3"]


def test_a_line_without_an_id_is_told_where_it_stands() -> None:
    made = RecordTree()
    made.add("a", None, typed=True)
    made.add("", None, typed=False)
    made.add("b", "a", typed=False)
    lines = [RecordLine(0, raw) for raw in (b"a", b"beside", b"b")]
    assert select(made, *lines) == [b"a", b"beside", b"b"]


def test_lines_beyond_what_can_be_held_back_are_told_where_they_stand() -> None:
    records: list[Record] = [("b", "a", False), ("c", "a", False), ("a", None, True)]
    most = b"x" * (HELD_BYTES // 2 + 1)
    lines = [RecordLine(1, most), RecordLine(2, most), RecordLine(3, b"a")]
    made = tree(records)
    made.choose()
    assert [line.offset for line in made.select(lines)] == [2, 3, 1]


def test_lines_that_came_since_are_left_for_the_next_time() -> None:
    records = chain(2)
    lines = [RecordLine(0, b"r0"), RecordLine(0, b"r1"), RecordLine(0, b"r2")]
    assert select(tree(records), *lines) == [b"r0", b"r1"]


# -- only a newer prompt leaves anything behind ----------------------------------------------------


def spoken(*turns: str, begin: str | None = None) -> list[Record]:
    """Turns that follow each other: each a prompt and its answer."""
    records: list[Record] = []
    for name in turns:
        records += [(f"{name}?", begin, True), (f"{name}!", f"{name}?", False)]
        begin = f"{name}!"
    return records


def prompts(records: list[Record]) -> str:
    return "".join(name[0] for name in told(records) if name.endswith("?"))


def test_turns_behind_a_newer_prompt_are_left() -> None:
    assert prompts([*spoken("a", "b", "c"), *spoken("d", begin="a!")]) == "ad"
    # Also when an older way was gone on with before that.
    assert prompts([*spoken("a", "b"), *spoken("c", begin="a!"), *spoken("d", begin="a!")]) == "ad"


def test_a_record_that_is_no_prompt_leaves_nothing_behind() -> None:
    late: list[Record] = [("late", "a?", False), ("and", "late", False)]
    assert prompts([*spoken("a", "b", "c"), *late]) == "abc"
    assert told([*spoken("a", "b"), *late])[-2:] == ["late", "and"]


def test_records_that_all_name_one_parent_are_a_list() -> None:
    parents = {"Q1": None, "A1": "Q1", "Q2": "Q1", "A2": "Q1", "Q3": "Q1", "A3": "Q1"}
    for records in (parents, {"begin": None} | dict.fromkeys(parents, "begin")):
        made = RecordTree()
        for name, parent in records.items():
            made.add(name, parent, typed=name[0] == "Q", answers=name[0] == "A")
        assert select(made, *(RecordLine(0, name.encode()) for name in records)) == [
            name.encode() for name in records
        ]


def test_records_that_have_the_id_of_another_one_are_counted() -> None:
    made, missed = RecordTree(), Missed()
    for words in ("Q1", "A1", "Q1", "Q2", "A2"):
        typed = words[0] == "Q"
        made.add("a", None, typed=typed, answers=not typed, words=words)
    made.choose("", missed)
    assert missed.counts == {CLASHES: 3}


def test_a_command_for_the_program_leaves_nothing_behind() -> None:
    made = tree(spoken("a", "b"))
    made.add("rename", "a!", typed=True, command=True)
    lines = [RecordLine(0, name.encode()) for name in ("a?", "a!", "b?", "b!", "rename")]
    assert select(made, *lines)[2] == b"b?"


def test_two_programs_that_write_at_one_time_leave_nothing_behind() -> None:
    one, other = spoken("b", "c", "d", begin="a!"), spoken("x", "y", begin="a!")
    mixed = [*spoken("a"), *one[:2], *other[:2], *one[2:4], *other[2:], *one[4:]]
    assert {*prompts(mixed)} == {*"abcdxy"}


def test_a_prompt_sent_again_because_nothing_answered_leaves_nothing_behind() -> None:
    def made(answer: bool, words: str) -> str:
        made = tree(spoken("a", "b"))
        made.add("c?", "b!", typed=True, words="go on")
        if answer:
            made.add("c!", "c?", typed=False, answers=True)
        made.add("d?", "a!", typed=True, words=words)
        names = ["a?", "a!", "b?", "b!", "c?", *["c!"] * answer, "d?"]
        lines = [RecordLine(0, name.encode()) for name in names]
        missed = Missed()
        made.choose("", missed)
        told = [line.raw.decode() for line in made.select(lines)]
        assert missed.counts[ABANDONED] == (0 if "b?" in told else 2)
        return "".join(name[0] for name in told if name.endswith("?"))

    assert made(answer=False, words="go on") == "abd"
    assert made(answer=True, words="go on") == "ad"
    assert made(answer=False, words="something else") == "ad"


def add_chain(made: RecordTree, length: int) -> None:
    """Add records each of which names the next one as its parent."""
    for n in range(length):
        made.add(f"r{n}", f"r{n + 1}", typed=True, words="continue")
    made.choose("", Missed())


def add_copies(made: RecordTree, length: int) -> None:
    """Add copies of answers behind a long way that does not begin with their prompt."""
    made.add("p", None, typed=True, words="continue", said=1)
    for n in range(length):
        made.add(f"a{n}", "p", typed=False, answers=True, said=n + 2)
    made.add("again", "a0", typed=True, words="continue", said=1)
    for n in range(length):
        made.add(f"b{n}", f"b{n - 1}" if n else "x", typed=False, answers=True)
    for n in range(length):
        made.add(f"c{n}", f"b{length - 1}", typed=False, answers=True, said=n + 2)


def lines_run(add: Callable[[RecordTree, int], None], length: int) -> int:
    """Count the lines that run while records are added to a tree."""
    count, before = 0, sys.gettrace()

    def traced(*_: Any) -> Any:
        nonlocal count
        count += 1
        return traced

    sys.settrace(traced)
    try:
        add(RecordTree(), length)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("add", [add_chain, add_copies])
def test_prompts_sent_again_are_found_in_linear_time_whatever_the_parents(
    add: Callable[[RecordTree, int], None],
) -> None:
    assert lines_run(add, 400) < 5 * lines_run(add, 100)
