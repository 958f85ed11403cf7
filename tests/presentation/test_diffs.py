"""Two versions of a file, line by line."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from acp_wire.schema import Diff
from acphold.conversation.presentation.diffs import DIFF_LINES, diff_lines
from acphold.conversation.reports.line_changes import CONTEXT

HEADER = re.compile(r"@@ -(\d+)(,0)?(?:,\d+)? \+(\d+)(,0)?(?:,\d+)? @@")


def lines_of(old: Sequence[str], new: Sequence[str], *, whole: bool = False) -> list[str]:
    texts = ["".join(f"{line}\n" for line in lines) for lines in (old, new)]
    return diff_lines(Diff(path="/f", old_text=texts[0], new_text=texts[1]), whole=whole)


def patched(old: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The old version with the diff applied; the diff's own numbers must be true."""
    new: list[str] = []
    done = 0
    for line in lines:
        if (
            header := re.fullmatch(r"@@ -(\d+)(,0)?(?:,\d+)? \+(\d+)(,0)?(?:,\d+)? @@", line)
        ) is not None:
            begin = int(header[1]) - (header[2] is None)
            new += old[done:begin]
            done = begin
            assert len(new) == int(header[3]) - (header[4] is None)
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[done] == line[1:]
            new += [line[1:]] * (line[0] == " ")
            done += 1
    return [*new, *old[done:]]


FILES = st.lists(st.sampled_from(["", "a", "b", "c", "}", "return", "x = 1"]), max_size=40)


@given(FILES, FILES)
def test_the_old_version_and_the_diff_make_the_new_one(old: list[str], new: list[str]) -> None:
    lines = lines_of(old, new)
    if old == new:
        assert lines == ["@@ no change @@" if old else "@@ empty @@"]
    else:
        assert patched(old, lines) == new


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a\nb\n", "a\nb\n", "no change"),
        ("a\n" * (DIFF_LINES + 1), "a\n" * (DIFF_LINES + 1), "no change"),
        ("a\r\nb", "a\nb\n", "only line ends change"),
        (None, "", "empty"),
    ],
)
def test_a_change_of_no_line_is_said_in_one(old: str | None, new: str, words: str) -> None:
    assert diff_lines(Diff(path="/f", old_text=old, new_text=new)) == [f"@@ {words} @@"]


@given(st.lists(st.integers(0, 200), max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_lines_that_were_taken_out_are_told_and_no_others(
    numbers: list[int], places: list[int]
) -> None:
    old = list(map(str, dict.fromkeys(numbers)))
    new = [line for place, line in enumerate(old) if place not in places]
    told = [line for line in lines_of(old, new) if line[0] in "+-"]
    assert told == [f"-{line}" for place, line in enumerate(old) if place in places]


def test_a_few_lines_that_stay_stand_around_a_change() -> None:
    old = list(map(str, range(30)))
    lines = lines_of(old, [*old[:15], "new", *old[16:]])
    assert (
        lines
        == list(difflib.unified_diff(old, [*old[:15], "new", *old[16:]], n=CONTEXT, lineterm=""))[
            2:
        ]
    )


def test_of_a_very_long_file_it_is_said_that_it_changed_unless_all_is_wanted() -> None:
    old = list(map(str, range(DIFF_LINES + 1)))
    assert lines_of(old, [*old, "x"]) == [
        f"@@ {DIFF_LINES + 1:,} lines became {DIFF_LINES + 2:,} lines @@"
    ]
    assert patched(old, lines_of(old, [*old, "x"], whole=True)) == [*old, "x"]


def steps(old: Sequence[str], new: Sequence[str]) -> int:
    """The lines of Python that run to compare these."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        lines_of(old, new, whole=True)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("period", [10, 101])
def test_the_work_grows_with_the_length_of_a_file_also_where_lines_come_again_and_again(
    period: int,
) -> None:
    def made(length: int) -> tuple[list[str], list[str]]:
        there = [f"u{n}" if n % 100 == 0 else str(n % period) for n in range(length)]
        back = [f"u{n}" if n % 100 == 0 else str(n * 7 % period) for n in range(length)]
        return there, back

    assert steps(*made(4000)) < 3 * steps(*made(2000))
