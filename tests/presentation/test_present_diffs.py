"""The changes that a call asks for, against the files as they are."""

from __future__ import annotations

import json

from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.permissions import blocks_of_call
from acphold.conversation.presentation.present_diffs import present_diffs


def test_each_diff_has_the_whole_file_on_both_sides_and_all_else_stays() -> None:
    files = {"/new": "", "/there": "one two\n", "/other": "three\n"}
    said = {"type": "content", "content": {"type": "text", "text": "I change them"}}
    content = [
        said,
        {"type": "diff", "path": "/new", "newText": "first\n"},
        {"type": "diff", "path": "/there", "newText": "overwritten\n"},
        {"type": "diff", "path": "/there", "oldText": "two", "newText": "2"},
        {"type": "diff", "path": "/other", "oldText": "two", "newText": "2"},
        {"type": "diff", "path": "/unreadable", "oldText": "two", "newText": "2"},
    ]
    fields = {"content": json.dumps(content).encode()}
    found = present_diffs(fields, files.get)
    assert {at: (it.old_text, it.new_text, it.differs) for at, it in found.items()} == {
        1: ("", "first\n", False),
        2: ("one two\n", "overwritten\n", False),
        3: ("one two\n", "one 2\n", False),
        4: ("two", "2", True),
    }
    blocks = blocks_of_call(ToolCall("t", fields), found)
    assert [(it.kind, it.name, it.text) for it in blocks] == [
        ("text", "", "I change them"),
        ("diff", "/new", "a new file"),
        ("diff", "/there", ""),
        ("diff", "/there", ""),
        ("diff", "/other", "The file has other text than the agent says"),
        ("diff", "/unreadable", "as the agent says"),
    ]
