"""Cursor: the databases of its editor in three generations, and those of its command line."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import databases
from acphold.imports.cursor import READER
from tests.imports.told import Story, sources

Json = Any
CWD = "/home/ada/my project"


class Editor:
    """The databases of an editor in a home folder."""

    def __init__(self, home: Path, channel: str = "Cursor") -> None:
        self.user = home / f".config/{channel}/User"
        self.db = self._database("globalStorage")
        self._headers: dict[str, list[Json]] = {}
        self._abouts: dict[str, Json] = {}

    def _database(self, folder: str) -> sqlite3.Connection:
        path = self.user / folder / "state.vscdb"
        path.parent.mkdir(parents=True)
        db = sqlite3.connect(path, isolation_level=None)
        for table in ("ItemTable", "cursorDiskKV"):
            db.execute(f"CREATE TABLE {table} (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        return db

    def put(self, key: str, value: Json, table: str = "cursorDiskKV") -> None:
        words = value if isinstance(value, str | bytes) else json.dumps(value)
        self.db.execute(f"INSERT INTO {table} VALUES (?, ?)", (key, words))

    def composer(self, composer: str = "c1", **about: Json) -> None:
        self._abouts[composer] = {"_v": 16, "composerId": composer, "createdAt": 1_767_000_000_000}
        self._abouts[composer] |= {"name": "Notes", "status": "completed"} | about
        self._headers[composer] = []
        self.put(f"composerData:{composer}", self._abouts[composer])

    def bubble(self, kind: int, words: str = "", composer: str = "c1", **about: Json) -> None:
        headers = self._headers[composer]
        bubble_id = f"b{len(headers)}"
        headers.append({"bubbleId": bubble_id, "type": kind})
        told = {"_v": 3, "type": kind, "bubbleId": bubble_id, "text": words} | about
        self.put(f"bubbleId:{composer}:{bubble_id}", told)
        whole = self._abouts[composer] | {"fullConversationHeadersOnly": headers}
        self.put(f"composerData:{composer}", whole)

    def tool(
        self, name: str, given: Json, result: Json, composer: str = "c1", **more: Json
    ) -> None:
        call = {
            "name": name,
            "status": "completed",
            "toolCallId": f"t{len(self._headers[composer])}",
        }
        call |= {"rawArgs": json.dumps(given), "result": json.dumps(result)} | more
        self.bubble(2, "", composer, toolFormerData=call)

    def folder(self, name: str, uri: str, **items: Json) -> None:
        """The folder's own database, with its identity."""
        db = self._database(f"workspaceStorage/{name}")
        for key, value in items.items():
            db.execute("INSERT INTO ItemTable VALUES (?, ?)", (key, json.dumps(value)))
        (self.user / "workspaceStorage" / name / "workspace.json").write_text(
            json.dumps({"folder": uri})
        )


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    found = Editor(tmp_path)
    found.composer()
    return found


def test_a_conversation_of_the_editor_is_told_as_it_was_held(
    editor: Editor, tmp_path: Path
) -> None:
    heads = {"allComposers": [{"type": "head", "composerId": "c1"}]}
    editor.folder("w", "file:///home/ada/my%20project", **{"composer.composerData": heads})
    editor.bubble(1, "Look.", createdAt="2026-01-02T03:04:05.000Z")
    editor.bubble(2, thinking={"text": "Hm.", "signature": ""}, capabilityType=30)
    editor.bubble(2, "I look.", tokenCount={"inputTokens": 5, "outputTokens": 3})
    editor.tool("read_file_v2", {"path": "notes.txt"}, {"contents": "one"})
    editor.bubble(2, "Done.")
    told = Story.of(READER, tmp_path)
    assert told.facts.cwd == CWD
    assert told.facts.title == "Notes"
    assert told.facts.created_at == 1_767_000_000_000
    assert told.facts.updated_at == 1_767_323_045_000
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read notes.txt"),
        ("agent", "Done."),
    ]
    call = told.call()
    assert (call["kind"], call["locations"]) == ("read", [{"path": f"{CWD}/notes.txt"}])
    assert call["content"] == [{"type": "content", "content": {"type": "text", "text": "one"}}]
    (end,) = told.ends()
    assert end["stopReason"] == "end_turn"
    assert end["usage"] == {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}
    assert not told.facts.missed.counts


def test_the_folder_is_where_today_s_headers_or_a_prompt_say(
    editor: Editor, tmp_path: Path
) -> None:
    uri = {"$mid": 1, "fsPath": CWD, "external": "file:///home/ada/my%20project", "scheme": "file"}
    head = {"composerId": "c1", "workspaceIdentifier": {"id": "w", "uri": uri}}
    editor.put("composer.composerHeaders", {"allComposers": [head]}, "ItemTable")
    editor.bubble(1, "Here?")
    editor.composer("c2")
    editor.bubble(1, "There?", "c2", workspaceUris=["vscode-remote://x", "file:///there"])
    first, second = (Story(READER, source) for source in sources(READER, tmp_path))
    assert (first.facts.cwd, second.facts.cwd) == (CWD, "/there")


def test_an_edit_is_a_diff_however_its_version_kept_it(editor: Editor, tmp_path: Path) -> None:
    editor.bubble(1, "Edit.")
    chunk = {"diffString": "  one\n- two\n+ three", "oldStart": 1}
    editor.tool("edit_file", {"target_file": "/a"}, {"diff": {"chunks": [chunk]}})
    editor.put("composer.content.1", "before")
    editor.put("composer.content.2", b"after")
    ids = {"beforeContentId": "composer.content.1", "afterContentId": "composer.content.2"}
    editor.tool("edit_file_v2", {"path": "/b"}, ids)
    given = {"file_path": "/c", "old_string": "x", "new_string": "y"}
    editor.tool("search_replace", given, {})
    editor.tool("write", {"file_path": "/d", "contents": "new"}, {})
    lost = {"afterContentId": "composer.content.lost"}
    editor.tool("edit_file_v2", {"path": "/e", "streamingContent": "all"}, lost)
    diffs = [json.loads(call.fields["content"])[0] for call in Story.of(READER, tmp_path).calls()]
    assert [(d["path"], d["oldText"], d["newText"]) for d in diffs] == [
        ("/a", "one\ntwo", "one\nthree"),
        ("/b", "before", "after"),
        ("/c", "x", "y"),
        ("/d", None, "new"),
        ("/e", None, "all"),
    ]


def test_what_failed_was_refused_or_never_ended_is_told_as_failed(
    editor: Editor, tmp_path: Path
) -> None:
    editor.bubble(1, "Do it.")
    wrong = json.dumps({"clientVisibleErrorMessage": "no such file"})
    editor.tool("read_file", {"path": "/a"}, None, status="error", error=wrong)
    editor.tool(
        "run_terminal_cmd", {"command": "rm x"}, {"rejected": True}, userDecision="rejected"
    )
    editor.tool("run_terminal_cmd", {"command": "sleep 9"}, None, status="loading")
    told = Story.of(READER, tmp_path)
    assert [call.status for call in told.calls()] == ["failed", "failed", "failed"]
    assert b"no such file" in bytes(told.calls()[0].fields["content"])
    assert told.ends() == [{"interrupted": None}]


def test_a_request_that_failed_ends_its_turn_with_what_was_shown(
    editor: Editor, tmp_path: Path
) -> None:
    editor.bubble(1, "Hello?")
    shown = {"title": "Usage limit", "detail": "Come back tomorrow"}
    editor.bubble(2, errorDetails={"error": {"error": 51, "details": shown}})
    (end,) = Story.of(READER, tmp_path).ends()
    assert end["error"]["message"] == "Usage limit: Come back tomorrow"


def test_a_conversation_that_was_stopped_is_cancelled(tmp_path: Path) -> None:
    editor = Editor(tmp_path)
    editor.composer(status="aborted")
    editor.bubble(1, "Hello?")
    editor.bubble(2, "Well")
    assert Story.of(READER, tmp_path).ends() == [{"stopReason": "cancelled"}]


def test_a_plan_is_told_and_a_call_of_a_server_names_it(editor: Editor, tmp_path: Path) -> None:
    editor.bubble(1, "Plan.")
    steps = [
        {"id": "1", "content": "look", "status": "completed"},
        {"id": "2", "content": "write", "status": "TODO_STATUS_IN_PROGRESS"},
        {"id": "3", "content": "rest", "status": "cancelled"},
    ]
    editor.tool("todo_write", {"todos": steps, "merge": False}, {"success": True})
    params = {"tools": [{"name": "echo", "serverName": "srv", "parameters": '{"words":"x"}'}]}
    said = {"result": json.dumps({"content": [{"type": "text", "text": "echoed"}]})}
    editor.tool("mcp-srv-echo", {}, said, params=json.dumps(params))
    told = Story.of(READER, tmp_path)
    assert told.plan() == [("look", "completed"), ("write", "in_progress")]  # one was cancelled
    call = told.calls()[1]
    assert call.title == "srv: echo"
    assert json.loads(call.fields["rawInput"]) == {"words": "x"}
    assert b'"echoed"' in bytes(call.fields["content"])


def test_a_picture_that_a_server_returned_is_not_shown_as_text(
    editor: Editor, tmp_path: Path
) -> None:
    editor.bubble(1, "Draw.")
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    editor.tool("mcp-srv-draw", {}, {"result": json.dumps({"content": [picture]})})
    assert "content" not in Story.of(READER, tmp_path).calls()[0].fields


def test_what_a_person_attached_is_attached_and_what_was_only_open_is_not(
    editor: Editor, tmp_path: Path
) -> None:
    chosen = [
        {"uri": {"fsPath": "/a b.txt", "scheme": "file"}, "addedWithoutMention": False},
        {"uri": {"fsPath": "/open.txt", "scheme": "file"}, "addedWithoutMention": True},
    ]
    marked = [{"uri": {"external": "file:///m%20n.txt"}, "rawText": "marked"}]
    picture = [{"uuid": "u", "path": "/p.png"}]
    context = {"fileSelections": chosen, "selections": marked, "selectedImages": picture}
    editor.bubble(1, "Look at these.", context=context)
    ((words, file, part, image),) = Story.of(READER, tmp_path).prompts()
    assert words == {"type": "text", "text": "Look at these."}
    assert file == {"type": "resource_link", "name": "a b.txt", "uri": "file:///a b.txt"}
    assert part["resource"] == {"uri": "file:///m n.txt", "text": "marked"}
    assert image["uri"] == "file:///p.png"


def test_a_subagent_is_no_conversation_and_its_calls_are_told_inside_its_call(
    tmp_path: Path,
) -> None:
    editor = Editor(tmp_path)
    editor.composer(subagentComposerIds=["child"])
    editor.bubble(1, "Find it.")
    info = {"parentComposerId": "c1", "toolCallId": "t1"}
    editor.composer("child", subagentInfo=info)
    editor.bubble(1, "You are to find it.", "child")
    editor.bubble(2, "I look.", "child")
    editor.tool("list_dir", {"path": "/x"}, {}, "child")
    editor.tool("task_v2", {"description": "Find it"}, {"result": "Found."})
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Find it."), ("call", "Task: Find it"), ("call", "List /x")]
    inner = told.calls()[1]
    assert json.loads(inner.fields["_meta"]) == {"acphold/parentToolCallId": "t1"}


def test_what_nobody_wrote_in_yet_is_no_conversation(editor: Editor, tmp_path: Path) -> None:
    editor.put("composerData:null", "null")
    editor.put("composerData:broken", '{"fullConversationHeadersOnly":[{}')
    editor.put("composerData:deep", "[" * 100_000)
    assert sources(READER, tmp_path) == []


def test_one_is_as_it_was_until_somebody_goes_on_with_it(editor: Editor, tmp_path: Path) -> None:
    editor.bubble(1, "Hello.")
    editor.composer("c2")
    editor.bubble(1, "Hello.", "c2")
    before = {source.item: source for source in sources(READER, tmp_path)}
    editor.bubble(2, "Hi.", "c2")
    after = {source.item: source for source in sources(READER, tmp_path)}
    assert before["c1"] == after["c1"]
    assert before["c2"] != after["c2"]


def test_what_a_folder_held_whole_in_2024_is_told(tmp_path: Path) -> None:
    editor = Editor(tmp_path)
    talk = [{"type": 1, "bubbleId": "a", "text": "Hello."}, {"type": 2, "text": "Hi."}]
    composer = {"composerId": "old", "createdAt": 1_730_000_000_000, "conversation": talk}
    chat = [
        {"type": "user", "id": "1", "text": "And now?"},
        {"type": "ai", "id": "2", "text": "Bye.", "modelType": "claude-3.5-sonnet"},
    ]
    tab = {
        "tabId": "tab",
        "chatTitle": "Greeting",
        "bubbles": chat,
        "lastSendTime": 1_731_000_000_000,
    }
    items = {
        "composer.composerData": {"allComposers": [composer, {"composerId": "head"}]},
        "workbench.panel.aichat.view.aichat.chatdata": {"tabs": [tab]},
    }
    editor.folder("w", "file:///home/ada/my%20project", **items)
    first, second = (Story(READER, source) for source in sources(READER, tmp_path))
    assert first.said() == [("user", "Hello."), ("agent", "Hi.")]
    assert second.said() == [("user", "And now?"), ("agent", "Bye.")]
    assert (second.facts.title, second.facts.cwd) == ("Greeting", CWD)
    (end,) = second.ends()
    assert end["_meta"] == {"acphold/model": "claude-3.5-sonnet"}


# -- the command line ------------------------------------------------------------------------


def field(number: int, value: Json) -> bytes:
    """A field of a message in Protocol Buffers: a number, or bytes."""
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    raw = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(raw)) + raw


def _number(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


class CommandLineStore:
    """The database of one conversation of the command line."""

    def __init__(self, home: Path, below: str = "acp-sessions/s1") -> None:
        self.folder = home / ".cursor" / below
        self.folder.mkdir(parents=True)
        self.db = sqlite3.connect(self.folder / "store.db", isolation_level=None)
        self.db.executescript(
            "CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB);"
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)"
        )
        self.turns: list[bytes] = []

    def blob(self, data: bytes) -> bytes:
        digest = sha256(data)
        row = (digest.hexdigest(), data)
        self.db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", row)
        return digest.digest()

    def turn(self, prompt: bytes, *steps: bytes) -> None:
        held = field(1, self.blob(prompt)) + b"".join(field(2, self.blob(step)) for step in steps)
        self.turns.append(self.blob(field(1, held)))

    def end(self, root: bytes = b"", **about: Json) -> None:
        root += b"".join(field(8, turn) for turn in self.turns)
        told: Json = {"agentId": "s1", "latestRootBlobId": self.blob(root).hex(), "name": "Notes"}
        told |= {"createdAt": 1_767_000_000_000, "lastUsedModel": "gpt-5"} | about
        meta = json.dumps(told).encode().hex()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('0', ?)", (meta,))


def said(words: str) -> bytes:
    return field(1, field(1, words))


def called(tool: int, given: bytes, result: bytes, call_id: str) -> bytes:
    return field(2, field(tool, field(1, given) + field(2, result)) + field(57, call_id))


@pytest.fixture
def store(tmp_path: Path) -> CommandLineStore:
    return CommandLineStore(tmp_path)


def test_a_conversation_of_the_command_line_is_told_by_its_turns(
    store: CommandLineStore, tmp_path: Path
) -> None:
    (store.folder / "meta.json").write_text(json.dumps({"schemaVersion": 1, "cwd": CWD}))
    store.turn(
        field(1, "Look.") + field(2, "m1"),
        field(3, field(1, "Hm.")),
        said("I look."),
        called(8, field(1, "/a"), field(1, field(1, "one")), "c1\nfc_1"),
        called(
            12, field(1, "/a"), field(1, field(1, "/a") + field(6, "one") + field(7, "two")), "c2"
        ),
        called(1, field(1, "false"), field(2, field(3, 1) + field(6, "no")), "c3"),
        said("Done."),
    )
    store.turn(field(1, "made up") + field(5, 1), said("A task has ended."))
    store.turn(field(1, "And now?"), said("Bye."))
    store.end()
    told = Story.of(READER, tmp_path)
    assert (told.facts.title, told.facts.cwd, told.facts.session_id) == ("Notes", CWD, "s1")
    assert told.said() == [
        ("user", "Look."),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "Read /a"),
        ("call", "Edit /a"),
        ("call", "false"),
        ("agent", "Done."),
        ("agent", "A task has ended."),
        ("user", "And now?"),
        ("agent", "Bye."),
    ]
    read, edit, ran = told.calls()
    assert json.loads(read.fields["rawInput"]) == {"path": "/a"}
    assert json.loads(edit.fields["content"]) == [
        {"type": "diff", "path": "/a", "oldText": "one", "newText": "two"}
    ]
    assert ran.status == "failed"
    assert json.loads(ran.fields["rawOutput"]) == {"exitCode": 1}
    assert all(end["_meta"] == {"acphold/model": "gpt-5"} for end in told.ends())
    assert not told.facts.missed.counts


def test_where_no_other_file_says_the_folder_the_conversation_does(tmp_path: Path) -> None:
    store = CommandLineStore(tmp_path, "chats/e4e90b7bcae743c9a1a1a045a49e1b1d/s2")
    store.turn(field(1, "Hello."), said("Hi."))
    store.end(field(9, "file:///home/ada/my%20project"), name="New Agent")
    told = Story.of(READER, tmp_path)
    assert (told.facts.cwd, told.facts.title) == (CWD, None)


def test_a_command_that_a_person_ran_and_a_plan_are_told(
    store: CommandLineStore, tmp_path: Path
) -> None:
    shell = field(1, store.blob(field(1, "git status"))) + field(2, store.blob(field(1, "clean")))
    store.turns.append(store.blob(field(2, shell)))
    steps = field(1, field(2, "look") + field(3, 3)) + field(1, field(2, "write") + field(3, 2))
    store.turn(field(1, "Plan."), called(9, steps, field(1, steps), "c1"))
    store.end()
    told = Story.of(READER, tmp_path)
    assert told.said()[:2] == [("user", "! git status"), ("call", "git status")]
    assert told.plan() == [("look", "completed"), ("write", "in_progress")]


def test_a_subagent_s_calls_are_told_inside_the_call_that_started_it(
    store: CommandLineStore, tmp_path: Path
) -> None:
    inner = called(13, field(1, "/x"), field(1, b""), "c2")
    done = field(1, field(1, inner) + field(1, said("Found.")))
    store.turn(field(1, "Find it."), called(19, field(1, "Find"), done, "c1"))
    store.end()
    told = Story.of(READER, tmp_path)
    assert told.said()[1:] == [("call", "Task: Find"), ("call", "List /x")]
    task, listing = told.calls()
    assert b"Found." in bytes(task.fields["content"])
    assert json.loads(listing.fields["_meta"]) == {"acphold/parentToolCallId": "c1"}


def test_equal_answers_to_several_prompts_are_told_each(
    store: CommandLineStore, tmp_path: Path
) -> None:
    for number in range(3):
        store.turn(field(1, "continue") + field(2, f"m{number}"), said("Done."))
    store.end()
    assert Story.of(READER, tmp_path).said() == [("user", "continue"), ("agent", "Done.")] * 3


FOUND = field(1, "a.py") + field(2, field(1, 3) + field(2, "x = 1"))


@pytest.mark.parametrize(
    ("tool", "given", "done", "title", "printed"),
    [
        (4, field(2, "*.py"), field(3, "a.py") + field(3, "b.py"), "Find *.py", "a.py\nb.py"),
        (5, field(1, "x"), field(4, field(2, field(3, field(1, FOUND)))), "Search x",
         "a.py:3: x = 1"),
        (8, field(1, "a.py"), field(1, "words"), "Read a.py", "words"),
        (15, field(4, "srv") + field(5, "echo"), field(1, field(1, field(1, "echoed"))),
         "srv: echo", "echoed"),
        (18, field(1, "why"), field(1, field(1, "T") + field(2, "u")), "Search the web for why",
         "T: u"),
        (24, field(1, "https://x"), field(2, "page"), "Fetch https://x", "page"),
    ],
)  # fmt: skip
def test_what_a_tool_of_the_command_line_returned_is_the_content_of_its_call(
    store: CommandLineStore, tmp_path: Path, tool: int, given: bytes, done: bytes, title: str,
    printed: str,
) -> None:  # fmt: skip
    store.turn(field(1, "Look."), called(tool, given, field(1, done), "c1"))
    store.end()
    call = Story.of(READER, tmp_path).call()
    assert (call["title"], call["status"]) == (title, "completed")
    assert [it["content"]["text"] for it in call["content"]] == [printed]


def test_before_there_were_turns_what_the_model_was_told_is_told(
    store: CommandLineStore, tmp_path: Path
) -> None:
    def message(role: str, *parts: Json) -> bytes:
        told = {"role": role, "content": list(parts)}
        return field(1, store.blob(json.dumps(told).encode()))

    def words(said: str) -> Json:
        return {"type": "text", "text": said}

    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "Shell", "args": {"command": "ls"}}
    result = {"type": "tool-result", "toolCallId": "c1", "toolName": "Shell", "result": "a.txt"}
    store.end(
        message("system", words("You are an agent."))
        + message("user", words("<user_info>\nOS: linux\n</user_info>"))
        + message("user", words("<user_query>\nWhy </user_query>?\n</user_query>"))
        + message("assistant", {"type": "reasoning", "text": "Hm."}, words("I look."), call)
        + message("tool", result)
        + message("assistant", words("Done."))
    )
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Why </user_query>?"),
        ("thought", "Hm."),
        ("agent", "I look."),
        ("call", "ls"),
        ("agent", "Done."),
    ]
    assert told.calls()[0].status == "completed"


@pytest.mark.parametrize("place", ["turn", "step", "prompt", "root"])
def test_a_blob_that_is_lost_or_broken_costs_only_itself(
    store: CommandLineStore, tmp_path: Path, place: str
) -> None:
    store.turn(field(1, "Hello."), said("Hi."))
    if place == "turn":
        store.turns += [b"\x00" * 32, store.blob(b"\xff" * 40)]
    if place == "step":
        held = field(1, store.blob(field(1, "And now?"))) + field(2, store.blob(b"\x0b\x0b"))
        store.turns.append(store.blob(field(1, held + field(2, b"lost"))))
    if place == "prompt":
        store.turns.append(
            store.blob(field(1, field(1, b"lost") + field(2, store.blob(said("x")))))
        )
    store.end()
    if place == "root":
        store.db.execute("UPDATE meta SET value = 'zz'")
        assert Story.of(READER, tmp_path).said() == []
        return
    assert Story.of(READER, tmp_path).said()[:2] == [("user", "Hello."), ("agent", "Hi.")]


def test_the_conversations_of_another_channel_are_found_beside(tmp_path: Path) -> None:
    for channel in ("Cursor", "Cursor Nightly"):
        editor = Editor(tmp_path, channel)
        editor.put("composerData:" + channel, {"composerId": channel, "conversation": [
            {"type": 1, "text": "Hello.", "bubbleId": "b1"},
            {"type": 2, "text": "Hi.", "bubbleId": "b2"},
        ]})  # fmt: skip
    assert [source.session_id for source in sources(READER, tmp_path)] == [
        "Cursor",
        "Cursor Nightly",
    ]


def test_messages_that_the_editor_lost_from_its_list_are_told_by_their_times(
    editor: Editor, tmp_path: Path
) -> None:
    for minute, words in ((2, "Second."), (1, "First.")):
        editor.bubble(1, words, createdAt=f"2026-01-02T03:0{minute}:00.000Z")
    editor.composer()
    editor.composer("c2")
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "First."), ("user", "Second.")]


def test_conversations_of_an_editor_are_found_by_as_many_queries_however_many_they_are(
    editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = databases.rows

    def rows(path: Path, query: str, *arguments: str | int) -> list[tuple[Any, ...]]:
        asked.append(query)
        return ask(path, query, *arguments)

    monkeypatch.setattr(databases, "rows", rows)
    counts = set[int]()
    for number in range(3):
        for one in range(10**number):
            editor.composer(f"n{number}-{one}")
            editor.bubble(1, "Look.", f"n{number}-{one}")
        asked.clear()
        assert len(sources(READER, tmp_path)) == sum(10**it for it in range(number + 1))
        counts.add(len(asked))
    assert counts == {3}
