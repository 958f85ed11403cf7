"""Long output of a tool is drawn from its JSON as it would be drawn from all of it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace
from rich.text import Text

from acphold.conversation.history.beginnings import beginning
from acphold.conversation.history.raw_update import members
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation import long_output
from acphold.faces.screen import layout

UNITS = [
    *("word ", "\n", "\r\n", "\r", "\t", " ", "é", "😀", "\u2028", "\x0b", "/", '"'),
    *("\\", "\\\\", "\\n", "\\u000a", "\\ud83d", "\\\\n", "`", "``", "```", "~~~"),
    *("\x1b[31m", "\x1b[0m", "\x1b[38;2;200;", "100;100m", "\x1b[", "\x1b]0;title\x07"),
]
FENCES = ["{}", "```\n{}\n```", "  ~~~~sh \n{}~~~~\n", "```{}\n```", "```text\n{}\n````\n\n"]


def spell(text: str, spelling: str) -> str:
    """Return a text as a JSON string, as one program or another writes it."""
    if spelling == "raw":
        return json.dumps(text, ensure_ascii=False)
    said = json.dumps(text)
    if spelling == "escaped":  # each letter that is no escape
        return '"' + "".join(f"\\u{unit:04X}" for unit in units(text)) + '"'
    return said.replace("/", "\\/") if spelling == "slashes" else said


def units(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]


def call_with(*texts: str, spelling: str = "", kind: str = "execute") -> ToolCall:
    parts = [
        f'{{"type":"content","content":{{"type":"text","text":{spell(text, spelling)}}}}}'
        for text in texts
    ]
    return ToolCall("t", {"kind": f'"{kind}"'.encode(), "content": f"[{','.join(parts)}]".encode()})


@pytest.fixture
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand characters are long."""
    monkeypatch.setattr(layout, "OUTPUT_CHARACTERS", 40)
    monkeypatch.setattr(long_output, "END_BYTES", 600)
    monkeypatch.setattr(long_output, "PIECE_BYTES", 31)


@pytest.mark.usefixtures("short_bounds")
@given(
    units=st.lists(st.sampled_from(UNITS), min_size=1, max_size=12),
    end=st.sampled_from(UNITS),
    fence=st.sampled_from(FENCES),
    spelling=st.sampled_from(["", "raw", "escaped", "slashes"]),
    brief=st.booleans(),
)
@example(["😀"], "x", "{}", "", False)
@example(["\\"], "\n", "{}", "", True)
@example(["word ", "\n"], "```", "```\n{}\n```", "raw", True)
def test_it_is_drawn_like_all_of_it(
    units: list[str], end: str, fence: str, spelling: str, brief: bool
) -> None:
    beginning = "".join(units)
    text = fence.format(beginning * (3000 // len(beginning)) + end)
    call = call_with("short", text, spelling=spelling)
    cut = layout.passage(call, brief=brief)
    assert cut == replace(cut, lines=whole(call, brief=brief))


def whole(call: ToolCall, *, brief: bool) -> list[Text]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "shown_parts", lambda it: it.produced)
        return list(layout.passage(call, brief=brief).lines)


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("line", ["a line, \x1b[31mré\x1b[0m 😀\n", "x", "back\\slash\\n\r\n"])
def test_three_times_as_much_of_it_takes_no_more_memory(line: str, brief: bool) -> None:
    def peak(count: int) -> int:
        call = call_with(f"```\n{line * (count // len(line))}\n```\n", spelling="raw")
        tracemalloc.start()
        try:
            layout.passage(call, brief=brief)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1_000_000)  # what is imported and compiled late is there
    assert peak(3_000_000) < 1.1 * peak(1_000_000)


def test_what_has_another_form_than_text_is_drawn_as_ever() -> None:
    long = "y" * 600_000
    parts: list[object] = [
        {"type": "content", "content": {"type": "image", "data": long, "mimeType": "image/png"}},
        {"type": "content", "content": {"type": "text", "text": long, "annotations": 7}},
        {"type": "content", "content": {"type": "text", "text": [long]}},
        {"type": "content", "content": {"type": "newer", "text": long}},
        {"type": "newer", "content": {"type": "text", "text": long}},
        {"type": "diff", "path": "/a", "oldText": None, "newText": "b"},
    ]
    for some in (parts, parts[:1], parts[1:2], parts[2:3], [*parts, {"content": long}], [long]):
        call = ToolCall("t", {"content": json.dumps(some).encode()})
        for brief in (False, True):
            assert list(layout.passage(call, brief=brief).lines) == whole(call, brief=brief)


def test_a_cut_between_bytes_of_no_text_ends_there() -> None:
    for raw in (b"\x80" * 900_000, b"y" * 300_000 + b"\x80" * 600_000):
        content = b'[{"type":"content","content":{"type":"text","text":"%b"}}]' % raw
        for brief in (False, True):
            assert layout.passage(ToolCall("t", {"content": content}), brief=brief).lines


@pytest.mark.parametrize("brief", [False, True])
def test_output_of_which_only_the_beginning_was_read_is_drawn_without_its_end(brief: bool) -> None:
    text = "```\n" + "".join(f"line {number}\n" for number in range(200_000)) + "```"
    named = {"title": "T", "kind": "execute", "status": "failed"}
    head = json.dumps({"sessionUpdate": "tool_call", "toolCallId": "t", **named})[:-1].encode()
    raw = b'%b,"content":%b}' % (head, call_with("short", text).fields["content"])
    cut = beginning(raw[:200_000], len(raw))
    assert cut is not None
    call = ToolCall("t", members(cut))
    drawn = [line.plain for line in layout.passage(call, brief=brief, more="; ask").lines]
    assert drawn[0] == "✗ T  execute · failed"
    assert drawn[-1] == "  … more lines, in 2.4 MiB; ask"
    assert "  line 0" in drawn
    assert "  line 20" not in drawn
    # An agent's own mark, which is about other content, says nothing.
    other = ToolCall("t", {**call.fields, "content": call_with("short").fields["content"]})
    assert not any("more" in line.plain for line in layout.passage(other, brief=brief).lines)
