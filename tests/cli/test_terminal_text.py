"""Text for a terminal: visible, shortened, counted, dated."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import datetime

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from acp_wire.visible_text import exact
from acphold.conversation.history.entries import iso
from acphold.faces.cli.terminal_text import (
    age,
    cut,
    folder,
    on_one_line,
    quantity,
    short_age,
    size,
    visible,
    visible_json,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))

DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
"""Classes of characters that only change the direction of text; source: Unicode, UAX 9."""


UNDRAWN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2028\u2029\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Invisible characters beside the format characters; from Unicode's DerivedCoreProperties."""

DRAWN = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]")
"""Signs below the Arabic number behind them."""


def obeyed(text: str) -> list[str]:
    """The characters in it that a terminal obeys or that are invisible."""
    return [
        c
        for c in text
        if (unicodedata.category(c) == "Cc" and c not in "\n\t")
        or unicodedata.bidirectional(c) in DIRECTIONS
        or (unicodedata.category(c) == "Cf" and not DRAWN.match(c))
        or UNDRAWN.match(c)
    ]


CUTS = st.sampled_from("ab\u200b\u200d\ufe0f\u00ad\u2063\ufeff\u3164\U000e0061\U000e0100 \n")
"""Characters that nobody sees between some that everybody does."""


@given(st.one_of(ANY_TEXT, st.text(CUTS)))
def test_visible_text_holds_nothing_that_a_terminal_obeys_or_nobody_sees(text: str) -> None:
    shown = visible(text)
    assert not obeyed(shown)
    shown.encode()  # no lone surrogates


@given(st.text(st.characters(max_codepoint=127)))
def test_text_of_plain_letters_is_shown_as_it_is_beside_others(text: str) -> None:
    assert visible(text) == visible(f"{text}é")[:-1]


@given(st.lists(st.dictionaries(ANY_TEXT, ANY_TEXT)))
def test_visible_json_means_the_same_and_holds_nothing_that_a_terminal_obeys(data: object) -> None:
    for ascii in (True, False):
        raw = json.dumps(data, ensure_ascii=ascii)
        assert json.loads(visible_json(raw)) == data
        assert not obeyed(visible_json(raw))


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Cn"))))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    text = UNDRAWN.sub("", text)
    assert visible(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f4bb",  # a woman with a computer
        "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire
        "1\ufe0f\u20e3 \u2702\ufe0e",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with its space of no width
        "\u0915\u094d\u200d\u0937",
        "\u0600\u0661\u0662",
        "\u845b\U000e0100\u57ce",  # one way to write a name in Japanese
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland
    ],
)
def test_what_languages_and_pictures_are_written_with_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("r\u200bm", "r\\u200bm"),
        ("\u200dx", "\\u200dx"),
        ("so\u00adft", "so\\xadft"),
        ("\U0001f3f4\U000e0072\U000e006d", "\U0001f3f4\\U000e0072\\U000e006d"),
        ("\U0001f600\ufe0f\ufe01\U000e0101", "\U0001f600\ufe0f\\ufe01\\U000e0101"),
        ("\u845b\U000e0100\U000e0101", "\u845b\U000e0100\\U000e0101"),
        ("\u0645\u200c\u200d\u200c", "\u0645\\u200c\\u200d\\u200c"),
        ("one\u2028two", "one\\u2028two"),
        ("a\u2800b\u0600c\U00013430", "a\\u2800b\\u0600c\\U00013430"),
    ],
)
def test_what_a_model_reads_and_nobody_sees_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text


def test_a_command_shows_each_character_that_somebody_could_overlook() -> None:
    for code in range(0x110000):
        character = chr(code)
        is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Zs")
        if is_hidden and character not in " \t\n":
            assert exact(f"a{character}b") == f"a{exact(character)}b" != f"a{character}b"
            assert exact(character).isascii()
    assert exact("\u2764\ufe0f\u200d\U0001f525") == "\u2764\\ufe0f\\u200d\U0001f525"
    assert exact("\u0645\u06cc\u200c\u062e") == "\u0645\u06cc\\u200c\u062e"
    assert exact("a\r\nb\u00a0c") == "a\\x0d\nb\\xa0c"
    assert exact("rm -rf \u2800\u3164\U000e0100 'ü' 木 😀") == (
        "rm -rf \\u2800\\u3164\\U000e0100 'ü' 木 😀"
    )


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
    assert [quantity(1, "line"), quantity(2, "line")] == ["1 line", "2 lines"]


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
