"""A file that looks like a conversation and that no reader takes is counted and named."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine
from tests.imports.test_cursor import Editor
from tests.imports.test_goose import Store as Goose
from tests.imports.test_missed import HOMES, imported
from tests.imports.told import write_lines

SPOKEN = {"type": "user", "message": {"role": "user", "content": "Hello."}}


@pytest.fixture
def acphold(journal: Path) -> CommandLine:
    return CommandLine(journal)


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        ("claude", ".claude/projects/-x/session.ndjson"),
        ("codex", ".codex/sessions/2027/01/02/thread-1.jsonl"),
        ("gemini", ".gemini/tmp/x/chats/thread-1.json"),
        ("pi", ".pi/agent/sessions/--x--/1.ndjson"),
        ("copilot", ".copilot/session-state/1.json"),
        ("vscode", ".config/Code/User/workspaceStorage/w/chatSessions/1.ndjson"),
        ("vscode", ".config/Code/User/workspaceStorage/w/chatSessions/1.jsonl.bak"),
        ("claude", ".claude/projects/-x/session.jsonl.gz"),
        ("claude", ".claude/projects/session.jsonl"),
        ("claude", ".claude/projects/-x/old/session.jsonl"),
        ("gemini", ".gemini/tmp/x/session-1.json"),
        ("cline", ".cline/data/sessions/x/old/x.messages.json"),
        ("acpx", ".acpx/x.json"),
        ("auggie", ".augment/x.json"),
        ("goose", ".local/share/goose/x.jsonl"),
        (
            "roo",
            ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks/ui_messages.json",
        ),
    ],
)
def test_a_file_of_another_name_among_conversations_is_named(
    acphold: CommandLine, tmp_path: Path, agent: str, place: str
) -> None:
    path = write_lines(tmp_path / place, {"say": "text"} if agent == "roo" else SPOKEN)
    write_lines(path.with_name("settings.json"), {"theme": "dark"})
    (told,) = imported(acphold, tmp_path, "--agent", agent)
    assert told["unknown"] == [str(path)]
    done = acphold.run("import", "--from", str(tmp_path))
    assert f"{agent}: 1 file of an unknown form: {path}" in done.err


@pytest.mark.parametrize("content", [b"\x01\xff\x00{\n\xfe", b'{"foo":1}\n'])
@pytest.mark.parametrize(
    ("agent", "place"),
    [
        (
            "codex",
            ".codex/sessions/rollout-2026-11-29T09-00-00-019aa998-1111-7111-8111-111111111111.jsonl",
        ),
        ("claude", ".claude/projects/-x/x.jsonl"),
    ],
)
def test_a_file_with_nothing_of_its_program_in_it_is_named(
    acphold: CommandLine, tmp_path: Path, agent: str, place: str, content: bytes
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for _ in range(2):  # the next import says it again
        done = acphold.run("import", "--from", str(tmp_path))
        assert f"{agent}: 1 file of an unknown form: {path}" in done.err


@pytest.mark.parametrize(
    ("agent", "place"),
    [("goose", ".local/share/goose/sessions"), ("hermes", ".hermes")],
)
def test_a_database_beside_the_one_that_is_read_is_named(
    acphold: CommandLine, tmp_path: Path, agent: str, place: str
) -> None:
    path = tmp_path / place / "next.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE threads_v2 (id TEXT)")
    (told,) = imported(acphold, tmp_path, "--agent", agent)
    assert told["unknown"] == [str(path)]


@pytest.mark.parametrize("name", ["opencode", "kilo"])
def test_a_database_without_a_known_table_is_named(
    acphold: CommandLine, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f".local/share/{name}/{name}.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session_v3 (id TEXT)")
    (told,) = imported(acphold, tmp_path, "--agent", name)
    assert told["failures"] == [f"{path}: it has no table of sessions"]


def test_threads_that_no_session_has_are_named(acphold: CommandLine, tmp_path: Path) -> None:
    store = Goose(tmp_path)
    store.session("1")
    store.message("user", "Hi.")
    store.db.execute("CREATE TABLE thread_messages (thread_id TEXT, session_id TEXT)")
    rows = [("t1", None), ("t1", "2"), ("t2", "1"), ("t2", "2"), (None, "1")]
    store.db.executemany("INSERT INTO thread_messages VALUES (?, ?)", rows)
    (told,) = imported(acphold, tmp_path, "--agent", "goose")
    path = tmp_path / ".local/share/goose/sessions/sessions.db"
    assert told["failures"] == [f"{path}: threads of an unknown form: 1"]


def test_messages_of_the_editor_without_a_conversation_are_named(
    acphold: CommandLine, tmp_path: Path
) -> None:
    editor = Editor(tmp_path)
    for composer in ("c1", "c2", "c3", "c4"):
        editor.composer(composer)
        for words in ("One.", "Two."):
            editor.bubble(1, words, composer)
    editor.db.execute("UPDATE cursorDiskKV SET value = NULL WHERE key = 'composerData:c2'")
    editor.db.execute("DELETE FROM cursorDiskKV WHERE key = 'composerData:c3'")
    editor.put("bubbleId:", "")
    (told,) = imported(acphold, tmp_path, "--agent", "cursor")
    path = editor.user / "globalStorage/state.vscdb"
    assert told["failures"] == [f"{path}: conversations without their record: 2"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_backup_of_the_editor_is_named_if_it_has_more_than_its_database(
    acphold: CommandLine, tmp_path: Path, *, is_there: bool
) -> None:
    editor = Editor(tmp_path)
    for composer in ("c1", "c2"):
        editor.composer(composer)
        editor.bubble(1, "Hello.", composer)
    path = editor.user / "globalStorage/state.vscdb"
    backup = path.with_name("state.vscdb.backup")
    backup.write_bytes(path.read_bytes())
    (told,) = imported(acphold, tmp_path, "--agent", "cursor")
    assert (told["failures"], told["unknown"]) == ([], [])
    if is_there:
        editor.db.execute("DELETE FROM cursorDiskKV WHERE key LIKE '%:c2%'")
    else:
        path.unlink()
    (told,) = imported(acphold, tmp_path, "--agent", "cursor")
    lacking = f"conversations that are not in state.vscdb: {1 if is_there else 2}"
    assert told["failures"] == [f"{backup}: {lacking}"]


def test_messages_whose_session_was_lost_are_named(acphold: CommandLine, tmp_path: Path) -> None:
    messages = tmp_path / ".local/share/opencode/storage/message"
    write_lines(messages / "ses_1/msg_1.json", {"role": "user"})
    (messages / "ses_2").mkdir()  # it was deleted
    (told,) = imported(acphold, tmp_path, "--agent", "opencode")
    assert told["failures"] == [f"{messages / 'ses_1'}: the file of its session is missing"]


def test_what_cannot_be_read_is_named_until_it_has_been_and_when_it_has_changed(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lost = tmp_path / ".local/share/opencode/storage/message/ses_1"
    write_lines(lost / "msg_1.json", {"role": "user"})
    nameless = tmp_path / ".gemini/tmp/x/chats/session-1.json"
    write_lines(nameless, SPOKEN)
    said = [
        f"opencode: cannot read {lost}: the file of its session is missing\n",
        f"gemini: cannot read {nameless}: it names no session\n",
    ]
    before = "cannot read 1 file, as before; `acphold doctor` says why\n"
    first = acphold.run("import").err
    assert [it in first for it in said] == [True, True]
    again = acphold.run("import")
    assert "unreadable 1" in again.out
    assert again.err == f"gemini: {before}opencode: {before}"
    told = " ".join(acphold.run("doctor").out.split())
    assert told.count("it names no session") == told.count("its session is missing") == 1
    write_lines(nameless, SPOKEN, SPOKEN)
    assert acphold.run("import").err == f"{said[1]}opencode: {before}"


@pytest.mark.parametrize("which", HOMES)
def test_what_lies_beside_a_conversation_of_a_known_form_is_not_named(
    acphold: CommandLine, tmp_path: Path, which: str
) -> None:
    _, make, _ = HOMES[which]
    make(tmp_path)
    told: list[Any] = imported(acphold, tmp_path)
    assert [one["unknown"] for one in told] == [[]]


def test_the_doctor_names_what_is_not_current(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, make, _ = HOMES["pi"]
    make(tmp_path)
    write_lines(tmp_path / ".pi/agent/sessions/--x--/1.ndjson", SPOKEN)
    monkeypatch.setenv("HOME", str(tmp_path))
    said = " ".join(acphold.run("doctor").out.split())
    assert "! pi: 1 conversation not current (new 1); `acphold import` reads them" in said
    assert "! pi: 1 file of an unknown form: ~/.pi/agent/sessions/--x--/1.ndjson" in said
    acphold.run("import")
    (session,) = (tmp_path / ".pi/agent/sessions").glob("*/*.jsonl")
    said_more = {"role": "user", "content": [{"type": "text", "text": "More."}]}
    grown = {"type": "message", "id": "n1", "parentId": None, "timestamp": "2027-01-01T00:00:00Z"}
    with session.open("a") as file:
        file.write(json.dumps({**grown, "message": said_more}) + "\n")
    said = " ".join(acphold.run("doctor").out.split())
    assert "! pi: 1 conversation not current (grown 1)" in said
