"""Exact replacements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.model.editing import first_change, replaced
from holdfast.errors import InvalidParamsError

TEXTS = st.text("ab\n", max_size=30)


def test_what_occurs_once_is_replaced() -> None:
    assert replaced("one two three", "two", "2") == "one 2 three"


def test_what_occurs_often_is_refused_with_its_lines() -> None:
    with pytest.raises(InvalidParamsError, match=r"2 times \(lines 1, 3\)"):
        replaced("x\ny\nx\n", "x", "z")


def test_all_of_it_is_replaced_when_that_is_asked_for() -> None:
    assert replaced("x\ny\nx\n", "x", "z", everywhere=True) == "z\ny\nz\n"


@pytest.mark.parametrize(("old", "new"), [("", "a"), ("a", "a"), ("missing", "b")])
def test_what_changes_nothing_is_refused(old: str, new: str) -> None:
    with pytest.raises(InvalidParamsError):
        replaced("a b c", old, new)


def test_line_ends_of_the_file_are_kept() -> None:
    assert replaced("a\r\nb\r\nc\r\n", "a\nb", "x\ny") == "x\r\ny\r\nc\r\n"


@given(before=TEXTS, after=TEXTS)
def test_a_replacement_touches_nothing_else(before: str, after: str) -> None:
    assert replaced(f"{before}OLD{after}", "OLD", "NEW") == f"{before}NEW{after}"


@given(before=st.lists(st.text("ab", max_size=3), max_size=5))
def test_the_first_changed_line_is_named(before: list[str]) -> None:
    text = "".join(f"{line}\n" for line in before)
    assert first_change(f"{text}x\n", f"{text}y\n") == len(before) + 1
