"""Kilo Code: the database of its command line, and the tasks of its earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acphold.imports import Home
from acphold.imports.opencode import KILO as READER
from tests.imports.test_cline import say
from tests.imports.test_opencode import SESSION, Store
from tests.imports.told import Story, sources


def test_a_session_of_the_command_line_is_told_as_one_of_opencode(tmp_path: Path) -> None:
    store = Store(tmp_path, "kilo")
    store.session(title="The needle", version="7.7.9")
    store.message("user", {"type": "text", "text": "Where is it?"})
    tool = {"type": "tool", "tool": "bash", "callID": "c1"}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a\n", "title": "ls"}
    hay = {"type": "text", "text": "In the haystack."}
    store.message("assistant", tool | {"state": state}, hay, finish="stop")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Where is it?"),
        ("call", "ls"),
        ("agent", "In the haystack."),
    ]
    facts = told.facts
    assert (facts.agent, facts.session_id, facts.title) == ("Kilo", SESSION, "The needle")


@pytest.mark.parametrize(
    "root", [".config/Code/User/globalStorage/kilocode.kilo-code", ".kilocode/cli/global"]
)
def test_a_task_of_an_older_version_is_told(tmp_path: Path, root: str) -> None:
    (folder := tmp_path / root / "tasks/019fa464").mkdir(parents=True)
    said = [say("text", "Hello."), say("completion_result", "Hi."), say("invalid_model")]
    screen = [{"ts": 1767322800000, **message} for message in said]
    (folder / "ui_messages.json").write_text(json.dumps(screen))
    (source,) = sources(READER, tmp_path)
    told = Story(READER, source)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {}


def test_the_database_lies_where_a_variable_says(tmp_path: Path) -> None:
    store = Store(tmp_path, "kilo")
    store.session()
    (found,) = READER.find(Home(tmp_path / "x", {"KILO_DB": str(store.path)}))
    assert found.session_id == SESSION
