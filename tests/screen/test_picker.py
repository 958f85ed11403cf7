"""The list of sessions: its columns, whatever their texts are, and what is marked in them."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from acphold.faces.screen.picker import end_of, highlight, shorten


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("~/shop", 14, "~/shop"),
        ("~/work/customers/shop", 14, "…/shop"),
        ("~/work/customers/shop", 16, "…/customers/shop"),
        ("~/work/shop/", 9, "…/shop"),
        ("~/work/shop-of-europe", 9, "…f-europe"),
        ("~/仕事/日本の店", 10, "…/日本の店"),
        ("~/仕事/日本の店", 9, "…日本の店"),
        ("~/仕事/日本の店", 6, "…の店"),
        ("/" * 1_000_000, 9, "…"),
        ("~/仕事", 1, "…"),
    ],
)
def test_a_long_path_loses_its_beginning_and_keeps_its_last_folder(
    path: str, width: int, shown: str
) -> None:
    assert end_of(path, width) == shown
    assert cell_len(shown) <= width


@pytest.mark.parametrize(
    ("text", "is_twin", "shown"),
    [
        ("Rename the settings", True, "Rename the settings"),
        ("Rename the settings in the web application", False, "Rename the settings in …"),
        ("Rename the settings in the web application", True, "Rename the s…application"),
        ("Rename the settings in the terminal", True, "Rename the s…terminal"),
        ("x" * 100, True, "x" * 11 + "…" + "x" * 12),
        ("日本" * 20, True, "日本日本日…日本日本日本"),
    ],
)
def test_twins_are_told_apart_by_their_last_words(text: str, is_twin: bool, shown: str) -> None:
    found = shorten(text, 24, is_twin=is_twin)
    assert cell_len(found) <= 24
    assert found.partition("…")[2] == shown.partition("…")[2]
    assert found.startswith(shown[:8])


def test_the_places_of_the_words_are_marked_whatever_their_case() -> None:
    assert highlight("A Needle, needles", ["needle"], "") == [
        ("", "A "),
        ("class:match", "Needle"),
        ("", ", "),
        ("class:match", "needle"),
        ("", "s"),
    ]
    assert highlight("ẞ needle", ["needle"], "") == [("", "ẞ needle")]
