"""Records that name their parents, in every order and with links that are gone."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from acphold.imports.records import HELD_BYTES, RecordTree
from acphold.imports.salvage import RecordLine

Record = tuple[str, str | None, bool]
"""An id, that of the parent, and whether a person wrote it."""


def tree(records: list[Record]) -> RecordTree:
    made = RecordTree()
    for record_id, parent, typed in records:
        made.add(record_id, parent, typed=typed)
    return made


def told(records: list[Record], end: int | None = None) -> list[str]:
    lines = [RecordLine(0, record[0].encode()) for record in records]
    return [line.raw.decode() for line in tree(records).select(lines, end)]


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
    for end in tree(records).branch_ends():
        seen.update(told(records, end))
    assert seen == {record_id for record_id, _, _ in records}


def test_a_prompt_behind_a_lost_link_is_no_going_back() -> None:
    records: list[Record] = [
        ("a", None, True),
        ("b", "a", False),
        ("c", "b", True),
        ("d", "never written", True),
        ("e", "d", True),
    ]
    assert told(records) == ["a", "b", "c", "d", "e"]


def test_of_two_first_prompts_the_one_that_was_gone_on_with_is_told() -> None:
    records: list[Record] = [
        ("a", None, True),
        ("b", "a", False),
        ("c", None, True),
        ("d", "c", False),
        ("e", "never written", False),
    ]
    assert told(records) == ["c", "d", "e"]
    (end,) = tree(records).branch_ends()
    assert told(records, end) == ["a", "b", "e"]


def test_a_copy_of_a_record_is_not_told_again() -> None:
    records = chain(4)
    assert told([*records, *records]) == ["r0", "r1", "r2", "r3"]


def test_a_line_without_an_id_is_told_where_it_stands() -> None:
    made = RecordTree()
    made.add("a", None, typed=True)
    made.add("", None, typed=False)
    made.add("b", "a", typed=False)
    lines = [RecordLine(0, raw) for raw in (b"a", b"beside", b"b")]
    assert [line.raw for line in made.select(lines)] == [b"a", b"beside", b"b"]


def test_lines_beyond_what_can_be_held_back_are_told_where_they_stand() -> None:
    records: list[Record] = [("b", "a", False), ("c", "a", False), ("a", None, True)]
    most = b"x" * (HELD_BYTES // 2 + 1)
    lines = [RecordLine(1, most), RecordLine(2, most), RecordLine(3, b"a")]
    assert [line.offset for line in tree(records).select(lines)] == [2, 3, 1]


def test_lines_that_came_since_are_left_for_the_next_time() -> None:
    records = chain(2)
    lines = [RecordLine(0, b"r0"), RecordLine(0, b"r1"), RecordLine(0, b"r2")]
    assert [line.raw for line in tree(records).select(lines)] == [b"r0", b"r1"]
