"""Output of a program keeps its colours, and nothing else that a terminal obeys."""

from __future__ import annotations

import json

import pytest

from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.visible_text import visible
from acphold.faces.screen import layout
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


LONG = {
    "lines": "one line of it, \x1b[31mred\x1b[0m\n" * 100_000,
    "no line end": "x" * 3_000_000,
    "fenced": f"```\n{'y y y' * 4}\n{'z' * 20}\n" + "y\n" * 500_000 + "```\n",
}


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_of_long_output_only_what_is_shown_is_looked_at_letter_by_letter(
    text: str, brief: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def counting(part: str) -> str:
        looked.append(len(part))
        return visible(part)

    monkeypatch.setattr(layout, "visible", counting)
    content = json.dumps([{"type": "content", "content": {"type": "text", "text": text}}])
    call = ToolCall("t", {"kind": b'"execute"', "content": content.encode()})
    shown = layout.passage(call, more="; more", brief=brief)
    assert sum(looked) <= layout.OUTPUT_CHARACTERS
    assert len(shown.lines) <= layout.OUTPUT_LINES + 2


def test_the_lines_above_and_below_what_is_shown_are_counted() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 31))
    content = json.dumps([{"type": "content", "content": {"type": "text", "text": text}}])
    call = ToolCall("t", {"kind": b'"execute"', "content": content.encode()})
    whole = [line.plain for line in layout.passage(call, more="; more").lines]
    assert whole[1:3] + whole[-2:] == [
        "  line 1",
        "  line 2",
        "  line 20",
        "  … 10 more lines; more",
    ]
    brief = [line.plain for line in layout.passage(call, more="; more", brief=True).lines]
    assert brief[1:] == ["  … 25 lines above; more", *(f"  line {it}" for it in range(26, 31))]
