"""Output of a program keeps its colours, and nothing else that a terminal obeys."""

from __future__ import annotations

import pytest

from acphold.faces.screen.layout import lines_in_colour


def test_colours_are_shown_and_go_on_over_lines() -> None:
    first, second = lines_in_colour("a \x1b[32mgreen\nand\x1b[0m not")
    assert (first.plain, second.plain) == ("a green", "and not")
    assert [str(span.style) for span in first.spans] == ["color(2)"]
    assert [(span.start, span.end) for span in second.spans] == [(0, 3)]


@pytest.mark.parametrize("told", ["\x1b[2J", "\x1b]0;title\x07", "\x1b[1A", "\x1b[6n", "\x9b2J"])
def test_whatever_else_a_terminal_obeys_is_seen(told: str) -> None:
    [line] = lines_in_colour(f"\x1b[31mred\x1b[0m {told}end")
    assert "\x1b" not in line.plain
    assert "\x9b" not in line.plain
    assert line.plain.startswith("red \\x")


@pytest.mark.parametrize(
    "codes", ["8", "7", "5", "2", "40", "47", "48;5;0", "48;2;0;0;0", "38;5;16", "38;2;9;9;9"]
)
def test_no_colour_hides_words(codes: str) -> None:
    [line] = lines_in_colour(f"\x1b[{codes}mseen\x1b[0m")
    assert line.plain == "seen"
    assert [span for span in line.spans if str(span.style) not in ("", "none")] == []


@pytest.mark.parametrize(
    "codes", ["38;5", "38", "38;2;1", "99999", ";;;", f"38;5;{9:05000}", f"38;2;1;1;{9:05000}"]
)
def test_a_sequence_that_is_cut_or_made_up_colours_nothing(codes: str) -> None:
    [line] = lines_in_colour(f"\x1b[{codes}mseen\x1b[0m")
    assert line.plain == "seen"
