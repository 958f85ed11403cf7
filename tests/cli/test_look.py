"""Text for a terminal: visible, shortened, counted."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from acphold.cli.look import counted, cut, folder, on_one_line, shortened, size, visible

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    shown.encode()  # no lone surrogates


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(ANY_TEXT)
def test_one_line_is_one_line(text: str) -> None:
    assert "\n" not in on_one_line(text)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))), st.integers(2, 30))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert cell_len(shortened(text, width)) <= max(width, 0)
    assert cell_len(cut(text, width)) <= width


def test_a_shortened_folder_keeps_both_ends() -> None:
    assert shortened("/home/somebody/project", 12) == "/home/…oject"


def test_the_home_folder_is_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert folder("/home/me/src") == "~/src"
    assert folder("/home/me") == "~"
    assert folder("/home/meagan") == "/home/meagan"


def test_sizes_and_counts_are_for_people() -> None:
    assert [size(640), size(1536), size(5 << 30)] == ["640 bytes", "1.5 KiB", "5.0 GiB"]
    assert [counted(1, "line"), counted(2, "line")] == ["1 line", "2 lines"]
