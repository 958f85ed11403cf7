"""Transcripts that somebody broke, or made to break a reader."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acphold.imports import NAMES, Home, reader
from acphold.imports.records import LINE_BYTES
from acphold.imports.sources import Facts, searching
from acphold.imports.values import milliseconds
from tests.imports import test_auggie as auggie
from tests.imports.claude_home import SESSION as CLAUDE, Transcript, thinking, use
from tests.imports.codex_home import Rollout
from tests.imports.every_reader import OLDER_FORMS, READERS, Said, found, write
from tests.imports.test_cline import SESSION as TASK
from tests.imports.test_crush import Database, part
from tests.imports.test_cursor import Editor
from tests.imports.test_hermes import State, call as hermes_call
from tests.imports.test_pi import Session, use as pi_use
from tests.imports.test_roo import TASK as ROO_TASK
from tests.imports.test_vscode import asked, call, document, request, session, storage, tool
from tests.imports.test_zed import Threads, agent, result, use as zed_use, user
from tests.imports.told import Story, write_lines

Json = Any

DEEP = b'{"type":"user","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
HALF = b'{"parentUuid":null,"type":"user","uuid":"h","message":{"content":"half \\ud83d"}}\n'


def claude(home: Path, *odd: bytes) -> Story:
    transcript = Transcript("Hello.")
    transcript.records += odd
    transcript.assistant("Hi.")
    transcript.write(home)
    return Story.of(reader("claude"), home)


@pytest.mark.parametrize(
    "odd",
    [
        DEEP,
        b"\x00\xff\xfe\n",
        b"[1, 2]\n",
        b'"words"\n',
        b"{}\n",
        b'{"type":["user"],"uuid":7,"message":"x"}\n',
        b'{"type":"user","uuid":"x","message":{"content":{"text":5}}}\n',
        b'{"type":"assistant","uuid":"x","message":{"content":[null,3,{"type":"tool_use"}]}}\n',
        b'{"type":"user","uuid":"x","timestamp":"never","message":{"content":[]}}\n',
        b'{"type":"system","uuid":"x","subtype":"compact_boundary","compactMetadata":3}\n',
    ],
)
def test_a_record_that_nobody_can_understand_costs_only_itself(tmp_path: Path, odd: bytes) -> None:
    said = claude(tmp_path, odd).said()
    assert ("user", "Hello.") in said
    assert ("agent", "Hi.") in said


def test_half_a_surrogate_pair_is_a_replacement_character(tmp_path: Path) -> None:
    write_lines(tmp_path / ".claude/projects/x/s.jsonl", HALF)
    assert Story.of(reader("claude"), tmp_path).said() == [("user", "half \ufffd")]


def test_a_line_that_is_too_long_is_counted_and_passed_over(tmp_path: Path) -> None:
    long = b'{"type":"user","x":"' + b"x" * LINE_BYTES + b'"}\n'
    told = claude(tmp_path, long)
    assert told.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert told.facts.missed.counts == {"lines that are too long": 1}


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    transcript = Transcript("Secret.")
    outside = write_lines(tmp_path / "outside.jsonl", *transcript.records)
    (folder := tmp_path / "home/.claude/projects/x").mkdir(parents=True)
    (folder / "s.jsonl").symlink_to(outside)
    (folder / "round.jsonl").symlink_to(folder / "round.jsonl")
    (tmp_path / "home/.claude/projects/y").symlink_to(tmp_path)
    assert list(reader("claude").find(Home(tmp_path / "home"))) == []


BESIDE = {
    "claude": (f"{CLAUDE}/custom-title.json", '{"customTitle": "/words"}'),
    "cline": (f"{TASK}.json", '{"cwd": "/words"}'),
    "copilot": ("workspace.yaml", "cwd: /words\n"),
    "gemini": ("../.project_root", "/words"),
    "roo": ("history_item.json", '{"workspace": "/words"}'),
    "roo, from the list of tasks": (
        "../../state/taskHistory.json",
        json.dumps([{"id": ROO_TASK, "cwdOnTaskInitialization": "/words"}]),
    ),
    "vscode": ("../workspace.json", '{"folder": "file:///words"}'),
    "roo, from the model's side": (
        "api_conversation_history.json",
        "# Current Workspace Directory (/words) Files",
    ),
}


@pytest.mark.parametrize("which", BESIDE)
@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_file_beside_a_conversation_that_leads_out_is_not_read_but_counted(
    tmp_path: Path, which: str, *, is_pipe: bool
) -> None:
    name, (below, words) = which.partition(",")[0], BESIDE[which]
    home = tmp_path / "home"
    write(name, home, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (source,) = found(name, home)
    beside = source.path.parent / below
    beside.parent.mkdir(exist_ok=True)
    beside.unlink(missing_ok=True)
    beside.parent.mkdir(exist_ok=True)
    (inside := beside.with_name("inside")).write_text(words)
    beside.symlink_to(inside)
    told = [Story(reader(name), source) for source in found(name, home)]
    outside = tmp_path / "outside"
    if is_pipe:
        os.mkfifo(outside)
    else:
        outside.write_text(words)
    beside.unlink()
    beside.symlink_to(outside)
    told += (Story(reader(name), source) for source in found(name, home))
    assert ["/words" in (it.facts.cwd, it.facts.title) for it in told] == [True, False]
    assert [it.said() for it in told] == [[("user", "Hello."), ("agent", "Hi.")]] * 2
    lost = {"links that lead out of a folder": 1}
    assert [it.facts.missed.counts for it in told] == [{}, lost]


@pytest.mark.parametrize("name", [*READERS, *OLDER_FORMS])
def test_nothing_is_read_through_a_link_that_leads_out(tmp_path: Path, name: str) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    write(name, home, [Said(1, 1_767_322_800_000, "Question", "Answer")])
    for file in [path for path in home.rglob("*") if path.is_file()]:
        inside = file.read_bytes()
        there = outside / file.name
        there.write_bytes(inside.replace(b"Question", b"Secret-q").replace(b"/ada/", b"/eve/"))
        file.unlink()
        file.symlink_to(there)
        for source in found(name, home):
            with suppress(OSError):
                told = Story(reader(name.partition(" ")[0]), source)
                assert "eve" not in told.facts.cwd
                assert "Secret" not in json.dumps(told.raw)
        file.unlink()
        file.write_bytes(inside)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("claude", ".claude/projects/-home-ada-project"),
        ("codex", ".codex/sessions/2026"),
        ("gemini", ".gemini/tmp/project/chats"),
    ],
)
def test_a_folder_of_conversations_that_leads_out_is_not_read_but_named(
    tmp_path: Path, name: str, place: str
) -> None:
    write(name, tmp_path / "home", [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (link := tmp_path / "home" / place).rename(tmp_path / "outside")
    link.symlink_to(tmp_path / "outside")
    link.with_name("other").symlink_to(tmp_path / "missing")
    with searching() as search:
        assert not [*found(name, tmp_path / "home")]
    assert {error.filename for error in search.unreadable} == {str(link)}


def test_what_was_written_beside_a_database_is_not_read_through_a_link(tmp_path: Path) -> None:
    write("opencode", tmp_path, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (source,) = found("opencode", tmp_path)
    (tmp_path / "outside").write_bytes(b"x" * 100)
    (log := source.path.with_name("opencode.db-wal")).symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="it is a link that leads out of its folder") as refused:
        Story(reader("opencode"), source)
    assert refused.value.filename == str(log)


@pytest.mark.parametrize("kind", ["message", "part"])
@pytest.mark.parametrize("is_above", [False, True])
def test_a_folder_of_a_conversation_that_leads_out_is_not_read_but_named(
    tmp_path: Path, kind: str, *, is_above: bool
) -> None:
    home = tmp_path / "home"
    storage = home / ".local/share/opencode/storage"
    write_lines(storage / "session/p/ses_1.json", {"id": "ses_1", "directory": "/"})
    asked = {"id": "msg_1", "role": "user", "time": {"created": 1_767_322_800_000}}
    write_lines(storage / "message/ses_1/msg_1.json", asked)
    write_lines(storage / "part/msg_1/prt_1.json", {"type": "text", "text": "Hello."})
    assert Story.of(reader("opencode"), home).said() == [("user", "Hello.")]
    above = storage / kind
    moved = above if is_above else next(above.iterdir())
    moved.rename(tmp_path / "outside")
    moved.symlink_to(tmp_path / "outside")
    with searching() as search:
        assert Story.of(reader("opencode"), home).said() == []
    assert "it is a link that leads out of its folder" in [it.strerror for it in search.unreadable]


def test_a_link_that_leads_to_itself_hides_nothing_but_itself(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.write(tmp_path)
    loop = tmp_path / ".claude/projects/loop"
    loop.symlink_to(loop)
    assert len(list(reader("claude").find(Home(tmp_path)))) == 1


def test_a_folder_that_is_a_link_to_itself_has_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".claude/projects"
    folder.parent.mkdir()
    folder.symlink_to(folder)
    with searching() as search:
        assert list(reader("claude").find(Home(tmp_path))) == []
    assert search.unreadable


@pytest.mark.parametrize(
    "value", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z", 2**61, 10**15, -1, 0, 1e400, "x"]
)
def test_a_time_that_cannot_be_shown_is_none(value: object) -> None:
    assert milliseconds(value) is None


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    transcript = Transcript("Hello.")
    path = transcript.write(tmp_path)
    (path.parent.parent / "also").symlink_to(path.parent)
    path.with_name("link.jsonl").symlink_to(path)
    found = reader("claude").find(Home(tmp_path))
    assert sorted(source.path.name for source in found) == sorted([path.name, "link.jsonl"] * 2)


@pytest.mark.parametrize(
    "odd", [b"5", b'["words"]', b'"words"', b"{}", b'{"prompt":[1]}', b'{"prompt":"x"}']
)
def test_a_prompt_of_our_own_lines_that_is_none_costs_only_itself(
    tmp_path: Path, odd: bytes
) -> None:
    write_lines(
        tmp_path / "x.jsonl",
        {"session": {"sessionId": "s", "agent": "a", "cwd": "/"}},
        b'{"seq":1,"kind":"prompt","update":%b}\n' % odd,
        {"seq": 2, "kind": "prompt", "update": [{"type": "text", "text": "Hello."}]},
    )
    assert Story.of(reader("acphold"), tmp_path).said() == [("user", "Hello.")]


def test_an_entry_of_our_own_lines_that_is_no_utf_8_costs_only_itself(tmp_path: Path) -> None:
    chunk = b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\xd3"}}'
    write_lines(
        tmp_path / "x.jsonl",
        {"session": {"sessionId": "s", "agent": "a", "cwd": "/"}},
        {"seq": 1, "kind": "prompt", "update": [{"type": "text", "text": "Grüße."}]},
        b'{"seq":2,"kind":"update","update":%b}\n' % chunk,
    )
    assert Story.of(reader("acphold"), tmp_path).said() == [("user", "Grüße.")]


def test_a_prompt_of_our_own_lines_with_half_a_surrogate_pair_is_kept(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "x.jsonl",
        {"session": {"sessionId": "s", "agent": "a", "cwd": "/"}},
        b'{"seq":1,"kind":"prompt","update":[{"type":"text","text":"half \\ud83d"}]}\n',
    )
    prompt, *_ = Story.of(reader("acphold"), tmp_path).entries
    assert b"half \\ufffd" in prompt.raw


@pytest.mark.parametrize("name", ["opencode", "goose", "cursor"])
def test_a_database_with_a_damaged_schema_cannot_be_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / DATABASES[name]
    path.parent.mkdir(parents=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE session (id TEXT)")
    database.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE session", b"CREATE TABLE \xffession"))
    with searching() as search:
        assert list(reader(name).find(Home(tmp_path))) == []
    assert ["the database cannot be read" in str(error) for error in search.unreadable] == [True]


DATABASES = {
    "opencode": ".local/share/opencode/opencode.db",
    "goose": ".local/share/goose/sessions/sessions.db",
    "cursor": ".config/Cursor/User/globalStorage/state.vscdb",
}


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (
            "opencode",
            "CREATE TABLE part (session_id); CREATE TABLE session (id, time_updated, parent_id);"
            "INSERT INTO session VALUES (NULL, 1, NULL), (x'00', 1, NULL), (5, 1, NULL)",
        ),
        (
            "goose",
            "CREATE TABLE messages (session_id);"
            "CREATE TABLE sessions (id, updated_at, session_type);"
            "INSERT INTO sessions VALUES (NULL, 1, 'acp'), (x'00', 1, 'acp'), (5, 1, 'acp')",
        ),
        (
            "cursor",
            "CREATE TABLE cursorDiskKV (key, value);"
            "INSERT INTO cursorDiskKV VALUES (NULL, '{}'), (x'00', '{}'), ('composerData:', '{}')",
        ),
    ],
)
def test_a_session_of_a_database_without_a_name_is_passed_over(
    tmp_path: Path, name: str, schema: str
) -> None:
    path = tmp_path / DATABASES[name]
    path.parent.mkdir(parents=True)
    database = sqlite3.connect(path)
    database.executescript(schema)
    database.close()
    assert list(reader(name).find(Home(tmp_path))) == []


KEYS = {
    "cursor": ("cursorDiskKV", "key", b"composerData:"),
    "opencode": ("session", "id", b""),
    "zed": ("threads", "id", b""),
}
"""Where a database has the ids of its conversations, if not in a table of sessions."""


@pytest.mark.parametrize(
    ("bad", "why"), [(b"\xffa", "not valid UTF-8"), (b"a\0b", "NUL character")]
)
@pytest.mark.parametrize("name", ["opencode", "goose", "zed", "crush", "hermes", "cursor"])
def test_an_id_in_a_database_that_cannot_be_kept_is_named_and_costs_only_its_session(
    tmp_path: Path, name: str, bad: bytes, why: str
) -> None:
    write(name, tmp_path, [Said(1, 1_767_322_800_000, "Hello.", "Hi.")])
    (whole,) = found(name, tmp_path)
    table, key, begin = KEYS.get(name, ("sessions", "id", b""))
    with closing(sqlite3.connect(whole.path, isolation_level=None)) as database:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        others = ", ".join("CAST(? AS TEXT)" if it == key else it for it in columns)
        its = f"SELECT {others} FROM {table} WHERE {key} LIKE ?"
        database.execute(f"INSERT INTO {table} {its}", (begin + bad, f"{begin.decode()}%"))
    with searching() as search:
        assert [it.session_id for it in found(name, tmp_path)] == [whole.session_id]
    assert [why in str(error) for error in search.unreadable] == [True]


def test_a_folder_with_a_nul_character_is_none() -> None:
    assert Facts(cwd="/home/a\0b").named_folder == ""


def _rich_claude(home: Path) -> None:
    transcript = Transcript("Hello.")
    transcript.assistant(thinking("Hm."), "Hi.", use("t1", "Edit", file_path="/a", old_string="x"))
    patch = [{"lines": ["-x", "+y"], "newStart": 1}]
    transcript.result("t1", "ok", toolUseResult={"filePath": "/a", "structuredPatch": patch})
    transcript.assistant(use("t2", "TodoWrite", todos=[{"content": "a", "status": "pending"}]))
    transcript.write(home)


def _rich_codex(home: Path) -> None:
    rollout = Rollout("Hello.")
    rollout.thought("Hm.")
    rollout.run("c1", "cat a | head -3; ls", "out\n")
    rollout.call("c2", "update_plan", "ok", plan=[{"step": "a", "status": "pending"}])
    rollout.write(home)


def _rich_gemini(home: Path) -> None:
    call = {"id": "c", "name": "replace", "args": {"file_path": "a"}, "status": "success"}
    call["resultDisplay"] = {"fileDiff": "x", "fileName": "a", "newContent": "b"}
    write_lines(
        home / ".gemini/tmp/p/chats/session-2026-01-02T03-04-aaaaaaaa.jsonl",
        {"sessionId": "s1", "startTime": "2026-01-02T03:04:05Z"},
        {"id": "1", "type": "user", "content": [{"text": "Hello."}]},
        {"id": "2", "type": "gemini", "content": "Hi.", "toolCalls": [call], "thoughts": []},
        {"$set": {"messages": [{"id": "3", "type": "user", "content": "<summary>"}]}},
    )


def _rich_copilot(home: Path) -> None:
    start = {"toolCallId": "c", "toolName": "edit", "arguments": {"path": "/a", "new_str": "b"}}
    write_lines(
        home / ".copilot/session-state/s1/events.jsonl",
        {"type": "user.message", "data": {"content": "Hello.", "attachments": [{"path": "/a"}]}},
        {"type": "assistant.message", "data": {"content": "Hi.", "reasoningText": "Hm."}},
        {"type": "tool.execution_start", "data": start},
        {"type": "tool.execution_complete", "data": {"toolCallId": "c", "success": True}},
    )


def _rich_acpx(home: Path) -> None:
    folder = home / ".acpx/sessions"
    write_lines(folder / "r.json", {"schema": "acpx.session.v1", "acp_session_id": "s1"})
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "x"}
    write_lines(
        folder / "r.stream.ndjson",
        {"type": "segment", "sequence": 0},
        {"id": 1, "method": "session/prompt", "params": {"prompt": [{"type": "text"}]}},
        {"method": "session/update", "params": {"sessionId": "s1", "update": update}},
        {"id": 1, "result": {"stopReason": "end_turn"}},
    )


def _rich_cline(home: Path) -> None:
    (folder := home / ".cline/data/tasks/1").mkdir(parents=True)
    tool = {"tool": "editedExistingFile", "path": "a", "content": "x"}
    said = [("task", "Hello."), ("tool", json.dumps(tool)), ("command", "ls"), ("text", "Hi.")]
    screen = [{"ts": 1, "type": "say", "say": kind, "text": words} for kind, words in said]
    (folder / "ui_messages.json").write_text(json.dumps(screen))


def _rich_roo(home: Path) -> None:
    (folder := home / ".vscode-mock/global-storage/tasks/1").mkdir(parents=True)
    edited = {"tool": "appliedDiff", "batchDiffs": [{"path": "a", "diffs": [{"content": "@@ "}]}]}
    said = [("text", "Hello."), ("tool", json.dumps(edited)), ("text", "Hi.")]
    screen: list[Json] = [{"ts": 1, "type": "say", "say": kind, "text": x} for kind, x in said]
    screen.append({"say": "condense_context", "contextCondense": {"summary": "x"}})
    (folder / "ui_messages.json").write_text(json.dumps(screen))
    (folder / "history_item.json").write_text(json.dumps({"workspace": "/a"}))


def _rich_pi(home: Path) -> None:
    session = Session()
    picture = {"type": "image", "data": "AA", "mimeType": "image/png"}
    session.user("Hello.", picture)
    edit = pi_use("c1", "edit", path="a", edits=[{"oldText": "x", "newText": "y"}])
    session.agent({"type": "thinking", "thinking": "Hm."}, "Hi.", edit, reason="toolUse")
    session.result("c1", "edit", "ok")
    session.add("compaction", summary="x", tokensBefore=7, usage={"cost": {"total": 0.5}})
    session.message("bashExecution", "", command="ls", output="a", cancelled=True)
    session.add("custom_message", content=[picture], display=True)
    session.write(home)


def _rich_cursor(home: Path) -> None:
    editor = Editor(home)
    editor.composer(subagentComposerIds=["child"])
    chosen = [{"uri": {"fsPath": "/a"}}]
    editor.bubble(1, "Hello.", context={"fileSelections": chosen, "selections": chosen})
    editor.bubble(2, "Hi.", thinking={"text": "Hm."}, tokenCount={"inputTokens": 1})
    editor.tool("edit_file", {"path": "a"}, {"diff": {"chunks": [{"diffString": "+ a"}]}})
    editor.tool("todo_write", {"todos": [{"content": "a", "status": "pending"}]}, {})
    editor.tool("task", {"description": "x"}, {})
    editor.composer("child", subagentInfo={"parentComposerId": "c1", "toolCallId": "t4"})
    editor.tool("list_dir", {"path": "a"}, {}, "child")


def _rich_vscode(home: Path) -> None:
    answer = [
        {"kind": "thinking", "value": "Hm."},
        {"kind": "inlineReference", "inlineReference": {"path": "/a", "scheme": "file"}},
        tool("copilot_replaceString", "c1"),
        tool("manage_todo_list", "c2", toolSpecificData={"todoList": [{"title": "a"}]}),
        {"kind": "textEditGroup", "uri": {"path": "/b"}, "edits": [[{"text": "x"}]]},
    ]
    given = asked(call("c1", filePath="/a", oldString="x", newString="y"), c1="ok")
    whole = request("Hello.", "Hi.", *answer, result=given)
    document(home, whole)
    write_lines(
        storage(home) / "chatSessions/s2.jsonl",
        {"kind": 0, "v": session()},
        {"kind": 2, "k": ["requests"], "v": [whole]},
        {"kind": 1, "k": ["requests", 0, "modelState"], "v": {"value": 2}},
    )


def _rich_zed(home: Path) -> None:
    output = {"input_path": "a", "old_text": "x", "new_text": "y", "session_id": "t2"}
    mention = {"Mention": {"uri": {"File": {"abs_path": "/a"}}, "content": "x"}}
    said = agent("Hi.", {"Thinking": {"text": "Hm."}}, zed_use("c1", "edit_file", path="a"))
    said["Agent"]["tool_results"] = {"c1": result("ok", output=output)}
    threads = Threads(home)
    threads.put(user("Hello.", mention), said, plain=True, folder_paths="/a")
    old = {"role": "user", "segments": [{"type": "text", "text": "Hello."}]}
    threads.put(old, thread="t2", plain=True, version="0.2.0")


def _rich_crush(home: Path) -> None:
    database = Database(home)
    database.session()
    database.message(
        "user", "Hello.", part("binary", Path="/a.png", MIMEType="image/png", Data="x")
    )
    given = json.dumps({"file_path": "a", "old_string": "x", "new_string": "y"})
    steps = json.dumps({"todos": [{"content": "a", "status": "pending"}]})
    database.message(
        "assistant",
        part("reasoning", thinking="Hm."),
        part("tool_call", id="c1", name="edit", input=given),
        part("tool_call", id="c2", name="todos", input=steps),
    )
    about = json.dumps({"old_content": "x", "new_content": "y"})
    database.message("tool", part("tool_result", tool_call_id="c1", content="ok", metadata=about))
    database.message("assistant", "Hi.", part("finish", reason="end_turn"))


def _rich_hermes(home: Path) -> None:
    state = State(home)
    config = json.dumps({"cwd": "/a"})
    state.session(model_config=config, end_reason="compression")
    state.message("user", [{"type": "text", "text": "Hello."}])
    calls = [hermes_call("c1", "patch", path="a", old_string="x", new_string="y")]
    calls.append(hermes_call("c2", "todo", todos=[{"content": "a", "status": "pending"}]))
    state.message("assistant", "Hi.", tool_calls=calls)
    state.message("tool", json.dumps({"success": True, "exit_code": 0}), tool_call_id="c1")
    state.session("s2", parent_session_id="s1", model_config=config)
    state.message("user", "Bye.", "s2")


def _rich_auggie(home: Path) -> None:
    edit = auggie.called("c1", "str-replace-editor", path="a", old_str_1="x", new_str_1="y")
    asked = (auggie.words("Hello."), auggie.WHERE, {"type": 2, "image_node": {"image_data": "x"}})
    thought = {"type": 8, "thinking": {"summary": "Hm."}}
    spent = {"type": 10, "token_usage": {"input_tokens": 1, "output_tokens": 2}}
    auggie.session(
        home,
        auggie.exchange("Hello.", thought, auggie.said("Hi."), edit, spent, nodes=asked),
        auggie.exchange("", auggie.said("Done."), nodes=(auggie.result("c1", "ok"),)),
        auggie.exchange("Summary.", isHistorySummary=True),
    )


RICH: dict[str, Callable[[Path], None]] = {
    "acpx": _rich_acpx,
    "auggie": _rich_auggie,
    "claude": _rich_claude,
    "cline": _rich_cline,
    "codex": _rich_codex,
    "copilot": _rich_copilot,
    "crush": _rich_crush,
    "cursor": _rich_cursor,
    "gemini": _rich_gemini,
    "hermes": _rich_hermes,
    "pi": _rich_pi,
    "roo": _rich_roo,
    "vscode": _rich_vscode,
    "zed": _rich_zed,
}

ODD: tuple[Json, ...] = (None, True, -1, 1e400, "", "x", "../../x", [], {}, [[]], {"": {}})
"""Values of the wrong type, for any place."""


def _broken(value: Json, random: Random) -> Json:
    """The value with something odd put somewhere into it."""
    if random.random() < 0.12:
        return random.choice(ODD)
    if isinstance(value, dict):
        return {name: _broken(inner, random) for name, inner in value.items()}
    if isinstance(value, list):
        return [_broken(inner, random) for inner in value]
    return value


def _break_rows(path: Path, random: Random) -> None:
    """Put something odd into the JSON that a database holds."""
    database = sqlite3.connect(path, isolation_level=None)
    tables = "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
    for table, column in database.execute(tables).fetchall():
        cells = database.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        for row, value in cells:
            text = value.decode() if isinstance(value, bytes) else value
            if isinstance(text, str) and text.startswith(("{", "[")):
                broken = json.dumps(_broken(json.loads(text), random))
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (broken, row))
    database.close()


def _texts(home: Path) -> Iterator[Path]:
    return (path for path in home.rglob("*") if path.suffix in (".json", ".jsonl", ".ndjson"))


def _databases(home: Path) -> Iterator[Path]:
    return (path for path in home.rglob("*") if path.suffix in (".db", ".vscdb"))


@pytest.mark.parametrize("name", RICH)
def test_no_value_in_any_place_makes_a_reader_fail(tmp_path: Path, name: str) -> None:
    for seed in range(25):
        (home := tmp_path / f"{seed}").mkdir()
        RICH[name](home)
        try:
            _read_broken(home, name, Random(seed))
        except Exception as error:
            error.add_note(f"with seed {seed}")
            raise


def _read_broken(home: Path, name: str, random: Random) -> None:
    for path in _texts(home):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        broken = [_broken(line, random) for line in lines]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in broken))
    for path in _databases(home):
        _break_rows(path, random)
    reading = reader(name)
    for source in reading.find(Home(home)):
        for entry in Story(reading, source).entries:
            json.loads(entry.raw)
            assert b"\n" not in entry.raw


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_home_has_nothing(tmp_path: Path, name: str) -> None:
    assert list(reader(name).find(Home(tmp_path))) == []


MEASURE = r"""
import re, sys
from pathlib import Path
from acphold.imports import Home, reader
from acphold.imports.turns import NOTHING
from acphold.imports.pieces import pieces
reading = reader(sys.argv[1])
(source,) = reading.find(Home(Path(sys.argv[2])))
count = sum(len(piece.entries) for piece in pieces(source, reading, NOTHING))
(peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
print(count, peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_transcript_of_200_megabytes_is_told_in_less_than_100(tmp_path: Path, name: str) -> None:
    words = "word " * 400
    if name == "claude":
        transcript = Transcript()
        transcript.user("go on", after="00000000-0000-4000-before-000000000100")
        for _ in range(49):
            transcript.assistant(words)
            transcript.user("go on")
        transcript.assistant(words)
        block = b"".join(json.dumps(r).encode() + b"\n" for r in transcript.records)
        path = transcript.write(tmp_path)
    else:
        rollout = Rollout()
        for _ in range(50):
            rollout.user("go on")
            rollout.agent(words)
        block = b"".join(json.dumps(r).encode() + b"\n" for r in rollout.records[1:])
        path = rollout.write(tmp_path)
    with path.open("ab") as file:
        for number in range(200_000_000 // len(block)):
            # Other ids and times each time, as each record has its own: equal rows are copies.
            own = block.replace(b"-8000-", b"-%04x-" % number)
            own = own.replace(b".000Z", b".%03dZ" % number)
            file.write(own.replace(b"-before-", b"-%04x-" % (number - 1) if number else b"-8000-"))
    assert path.stat().st_size > 195_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=140,
        check=True,
    )
    count, kilobytes = map(int, done.stdout.split())
    assert count > 100_000
    assert kilobytes < 100 * 1024
