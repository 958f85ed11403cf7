"""Roo Code's tasks: Cline's form, with kinds and tools of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.cline import READER as CLINE, ROO as READER
from acphold.imports.opencode import KILO
from acphold.imports.readers import Reader
from tests.imports.test_cline import ask, say, task as cline_task

Json = Any
EDITOR = ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline"
TASK = "019fa464-0000-7000-8000-000000000000"


task = partial(cline_task, root=EDITOR, task_id=TASK, reader=READER)


def test_what_a_task_begins_with_is_what_a_person_asked_for(tmp_path: Path) -> None:
    told = task(
        tmp_path,
        say("text", "Change it.", images=["data:image/png;base64,AA"]),
        say("api_req_started", {"tokensIn": 10, "tokensOut": 5, "apiProtocol": "anthropic"}),
        say("reasoning", "Hm."),
        say("text", "I look first."),
        ask("tool", {"tool": "readFile", "batchFiles": [{"path": "a.py"}, {"path": "b.py"}]}),
        ask("followup", {"question": "Which one?", "suggest": [{"answer": "a.py"}]}),
        say("user_feedback", "Both."),
        say("checkpoint_saved", "abc"),
        say("completion_result", "Done."),
    )
    assert told.said() == [
        ("user", "Change it."),
        ("thought", "Hm."),
        ("agent", "I look first."),
        ("call", "Read a.py, b.py"),
        ("agent", "Which one?"),
        ("user", "Both."),
        ("agent", "Done."),
    ]
    assert told.prompts()[0][1]["type"] == "image"
    assert told.call()["locations"] == [{"path": "a.py"}, {"path": "b.py"}]
    assert (told.facts.agent, told.facts.session_id, told.facts.missed.counts) == ("roo", TASK, {})


SEARCHED = (
    "<<<<<<< SEARCH\n:start_line:3\n-------\nold\n=======\nnew\n>>>>>>> REPLACE\n",
    "@@ -3,1 +3,1 @@\n-old\n+new\n",
    "--- a.py\n+++ a.py\n@@ -3,1 +3,1 @@\n-old\n+new\n",
)


@pytest.mark.parametrize("change", SEARCHED)
@pytest.mark.parametrize("form", ["one", "several"])
def test_an_edit_is_a_diff_in_whichever_form_it_was_written(
    tmp_path: Path, change: str, form: str
) -> None:
    one = {"tool": "appliedDiff", "path": "a.py", "diff": change}
    inner = [{"path": "a.py", "diffs": [{"content": change, "startLine": 3}]}]
    several = {"tool": "appliedDiff", "batchDiffs": inner}
    asked = ask("tool", one if form == "one" else several)
    told = task(tmp_path, say("text", "Change it."), asked)
    call = told.call()
    assert (call["title"], call["kind"]) == ("Edit a.py", "edit")
    assert call["content"] == [
        {"type": "diff", "path": "a.py", "oldText": "old\n", "newText": "new\n"}
    ]


def test_plans_searches_modes_and_summaries_are_told(tmp_path: Path) -> None:
    todos = [{"id": "1", "content": "Look", "status": "completed"}]
    found = [{"filePath": "a.py", "codeChunk": "x = 1", "startLine": 1}]
    told = task(
        tmp_path,
        say("text", "Do it."),
        ask("tool", {"tool": "updateTodoList", "todos": todos}),
        ask("tool", {"tool": "codebaseSearch", "query": "needle"}),
        say("codebase_search_result", {"tool": "codebaseSearch", "content": {"results": found}}),
        ask("tool", {"tool": "switchMode", "mode": "architect", "reason": "x"}),
        ask("tool", {"tool": "newTask", "mode": "code", "content": "Do that."}),
        say("subtask_result", "It is done."),
        say("condense_context", "", partial=True),
        say("condense_context", "", contextCondense={"summary": "They did it.", "cost": 0}),
        say("something_new", "?"),
    )
    assert [call.title for call in told.calls()] == [
        "Search needle",
        "Search results",
        "Switch to mode architect",
        "Start a task code",
        "Result of a task",
        "Compact conversation",
    ]
    assert told.plan() == [("Look", "completed")]
    assert told.facts.missed.counts == {"messages of kind 'something_new'": 1}


def test_where_a_task_was_held_is_beside_it_or_in_what_the_model_was_told(tmp_path: Path) -> None:
    beside = task(tmp_path / "1", say("text", "Hi."), history_item={"workspace": "/elsewhere"})
    assert beside.facts.cwd == "/elsewhere"
    for place, cwd in enumerate(("/home/ada/project", "c:/Users/me/project", "D:\\my work")):
        words = f"# Current Workspace Directory ({cwd}) Files\na.py"
        said = [{"role": "user", "content": [{"type": "text", "text": words}]}]
        home = tmp_path / f"2-{place}"
        told = task(home, say("text", "Hi."), api_conversation_history=said)
        assert told.facts.cwd == cwd


@pytest.mark.parametrize(
    ("reader", "root"),
    [
        (READER, ".config/VSCodium/User/globalStorage/rooveterinaryinc.roo-cline"),
        (READER, ".config/Code/User/globalStorage/rooveterinaryinc.roo-code-nightly"),
        (READER, ".cursor-server/data/User/globalStorage/rooveterinaryinc.roo-cline"),
        (READER, ".vscode-mock/global-storage"),
        (CLINE, ".config/Code/User/globalStorage/saoudrizwan.cline-nightly"),
        (KILO, ".config/Code/User/globalStorage/kilocode.kilo-code"),
        (KILO, ".kilocode/cli/global"),
    ],
)
def test_tasks_are_found_in_every_editor_and_in_that_of_the_command_line(
    tmp_path: Path, reader: Reader, root: str
) -> None:
    said = say("text", "Hello."), say("completion_result", "Hi."), say("invalid_model")
    told = task(tmp_path, *said, root=root, reader=reader)
    assert (told.facts.agent, told.facts.session_id) == (reader.key, TASK)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {}
