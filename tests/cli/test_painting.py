"""What scenes look like."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from acphold.cli.painting import block_text, painted
from acphold.cli.transcript import TurnOver
from acphold.journal.timeline import ToolCall


def tool(content: object, **fields: str) -> list[str]:
    raw = {name: json.dumps(value).encode() for name, value in fields.items()}
    call = ToolCall("t1", {**raw, "content": json.dumps(content).encode()})
    return [line.plain for line in painted(call).lines]


def test_a_new_file_is_all_additions() -> None:
    diff = {"type": "diff", "path": "/a", "newText": "1\n2\n"}
    assert tool([diff])[1:] == ["  /a", "  + 1", "  + 2"]


def test_a_change_far_down_a_file_says_on_which_line_it_begins() -> None:
    old = "".join(f"{number}\n" for number in range(100))
    diff = {"type": "diff", "path": "/a", "oldText": old, "newText": old.replace("50", "fifty")}
    lines = tool([diff])
    assert lines[2] == "  line 48"
    assert "  - 50" in lines
    assert "  + fifty" in lines


def test_two_versions_of_a_huge_file_are_counted_not_compared() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": "a\n" * 9000, "newText": "b\n"}
    assert tool([diff])[2] == "  9000 lines became 1 line"


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
    lines = painted(TurnOver("error", "no \x1b[2Jtokens", 0)).lines
    assert [line.plain for line in lines] == ["failed: no \\x1b[2Jtokens"]


@given(st.dictionaries(st.sampled_from(["title", "status", "kind", "content"]), st.binary()))
def test_a_tool_call_is_painted_whatever_its_fields_hold(fields: dict[str, bytes]) -> None:
    assert painted(ToolCall("t1", fields)).lines
