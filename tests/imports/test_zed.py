"""Zed's threads: one database, the forms of three versions, and their packed contents."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.records import UNPACKED_BYTES
from acphold.imports.sources import searching
from acphold.imports.zed import READER
from acphold.journal.compression import zstd
from tests.imports.told import Story, sources

Json = Any
CWD = "/home/ada/project"


class Threads:
    """The database of a home folder; with `old`, as it was before threads had parents."""

    def __init__(self, home: Path, *, old: bool = False) -> None:
        path = home / ".local/share/zed/threads/threads.db"
        path.parent.mkdir(parents=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute(
            "CREATE TABLE threads (id TEXT PRIMARY KEY, summary TEXT NOT NULL,"
            " updated_at TEXT NOT NULL, data_type TEXT NOT NULL, data BLOB NOT NULL)"
        )
        for column in (
            () if old else ("parent_id", "folder_paths", "folder_paths_order", "created_at")
        ):
            self.db.execute(f"ALTER TABLE threads ADD COLUMN {column} TEXT")

    def put(self, *messages: Json, thread: str = "t1", plain: bool = False, **about: Json) -> None:
        at = "2026-01-02T03:04:05.123456789Z"
        told: Json = {"version": "0.3.0", "title": "Notes", "messages": list(messages)}
        told |= {"updated_at": at, "model": {"provider": "zed.dev", "model": "gpt-5"}}
        beside = {key: about.pop(key) for key in list(about) if key in COLUMNS}
        raw = json.dumps(told | about).encode()
        data = raw if plain else zstd.compress(raw)
        row = {"id": thread, "summary": "Notes", "updated_at": at} | beside
        row |= {"data_type": "json" if plain else "zstd", "data": data}
        names = ", ".join(row)
        marks = ", ".join("?" for _ in row)
        self.db.execute(f"INSERT INTO threads ({names}) VALUES ({marks})", tuple(row.values()))


COLUMNS = ("parent_id", "folder_paths", "folder_paths_order", "created_at")


def user(*parts: Json) -> Json:
    content = [{"Text": part} if isinstance(part, str) else part for part in parts]
    return {"User": {"id": "u", "content": content}}


def agent(*parts: Json, **results: Json) -> Json:
    content = [{"Text": part} if isinstance(part, str) else part for part in parts]
    return {"Agent": {"content": content, "tool_results": results, "reasoning_details": None}}


def use(call_id: str, name: str, **given: Json) -> Json:
    told = {"id": call_id, "name": name, "input": given, "raw_input": json.dumps(given)}
    return {"ToolUse": told | {"is_input_complete": True}}


def result(words: str, *, failed: bool = False, output: Json = None) -> Json:
    told = {"tool_use_id": "x", "tool_name": "x", "is_error": failed}
    return told | {"content": {"Text": words}, "output": output}


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path)


def test_a_thread_is_told_as_it_was_held(threads: Threads, tmp_path: Path) -> None:
    threads.put(
        user("Look."),
        agent(
            {"Thinking": {"text": "Hm.", "signature": "s"}},
            "I look.",
            use("c1", "read_file", path="project/notes.txt"),
            c1=result("one"),
        ),
        "Resume",
        agent({"RedactedThinking": "x"}, "Done."),
        folder_paths=f"/home/ada/another\n{CWD}",
        folder_paths_order="1,0",
        created_at="2026-01-02T03:00:00Z",
        cumulative_token_usage={"input_tokens": 5, "output_tokens": 3},
    )
    told = Story.of(READER, tmp_path)
    facts = told.facts
    assert (facts.session_id, facts.agent, facts.title, facts.cwd) == ("t1", "zed", "Notes", CWD)
    assert (facts.created_at, facts.updated_at) == (1_767_322_800_000, 1_767_323_045_123)
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read project/notes.txt"),
        ("agent", "Done."),
    ]
    call = told.call()
    assert (call["kind"], call["locations"]) == ("read", [{"path": f"{CWD}/notes.txt"}])
    assert call["content"][0]["content"]["text"] == "one"
    (end,) = told.ends()
    assert end["_meta"]["acphold/model"] == "gpt-5"
    assert end["_meta"]["acphold/soFar"]["usage"] == {"inputTokens": 5, "outputTokens": 3}
    assert not facts.missed.counts


def test_a_compaction_is_told_and_takes_nothing_away(threads: Threads, tmp_path: Path) -> None:
    threads.put(
        user("One."),
        agent("1"),
        user(),  # `/compact`
        {"Compaction": {"Summary": "One was said."}},
        {"Compaction": {"ProviderNative": {"provider": "openai", "items": []}}},
        user("Two."),
    )
    told = Story.of(READER, tmp_path)
    assert [words for who, words in told.said() if who == "user"] == ["One.", "Two."]
    first, second = told.updates("tool_call")
    assert (first["title"], second["title"]) == ("Compact conversation",) * 2
    assert first["content"][0]["content"]["text"] == "One was said."
    assert told.facts.missed.counts == {}


def test_an_edit_is_a_diff_and_what_failed_is_told_as_failed(
    threads: Threads, tmp_path: Path
) -> None:
    output = {"input_path": "project/a.txt", "old_text": "one", "new_text": "two", "diff": "…"}
    threads.put(
        user("Edit."),
        agent(
            use("c1", "edit_file", path="project/a.txt", mode="edit", display_description="Two"),
            use("c2", "terminal", command="false", cd="project"),
            use("c3", "grep", regex="x"),
            c1=result("…", output=output),
            c2=result("exit 1", failed=True),
        ),
        folder_paths=CWD,
    )
    told = Story.of(READER, tmp_path)
    edit, ran, search = told.calls()
    assert json.loads(edit.fields["content"]) == [
        {"type": "diff", "path": f"{CWD}/a.txt", "oldText": "one", "newText": "two"}
    ]
    assert (ran.title, ran.status) == ("false", "failed")
    assert (search.title, search.status) == ("Search x", "failed")
    assert told.ends() == [{"interrupted": None, "_meta": {"acphold/model": "gpt-5"}}]


def test_what_a_person_pointed_at_is_attached(threads: Threads, tmp_path: Path) -> None:
    def mention(kind: str, content: str = "", **about: Json) -> Json:
        return {"Mention": {"uri": {kind: about}, "content": content}}

    threads.put(
        user(
            "Look at ",
            mention("File", "one", abs_path="/a.txt"),
            mention("Directory", "a.txt", abs_path="/d"),
            mention("Fetch", "<p>", url="https://x"),
            mention("Thread", "", id="t0", name="Older"),
            {"Mention": {"uri": "PastedImage", "content": ""}},
            {"Image": {"source": "cG5n", "size": None}},
        ),
    )
    ((words, file, folder, page, thread, pasted, picture),) = Story.of(READER, tmp_path).prompts()
    assert words["text"] == "Look at "
    assert file["resource"] == {"uri": "file:///a.txt", "text": "one"}
    assert folder == {"type": "resource_link", "name": "d", "uri": "file:///d"}
    assert page["resource"] == {"uri": "https://x", "text": "<p>"}
    assert (thread["name"], pasted["uri"]) == ("Older", "context:pastedimage")
    assert picture == {"type": "image", "data": "cG5n", "mimeType": "image/png"}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_subagent_is_no_thread_and_its_calls_are_told_inside_its_call(
    threads: Threads, tmp_path: Path, *, is_stopped: bool
) -> None:
    threads.put(
        user("You are to find it."),
        agent("I look.", use("c2", "list_directory", path="x"), c2=result("")),
        thread="child",
        parent_id="t1",
    )
    report = result("Found.", output={"session_id": "child"})
    results = {} if is_stopped else {"c1": report}
    threads.put(user("Find it."), agent(use("c1", "spawn_agent", label="Find"), **results))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Find it."),
        ("call", "Task: Find"),
        ("call", "List x"),
    ]
    inner = told.calls()[1]
    assert json.loads(inner.fields["_meta"]) == {"acphold/parentToolCallId": "c1"}


def test_a_thread_of_2025_is_read(tmp_path: Path) -> None:
    threads = Threads(tmp_path, old=True)
    call = {"id": "c1", "name": "read_file", "input": {"path": "a"}}
    done = {"tool_use_id": "c1", "is_error": False, "content": {"Text": "one"}, "output": None}
    snapshot = {"worktree_snapshots": [{"worktree_path": CWD, "git_state": None}]}
    said = [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "I look."}]
    threads.put(
        {
            "id": 0,
            "role": "user",
            "segments": [{"type": "text", "text": "Look."}],
            "context": "one",
        },
        {
            "id": 1,
            "role": "assistant",
            "segments": said,
            "tool_uses": [call],
            "tool_results": [done],
        },
        {"id": 2, "role": "user", "segments": [], "is_hidden": True},
        {"id": 3, "role": "assistant", "text": "Done."},
        version="0.2.0",
        title=None,
        summary="Notes",
        initial_project_snapshot=snapshot,
        plain=True,
    )
    told = Story.of(READER, tmp_path)
    assert (told.facts.title, told.facts.cwd) == ("Notes", CWD)
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read a"),
        ("agent", "Done."),
    ]
    assert told.prompts()[0][1]["resource"] == {"uri": "context:attached", "text": "one"}


def test_before_0_2_results_came_with_the_next_message_of_the_person(tmp_path: Path) -> None:
    threads = Threads(tmp_path, old=True)
    call = {"id": "c1", "name": "read_file", "input": {"path": "a"}}
    done = {"tool_use_id": "c1", "is_error": False, "content": "one", "output": None}
    threads.put(
        {"id": 0, "role": "user", "text": "Look."},
        {"id": 1, "role": "assistant", "text": "I look.", "tool_uses": [call]},
        {"id": 2, "role": "user", "text": "", "tool_results": [done]},
        {"id": 3, "role": "assistant", "text": "Done."},
        version="0.1.0",
    )
    told = Story.of(READER, tmp_path)
    assert [who for who, _ in told.said()] == ["user", "agent", "call", "agent"]
    assert told.calls()[0].status == "completed"


def test_a_thread_that_is_damaged_or_unpacks_to_too_much_costs_only_itself(
    threads: Threads, tmp_path: Path
) -> None:
    threads.put(user("Hello."), agent("Hi."))
    bomb = zstd.compress(b" " * (UNPACKED_BYTES + 1))
    row = "INSERT INTO threads (id, summary, updated_at, data_type, data) VALUES (?, '', '', ?, ?)"
    threads.db.execute(row, ("t2", "zstd", bomb))
    threads.db.execute(row, ("t3", "zstd", b"\x28\xb5\x2f\xfd damaged"))
    threads.db.execute(row, ("t4", "json", "[1]"))
    threads.db.execute(row, ("t5", "rot13", b"\xff\xfe"))
    stories = {source.item: Story(READER, source) for source in sources(READER, tmp_path)}
    assert stories["t1"].said() == [("user", "Hello."), ("agent", "Hi.")]
    assert stories["t2"].facts.missed.counts == {"threads that are too large when unpacked": 1}
    assert stories["t3"].facts.missed.counts == {"damaged threads": 1}
    assert sum(stories["t4"].facts.missed.counts.values()) == 1
    assert sum(stories["t5"].facts.missed.counts.values()) == 1


def test_a_database_that_is_none_is_noted(tmp_path: Path) -> None:
    path = tmp_path / ".local/share/zed/threads/threads.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096)
    with searching() as search:
        assert sources(READER, tmp_path) == []
    assert len(search.unreadable) == 1
