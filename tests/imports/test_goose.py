"""goose's database, and its files before that."""

from __future__ import annotations

import json
import sqlite3
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Growth, Home, ImportMemory, Intake
from acphold.imports.goose import READER
from tests.imports.told import Story, sources, write_lines
from tests.journal.conversations import open_file, usage_reports

Json = Any
CWD = "/home/ada/project"


class Store:
    """The database of a home folder."""

    def __init__(self, home: Path) -> None:
        path = home / ".local/share/goose/sessions/sessions.db"
        path.parent.mkdir(parents=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, description TEXT DEFAULT '',"
            " session_type TEXT, working_dir TEXT, created_at TEXT, updated_at TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT,"
            " role TEXT, content_json TEXT, created_timestamp INT, metadata_json TEXT);"
        )
        self._at = 1_700_000_000

    def session(self, session_id: str, name: str = "Named", kind: str = "acp") -> None:
        at = "2026-01-02 03:04:05"
        row = (session_id, name, kind, CWD, at, at)
        self.db.execute(
            "INSERT INTO sessions (id, name, session_type, working_dir, created_at, updated_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )

    def message(self, role: str, *parts: Json, session: str = "1", seen: bool = True) -> None:
        told = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
        about = json.dumps({"userVisible": seen, "agentVisible": True})
        self._at += 1
        row = (f"msg-{self._at}", session, role, json.dumps(told), self._at, about)
        self.db.execute(
            "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp,"
            " metadata_json) VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    found.session("1")
    return found


def request(call: str, name: str, **arguments: Json) -> Json:
    value = {"name": name, "arguments": arguments}
    return {"type": "toolRequest", "id": call, "toolCall": {"status": "success", "value": value}}


def response(call: str, words: str, *, failed: bool = False, **more: Json) -> Json:
    value = {"content": [{"type": "text", "text": words}], "isError": failed} | more
    return {"type": "toolResponse", "id": call, "toolResult": {"status": "success", "value": value}}


def test_the_first_session_of_a_database_that_had_none_is_seen_to_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = Store(tmp_path)
    store.db.execute("PRAGMA journal_mode = WAL")
    store.session("of a recipe", kind="sub_agent")  # then the log is there already
    file = str(tmp_path / "memory")
    home = Home(tmp_path, {"HOME": str(tmp_path)})
    ImportMemory(home, ["goose"], since=0, redact=False).keep(file)
    assert not Growth(file)
    store.session("1")
    assert Growth(file)


def test_a_conversation_with_calls_is_told(store: Store, tmp_path: Path) -> None:
    store.message("user", "Do it.")
    store.message("assistant", {"type": "thinking", "thinking": "Hm."}, "Running.")
    store.message("assistant", request("c1", "developer__shell", command="false"))
    store.message("user", response("c1", "no", failed=True, structuredContent={"exit_code": 1}))
    store.message("assistant", request("c2", "edit", path="/a", before="x", after="y"))
    store.message("user", response("c2", "Edited"))
    store.message("assistant", request("c3", "read", path="/b"))
    store.message("user", response("c3", "It."))
    store.message("assistant", "Done.")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Do it."),
        ("thought", "Hm."),
        ("agent", "Running."),
        ("call", "shell · false"),
        ("call", "edit · /a"),
        ("call", "read · /b"),
        ("agent", "Done."),
    ]
    failed, edited, read = told.calls()
    assert (read.kind, json.loads(read.fields["locations"])) == ("read", [{"path": "/b"}])
    assert failed.status == "failed"
    assert failed.raw_output == b'{"exit_code":1}'
    assert json.loads(edited.fields["content"])[1]["newText"] == "y"
    assert told.facts.title == "Named"
    assert told.facts.cwd == CWD


def test_a_compaction_leaves_what_the_person_sees(store: Store, tmp_path: Path) -> None:
    store.message("user", "Hello.")
    store.message("user", "<summary>so far", seen=False)
    store.message("assistant", "Do not mention it.", seen=False)
    store.message("user", "/compact")
    store.message("assistant", {"type": "systemNotification", "msg": "Compaction complete"})
    assert Story.of(READER, tmp_path).said() == [
        ("user", "Hello."),
        ("user", "/compact"),
        ("call", "Compact conversation"),
    ]


def test_a_form_and_its_answer_are_passed_over_like_a_permission(
    store: Store, tmp_path: Path
) -> None:
    store.message("user", "Hello.")
    form = {"actionType": "elicitation", "message": "Which?"}
    store.message("assistant", {"type": "actionRequired", "data": form}, "Hi.")
    answer = {"actionType": "elicitationResponse", "user_data": {}}
    store.message("user", {"type": "actionRequired", "data": answer})
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {}


def test_the_list_of_things_to_do_is_the_plan(store: Store, tmp_path: Path) -> None:
    store.message("user", "Plan.")
    store.message("assistant", request("c1", "todo__todo_write", content="- [x] One\n- [ ] Two"))
    assert Story.of(READER, tmp_path).plan() == [("One", "completed"), ("Two", "pending")]


def test_a_subagents_calls_stand_inside_the_call_that_started_it(
    store: Store, tmp_path: Path
) -> None:
    store.session("2", "Delegated task", "sub_agent")
    store.message("user", "Delegate.")
    store.message("assistant", request("c1", "delegate", instructions="Count."))
    store.message("user", "Count.", session="2")
    store.message("assistant", request("c2", "shell", command="wc"), session="2")
    store.message("user", response("c1", "3", _meta={"subagent_session_id": "2"}))
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Delegate."), ("call", "delegate"), ("call", "shell · wc")]


def test_files_that_were_put_in_as_text_are_links_and_resources_again(
    store: Store, tmp_path: Path
) -> None:
    linked = "\n\n# /x/README.md\n```\n# project\n\n```"
    embedded = "--- Resource: file:///x/extra.txt ---\nmore\n\n---\n"
    store.message("user", "Look:", linked, embedded)
    assert Story.of(READER, tmp_path).prompts() == [
        [
            {"type": "text", "text": "Look:"},
            {"type": "resource_link", "name": "README.md", "uri": "file:///x/README.md"},
            {"type": "resource", "resource": {"uri": "file:///x/extra.txt", "text": "more"}},
        ]
    ]


def test_a_session_of_older_versions_is_a_file_of_lines(tmp_path: Path) -> None:
    write_lines(
        tmp_path / ".local/share/goose/sessions/20250102_1.jsonl",
        {"description": "Named", "working_dir": CWD},
        {"role": "user", "created": 1735787045, "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "created": 1735787046, "content": [{"type": "text", "text": "Hi."}]},
    )
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert (told.facts.title, told.facts.cwd) == ("Named", CWD)
    assert [source.session_id for source in sources(READER, tmp_path)] == ["20250102_1"]


def counted(store: Store, session: str, given: int, made: int, cost: float | None) -> None:
    values = {
        "accumulated_input_tokens": given,
        "accumulated_output_tokens": made,
        "accumulated_total_tokens": given + made,
        "accumulated_cost": cost,
    }
    known = {name for _, name, *_ in store.db.execute("PRAGMA table_info(sessions)")}
    for name, value in values.items():
        if name not in known:
            store.db.execute(f"ALTER TABLE sessions ADD COLUMN {name}")
        store.db.execute(f"UPDATE sessions SET {name} = ? WHERE id = ?", (value, session))


async def test_the_tokens_of_a_session_and_its_subagents_are_taken_in_once(
    store: Store, journal: Path, tmp_path: Path
) -> None:
    store.session("child", kind="sub_agent")
    store.message("user", "Ask a helper.")
    store.message("assistant", request("c1", "delegate"))
    store.message("user", response("c1", "3", _meta={"subagent_session_id": "child"}))
    store.message("assistant", "3 lines.")
    counted(store, "1", 100, 10, 0.5)
    counted(store, "child", 40, 4, None)
    async with aclosing(open_file(journal)) as opened:
        (source,) = sources(READER, tmp_path)
        await Intake(opened).take(source, READER)
        store.message("user", "And now?")
        store.message("assistant", "Done.")
        counted(store, "1", 150, 15, 0.75)
        store.db.execute("UPDATE sessions SET updated_at = '2026-01-02 03:05:05'")
        (source,) = sources(READER, tmp_path)
        assert (await Intake(opened).take(source, READER)).outcome == "grown"
        (used,) = await usage_reports(opened)
    tokens = [report.tokens for report in used.reports if report.tokens]
    assert [(found.input, found.output, found.total) for found in tokens] == [
        (140, 14, 154),
        (50, 5, 55),
    ]
    assert [report.cost for report in used.reports] == [0.5, 0.25]
    assert all(report.by_turn for report in used.reports)
