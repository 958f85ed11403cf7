"""A change in the list of questions is what it changes in the file as it is."""

from __future__ import annotations

import json
from pathlib import Path

from acphold.conversation.history.decisions import AskedQuestion
from acphold.faces.cli.inbox import question_passage
from acphold.journal.rows import SessionRow
from acphold.live.reading.inbox import InboxQuestion


def told(folder: Path) -> list[str]:
    """The lines of a question to overwrite a file of two lines, without its head."""
    path = folder / "README.md"
    path.write_text("# webapp\nRun `make`.\n")
    new = "# webapp\nRun `uv run webapp`.\n"
    call = {
        "title": "Write README.md",
        "kind": "edit",
        "rawInput": {"file_path": str(path), "content": new},
        "content": [{"type": "diff", "path": str(path), "oldText": None, "newText": new}],
    }
    fields = {name: json.dumps(value).encode() for name, value in call.items()}
    params = json.dumps({"toolCall": {"toolCallId": "t1", **call}, "options": []}).encode()
    asked = AskedQuestion("q1", "session/request_permission", params)
    row = SessionRow("s1", "agent", str(folder), (), None, 0, 0, 0, True, 0)
    found = InboxQuestion(row, 1, 1, asked, fields)
    return [it.plain.strip() for it in question_passage(found).lines[2:]]


def test_an_overwrite_shows_the_lines_that_go_and_says_what_it_writes_once(tmp_path: Path) -> None:
    assert told(tmp_path) == [
        "# webapp",
        "- Run `make`.",
        "+ Run `uv run webapp`.",
    ]
