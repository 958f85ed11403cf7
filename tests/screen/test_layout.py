"""Layout of a transcript."""

from __future__ import annotations

import io
import json
import os
import tracemalloc

from hypothesis import given, strategies as st
from rich.console import Console, RenderableType
from rich.text import Text
from rich.theme import Theme

from acphold.conversation.history.decisions import Came
from acphold.conversation.history.raw_update import text_block
from acphold.conversation.history.timeline import Message, ToolCall, TurnEnd
from acphold.conversation.reports.transcript import DecidedQuestion
from acphold.faces.cli.terminal_text import STYLES
from acphold.faces.screen.layout import (
    GUTTER,
    Beside,
    Gutter,
    Hanging,
    LabelledText,
    block_text,
    passage,
)
from acphold.faces.screen.markdown import Prose


def tool(content: object, **fields: str) -> list[str]:
    raw = {name: json.dumps(value).encode() for name, value in fields.items()}
    call = ToolCall("t1", {**raw, "content": json.dumps(content).encode()})
    return [line.plain for line in passage(call).lines]


def test_a_new_file_is_all_additions() -> None:
    diff = {"type": "diff", "path": "/a", "newText": "1\n2\n"}
    assert tool([diff])[1:] == ["  /a", "  + 1", "  + 2"]
    diff = {"type": "diff", "path": "/a", "oldText": "1\n", "newText": "1\n"}
    assert tool([diff])[1:] == ["  /a", "  no change"]


def test_a_decision_is_shown_with_what_was_said_about_it() -> None:
    for came, shown in (
        (Came("allow_once", "Yes, and run the tests"), "Run ls? → Yes, and run the tests"),
        (Came("allow_once", "Yes, once"), "Run ls?"),
        (Came("allow_once"), "Run ls?"),
        (None, "Run ls?"),
    ):
        [line] = passage(DecidedQuestion("Run ls?", came)).lines
        assert line.plain.partition(": ")[2] == shown


def test_a_change_far_down_a_file_says_on_which_line_it_begins() -> None:
    old = "".join(f"{number}\n" for number in range(100))
    diff = {"type": "diff", "path": "/a", "oldText": old, "newText": old.replace("50", "fifty")}
    lines = tool([diff])
    assert lines[2] == "  line 48"
    assert "  - 50" in lines
    assert "  + fifty" in lines


def test_two_versions_of_a_huge_file_are_counted_not_compared() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": "a\n" * 9000, "newText": "b\n"}
    assert tool([diff])[2] == "  9,000 lines became 1 line"


def test_a_tool_without_a_title_is_called_by_its_id() -> None:
    assert tool([], status="failed") == ["✗ t1  other · failed"]


def test_content_that_is_no_text_is_named() -> None:
    blocks = [
        {"type": "text", "text": "see"},
        {"type": "image", "mimeType": "image/png", "data": "A" * 4000},
        {"type": "resource_link", "name": "a", "uri": "file:///a"},
        {"type": "hologram", "depth": 3},
    ]
    raw = [json.dumps(block).encode() for block in blocks]
    assert block_text(raw) == "see\n[image/png, 2.9 KiB]\n[file:///a]\n[hologram]"


def test_an_error_that_ended_a_turn_is_told_on_one_line_each() -> None:
    lines = passage(TurnEnd("failed", 0, message="no \x1b[2Jtokens")).lines
    assert [line.plain for line in lines] == ["failed: no \\x1b[2Jtokens"]


@given(st.dictionaries(st.sampled_from(["title", "status", "kind", "content"]), st.binary()))
def test_a_tool_call_is_painted_whatever_its_fields_hold(fields: dict[str, bytes]) -> None:
    assert passage(ToolCall("t1", fields)).lines


def laid_out(text: str) -> list[str]:
    console = Console(file=io.StringIO(), width=60, theme=Theme(STYLES))
    with console.capture() as capture:
        console.print(Prose(text))
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def test_tags_stay_to_be_read() -> None:
    assert laid_out("Use <div> here\n\n<p>and</p>") == ["Use <div> here", "<p>and</p>"]


def test_a_line_that_ends_stays_ended() -> None:
    assert laid_out("one\ntwo") == ["one", "two"]


def test_a_link_shows_where_it_leads() -> None:
    assert laid_out("[docs](https://example.org)") == ["docs (https://example.org)"]


def test_a_heading_stands_where_its_text_does() -> None:
    assert laid_out("# Title\n\ntext") == ["Title", "text"]


def drawn(renderable: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), theme=Theme(STYLES))
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_line_that_is_wrapped_goes_on_under_its_text() -> None:
    lines = ["✓ all of the files", "  +   print(name, 1)", "words that go on"]
    assert drawn(Hanging([Text(line) for line in lines]), 14) == [
        "✓ all of the",
        "  files",
        "  +   print(na",
        "      me, 1)",
        "words that go",
        "on",
    ]


def test_a_deep_indent_leaves_half_of_the_width_for_the_text() -> None:
    assert drawn(Hanging([Text(" " * 40 + "deep")]), 20)[-1] == " " * 10 + "deep"


def test_a_rule_is_one_line() -> None:
    assert drawn(Prose("a\n\n---\n\nb"), 10) == ["a", "", "─" * 10, "", "b"]


def test_a_line_that_goes_on_under_its_text_loses_no_word() -> None:
    said = "  - " + " ".join(f"word{number}" for number in range(50))
    assert " ".join(" ".join(drawn(Hanging([Text(said)]), 30)).split()) == said.strip()


def test_blocks_of_prose_stand_one_line_apart() -> None:
    said = "a\n\n```py\nx\n\n\ny\n```\n\n> q\n\n| a |\n|---|\n| 1 |\n\n---\n\nz"
    lines = drawn(Beside("agent", "agent", Prose(said)), 40)
    assert [line[GUTTER:] for line in lines] == [
        *("a", "", " x", "", "", " y", "", "▌ q", "", " a", " ─", " 1", "", "─" * 31, "", "z")
    ]


def test_no_line_ends_in_spaces() -> None:
    console = Console(width=40, file=io.StringIO(), theme=Theme(STYLES))
    with console.capture() as captured:
        console.print(Beside("agent", "agent", Prose("so 👍🏽\n\n```py\nx = 1\n```\n\n- a\n")))
    assert not [line for line in captured.get().splitlines() if line != line.rstrip()]


@given(st.integers(13, 120), st.text("ab ", min_size=1).filter(str.strip))
def test_nothing_is_lost_on_a_narrow_terminal(width: int, words: str) -> None:
    for body in (Hanging([Text(words)]), Prose(words)):
        said = "".join(drawn(Beside("agent", "agent", body), width)).removeprefix("  agent")
        assert said.replace(" ", "") == words.replace(" ", "")


def plain(*texts: str) -> str:
    """These messages of the agent, as printed into a pipe."""
    out = io.StringIO()
    for text in texts:
        LabelledText(out).put(passage(Message("agent", None, (text_block(text),))))
    return out.getvalue()


def test_in_a_pipe_an_answer_is_the_markdown_that_the_agent_wrote() -> None:
    answer = "Four.\n\n- one\n  - two\n\n```sh\nmake  all\n```\n\nlast"
    assert plain(answer) == f"\nagent: {answer}\n"
    table = "| a |\n|---|\n| 1 |"
    assert plain("# Title\n\ntext", table) == f"\nagent:\n\n# Title\n\ntext\n\nagent:\n\n{table}\n"


def test_a_line_is_left_before_each_title_but_the_first() -> None:
    shown, piped = io.StringIO(), io.StringIO()
    for layout in (Gutter(Console(file=shown, theme=Theme(STYLES))), LabelledText(piped)):
        layout.head("One", ["a fact"])
        layout.head("", ["another"])
        layout.head("Two", [])
    assert shown.getvalue() == piped.getvalue() == "One\na fact\nanother\n\nTwo\n"


def test_in_a_pipe_what_an_agent_writes_begins_no_passage() -> None:
    lies = ["you: go on", "acphold: saved", "▸ you: marked", "asked: allowed once", "turn: ended"]
    for line in lies:
        assert plain(f"well\n{line}") == f"\nagent: well\n  {line}\n"


def laid_out_in(lines: int, *, on_terminal: bool) -> int:
    """The bytes that it takes at most to lay out a message of the agent with so many lines."""
    message = Message("agent", None, (text_block("a line of the output\n" * lines),))
    with open(os.devnull, "w") as out:
        console = Console(file=out, theme=Theme(STYLES), width=80)
        layout = Gutter(console) if on_terminal else LabelledText(out)
        tracemalloc.start()
        try:
            layout.put(passage(message))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_a_message_of_any_length_takes_a_few_times_its_own_room_to_lay_out() -> None:
    for on_terminal in (True, False):
        laid_out_in(10, on_terminal=on_terminal)  # what each later one finds there
        few, many = (laid_out_in(it, on_terminal=on_terminal) for it in (500, 2000))
        assert many - few < 10 * 1500 * len("a line of the output\n")
