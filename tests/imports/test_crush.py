"""Crush's databases, one in each project."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Home
from acphold.imports.crush import READER
from tests.imports.told import Story, sources

Json = Any


def part(kind: str, **data: Json) -> Json:
    return {"type": kind, "data": data}


class Database:
    """The database of a project."""

    def __init__(
        self, home: Path, below: str = "code/project/.crush", *, old: bool = False
    ) -> None:
        self.path = home / below / "crush.db"
        self.path.parent.mkdir(parents=True)
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT,"
            " message_count INTEGER, prompt_tokens INTEGER, completion_tokens INTEGER, cost REAL,"
            " updated_at INTEGER, created_at INTEGER);"
            "CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT, role TEXT, parts TEXT,"
            " model TEXT, created_at INTEGER, updated_at INTEGER, finished_at INTEGER)"
        )
        if not old:
            column = "is_summary_message INTEGER DEFAULT 0 NOT NULL"
            self.db.execute(f"ALTER TABLE messages ADD COLUMN {column}")
        self._at = 1_767_000_000

    def session(
        self, session_id: str = "s1", parent: str | None = None, title: str = "Notes"
    ) -> None:
        row = (session_id, parent, title, 1, 0, 0, 0.25, self._at, self._at)
        self.db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def message(
        self, role: str, *parts: Json, session: str = "s1", is_summary: bool = False
    ) -> None:
        self._at += 1
        told = [part("text", text=one) if isinstance(one, str) else one for one in parts]
        model = "gpt-5" if role == "assistant" else None
        row = (f"m{self._at}", session, role, json.dumps(told), model, self._at)
        self.db.execute(
            "INSERT INTO messages (id, session_id, role, parts, model, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )
        if is_summary:
            self.db.execute("UPDATE messages SET is_summary_message = 1 WHERE id = ?", row[:1])
        self.db.execute(
            "UPDATE sessions SET updated_at = ?, message_count = message_count + 1 WHERE id = ?",
            (self._at, session),
        )


def call(call_id: str, name: str, **given: Json) -> Json:
    return part("tool_call", id=call_id, name=name, input=json.dumps(given), finished=True)


def result(call_id: str, words: str, *, failed: bool = False, **about: Json) -> Json:
    told = {"content": words, "is_error": failed, "metadata": json.dumps(about) if about else ""}
    return part("tool_result", tool_call_id=call_id, **told)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    found = Database(tmp_path)
    found.session()
    return found


@pytest.mark.parametrize("old", [False, True])
def test_a_session_is_told_as_it_was_held(tmp_path: Path, old: bool) -> None:
    database = Database(tmp_path, old=old)
    database.session()
    database.message("user", "Look.", part("finish", reason="stop", time=1))
    database.message(
        "assistant",
        part("reasoning", thinking="Hm.", signature="s"),
        "I look.",
        call("c1", "view", file_path="notes.txt"),
        part("finish", reason="tool_use"),
    )
    database.message("tool", result("c1", "<file>…", file_path="notes.txt", content="one"))
    database.message("assistant", "Done.", part("finish", reason="end_turn"))
    told = Story.of(READER, tmp_path)
    cwd = str(tmp_path / "code/project")
    assert (told.facts.session_id, told.facts.title, told.facts.cwd) == ("s1", "Notes", cwd)
    assert told.facts.created_at == 1_767_000_000_000
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read notes.txt"),
        ("agent", "Done."),
    ]
    view = told.call()
    assert (view["kind"], view["locations"]) == ("read", [{"path": f"{cwd}/notes.txt"}])
    assert view["content"][0]["content"]["text"] == "one"
    (end,) = told.ends()
    assert end["_meta"]["acphold/model"] == "gpt-5"
    assert end["_meta"]["acphold/soFar"]["cost"]["amount"] == 0.25
    assert not told.facts.missed.counts


def test_an_edit_is_a_diff_and_what_failed_is_told_as_failed(
    database: Database, tmp_path: Path
) -> None:
    edits = [{"old_string": "x", "new_string": "y"}, {"old_string": "1", "new_string": "2"}]
    database.message("user", "Edit.")
    database.message(
        "assistant",
        call("c1", "edit", file_path="/a", old_string="x", new_string="y"),
        call("c2", "multiedit", file_path="/b", edits=edits),
        call("c3", "write", file_path="/c", content="all"),
        call("c4", "edit", file_path="/d", old_string="x", new_string="y"),
        call("c5", "bash", command="false"),
    )
    database.message(
        "tool",
        result("c1", "ok", old_content="1x", new_content="1y"),
        result("c2", "ok"),
        result("c3", "ok", diff="…"),
        result("c4", "old_string not found", failed=True),
        result("c5", "<cwd>", output="no\n", exit_code=1),
    )
    told = Story.of(READER, tmp_path)
    shown = [json.loads(one.fields["content"]) for one in told.calls()]
    assert [[(d["path"], d["oldText"], d["newText"]) for d in told] for told in shown[:3]] == [
        [("/a", "1x", "1y")],
        [("/b", "x", "y"), ("/b", "1", "2")],
        [("/c", None, "all")],
    ]
    assert [one.status for one in told.calls()][3:] == ["failed", "completed"]
    assert shown[4][0]["content"]["text"] == "no\n"


@pytest.mark.parametrize(
    ("finish", "end"),
    [
        ({"reason": "canceled"}, {"stopReason": "cancelled"}),
        ({"reason": "content_filter"}, {"stopReason": "refusal"}),
        (
            {"reason": "error", "message": "Overloaded", "details": "529"},
            {"error": {"code": -32603, "message": "Overloaded: 529"}},
        ),
    ],
)
def test_how_a_turn_ended_is_told(
    database: Database, tmp_path: Path, finish: Json, end: Json
) -> None:
    database.message("user", "Hello?")
    database.message("assistant", "We", part("finish", **finish))
    (told,) = Story.of(READER, tmp_path).ends()
    assert {key: told[key] for key in end} == end


@pytest.mark.parametrize("named", ["c1", "m9$$c1"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_subagent_is_no_session_and_its_calls_are_told_inside_its_call(
    database: Database, tmp_path: Path, named: str, *, is_stopped: bool
) -> None:
    database.message("user", "Find it.")
    database.message("assistant", call("c1", "agent", prompt="Find it"))
    database.session(named, "s1")
    database.session("title-s1", "s1")
    database.message("user", "You are to find it.", session=named)
    database.message("assistant", "I look.", call("c2", "ls", path="/x"), session=named)
    if not is_stopped:
        database.message("tool", result("c1", "Found."))
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Find it."), ("call", "Agent: Find it"), ("call", "List /x")]
    assert json.loads(told.calls()[1].fields["_meta"]) == {"acphold/parentToolCallId": "c1"}


def test_a_plan_a_summary_a_picture_and_a_command_of_the_person_are_told(
    database: Database, tmp_path: Path
) -> None:
    steps = [{"content": "look", "status": "completed"}, {"content": "write", "status": "pending"}]
    picture = part("binary", Path="/p.png", MIMEType="image/png", Data="cG5n")
    database.message("user", "Look.", picture)
    database.message("assistant", call("c1", "todos", todos=steps))
    database.message("assistant", "We looked.", is_summary=True)
    database.message("user", part("shell_command", command="ls", output="a", exit_code=0))
    told = Story.of(READER, tmp_path)
    assert told.plan() == [("look", "completed"), ("write", "pending")]
    first, second = told.prompts()
    assert first[1] == {"type": "image", "data": "cG5n", "mimeType": "image/png"}
    assert second == [{"type": "text", "text": "! ls"}]
    assert b"We looked." in bytes(told.calls()[1].fields["content"])


def test_a_message_that_is_written_without_its_session_is_seen(
    database: Database, tmp_path: Path
) -> None:
    database.message("user", "Hello.")
    database.db.execute("CREATE TABLE before AS SELECT * FROM sessions")
    database.message("assistant", "Half")
    database.db.execute("DELETE FROM sessions")
    database.db.execute("INSERT INTO sessions SELECT * FROM before")
    (half,) = sources(READER, tmp_path)
    (told,) = Story(READER, half).said()[1:]
    database.db.execute(
        "UPDATE messages SET parts = replace(parts, 'Half', 'Whole'), updated_at = 2e9"
    )
    (whole,) = sources(READER, tmp_path)
    assert (told, half.size) == (("agent", "Half"), 2)
    assert whole.changed_at > half.changed_at


def test_the_projects_that_crush_lists_are_found_wherever_they_are(tmp_path: Path) -> None:
    elsewhere = Database(tmp_path, "elsewhere/hidden/.data")
    elsewhere.session()
    elsewhere.message("user", "Hello.")
    home = tmp_path / "home"
    listed = home / ".local/share/crush/projects.json"
    listed.parent.mkdir(parents=True)
    project = {"path": str(tmp_path / "project"), "data_dir": str(elsewhere.path.parent)}
    odd: list[Json] = [{"path": 5}, {"path": "relative"}, "x"]
    listed.write_text(json.dumps({"projects": [project, *odd]}))
    (source,) = READER.find(Home(home, {"HOME": str(home)}))
    assert Story(READER, source).facts.cwd == str(tmp_path / "project")
    assert not source.given
    assert sources(READER, home) == [], "a list in somebody else's folder names nothing here"
