"""Text for a terminal: visible, shortened, counted, dated."""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from acphold.cli.terminal_text import (
    age,
    counted,
    cut,
    folder,
    iso,
    on_one_line,
    short_age,
    size,
    visible,
    visible_json,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))

DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
"""Classes of characters that only change the direction of text; source: Unicode, UAX 9."""


def obeyed(text: str) -> list[str]:
    """What a terminal would obey in it."""
    marks = "\u061c\u200e\u200f"
    return [
        c
        for c in text
        if (unicodedata.category(c) == "Cc" and c not in "\n\t")
        or unicodedata.bidirectional(c) in DIRECTIONS
        or c in marks
    ]


@given(ANY_TEXT)
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = visible(text)
    assert not obeyed(shown)
    shown.encode()  # no lone surrogates


@given(st.lists(st.dictionaries(ANY_TEXT, ANY_TEXT)))
def test_visible_json_means_the_same_and_holds_nothing_that_a_terminal_obeys(data: object) -> None:
    for ascii in (True, False):
        raw = json.dumps(data, ensure_ascii=ascii)
        assert json.loads(visible_json(raw)) == data
        assert not obeyed(visible_json(raw))


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(ANY_TEXT)
def test_one_line_is_one_line(text: str) -> None:
    assert "\n" not in on_one_line(text)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))), st.integers(2, 30))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width


def test_the_home_folder_is_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert folder("/home/me/src") == "~/src"
    assert folder("/home/me") == "~"
    assert folder("/home/meagan") == "/home/meagan"


def test_sizes_and_counts_are_for_people() -> None:
    assert [size(640), size(1536), size(5 << 30)] == ["640 bytes", "1.5 KiB", "5.0 GiB"]
    assert [counted(1, "line"), counted(2, "line")] == ["1 line", "2 lines"]


SECOND = 1000
DAY = 86_400 * SECOND


@pytest.mark.parametrize(
    ("passed", "words", "short"),
    [
        (-DAY, "just now", "now"),
        (59 * SECOND, "just now", "now"),
        (60 * SECOND, "1 minute ago", "1m"),
        (7_199 * SECOND, "1 hour ago", "1h"),
        (2 * DAY, "2 days ago", "2d"),
        (15 * DAY, "2 weeks ago", "2w"),
        (100 * DAY, "3 months ago", "3mo"),
        (800 * DAY, "2 years ago", "2y"),
    ],
)
def test_an_age_is_in_the_largest_unit_that_fits(passed: int, words: str, short: str) -> None:
    now = 1_800_000_000_000
    assert age(now - passed, now) == words
    assert short_age(now - passed, now) == short


@given(st.integers(0, 4_000_000_000_000))
def test_iso_times_are_utc_and_can_be_read_back(at: int) -> None:
    assert round(datetime.fromisoformat(iso(at)).timestamp() * 1000) == at
