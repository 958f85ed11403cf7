"""The changes that a call asks for, against the files as they are."""

from __future__ import annotations

import json

from acp_conversation.history.timeline import ToolCall
from acp_conversation.presentation.present_diffs import present_diffs, with_present_diffs


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
    call = with_present_diffs(ToolCall("t", fields), present_diffs(fields, files.get))
    shown = json.loads(call.fields["content"])
    assert [(it["type"], it.get("oldText"), it.get("newText")) for it in shown] == [
        ("content", None, None),
        ("diff", None, "first\n"),
        ("diff", "one two\n", "overwritten\n"),
        ("diff", "one two\n", "one 2\n"),
        ("diff", "two", "2"),
        ("content", None, None),
        ("diff", "two", "2"),
    ]
    assert shown[0] == said
    assert shown[5]["content"]["text"] == "The file has other text."
