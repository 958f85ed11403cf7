"""OpenCode's database, and its files before that."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.timeline import Message
from acphold.imports import Intake
from acphold.imports.opencode import KILO, READER
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from tests.imports.told import Story, sources

Json = Any
SESSION = "ses_1"
CWD = "/home/ada/project"


class Store:
    """The database of a home folder, with a session in it."""

    def __init__(self, home: Path, program: str = "opencode") -> None:
        self.path = home / f".local/share/{program}/{program}.db"
        self.path.parent.mkdir(parents=True)
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.executescript(
            "CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT,"
            " title TEXT, version TEXT, revert TEXT, time_created INT, time_updated INT);"
            "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, data TEXT);"
            "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);"
        )
        self._count = 0

    def session(self, session_id: str = SESSION, **columns: Json) -> None:
        row = {
            "id": session_id,
            "parent_id": None,
            "directory": CWD,
            "title": "New session - 2026",
            "version": "1.18.33",
            "revert": None,
            "time_created": 1_700_000_000_000,
            "time_updated": 1_700_000_000_000,
        } | columns
        marks = ", ".join("?" * len(row))
        self.db.execute(f"INSERT INTO session VALUES ({marks})", tuple(row.values()))

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count:04}"

    def message(self, role: str, *parts: Json, session: str = SESSION, **more: Json) -> str:
        message_id = self._id("msg")
        time = {"created": 1_700_000_000_000 + self._count}
        data = {"role": role, "time": time, "path": {"cwd": CWD}} | more
        self.db.execute(
            "INSERT INTO message VALUES (?, ?, ?)", (message_id, session, json.dumps(data))
        )
        for part in parts:
            told = {"type": "text", "text": part} if isinstance(part, str) else part
            row = (self._id("prt"), message_id, session, json.dumps(told))
            self.db.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
        self.db.execute(
            "UPDATE session SET time_updated = time_updated + 1 WHERE id = ?", (session,)
        )
        return message_id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    found.session()
    return found


def tool(call: str, name: str, status: str = "completed", **state: Json) -> Json:
    whole = {"status": status, "input": {}, "output": "", "title": name, "metadata": {}} | state
    return {"type": "tool", "tool": name, "callID": call, "state": whole}


def test_a_conversation_with_a_call_is_told(store: Store, tmp_path: Path) -> None:
    store.message("user", "Run it.")
    store.message(
        "assistant",
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm."},
        "Running.",
        tool("c1", "bash", input={"command": "ls"}, output="a\n", title="ls"),
        finish="tool-calls",
        tokens={"input": 5, "output": 2, "cache": {"read": 1}},
    )
    store.message("assistant", "Done.", finish="stop")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Run it."),
        ("thought", "Hm."),
        ("agent", "Running."),
        ("call", "ls"),
        ("agent", "Done."),
    ]
    call = told.call()
    assert call["rawInput"] == {"command": "ls", "cwd": CWD}
    assert call["content"][0]["content"]["text"] == "a\n"
    assert told.facts.cwd == CWD
    assert told.facts.title is None  # the one there is was made up
    assert told.ends()[0]["usage"]["totalTokens"] == 8


def test_an_edit_has_its_diff_and_a_failure_its_error(store: Store, tmp_path: Path) -> None:
    store.message("user", "Edit.")
    given = {"filePath": "/a", "oldString": "x", "newString": "y"}
    store.message("assistant", tool("c1", "edit", input=given, output="ok"))
    store.message("assistant", tool("c2", "read", "error", error="no such file"))
    edited, failed = Story.of(READER, tmp_path).calls()
    assert json.loads(edited.fields["content"])[1] == {
        "type": "diff",
        "path": "/a",
        "oldText": "x",
        "newText": "y",
    }
    assert failed.status == "failed"
    assert failed.raw_output == b'{"error":"no such file"}'


def test_a_cancelled_turn_a_killed_one_and_one_that_failed_end_as_such(
    store: Store, tmp_path: Path
) -> None:
    store.message("user", "One.")
    store.message("assistant", "half", error={"name": "MessageAbortedError"})
    store.message("user", "Two.")
    store.message("assistant", tool("c1", "bash", "running", input={"command": "sleep"}))
    store.message("user", "Three.")
    store.message("assistant", "")  # killed before the first word
    store.message("user", "Four.")
    store.message("assistant", error={"name": "APIError", "data": {"message": "Too much."}})
    told = Story.of(READER, tmp_path)
    cancelled, *killed, failed = told.ends()
    assert cancelled["stopReason"] == "cancelled"
    assert [end.get("interrupted", "") for end in killed] == [None, None]
    assert failed["error"]["message"] == "Too much."
    assert told.calls()[0].status == "failed"


def test_what_the_program_added_to_a_prompt_is_left_out_and_files_are_links_again(
    store: Store, tmp_path: Path
) -> None:
    read = 'Called the Read tool with the following input: {"filePath":"/x/README.md"}'
    store.message(
        "user",
        "Look: ",
        {"type": "text", "synthetic": True, "text": read},
        {"type": "file", "url": "data:text/markdown;base64,eA==", "mime": "text/markdown",
         "filename": "README.md"},
        "[/x/extra.txt]\nmore",
        {"type": "file", "url": "data:image/png;base64,AA==", "mime": "image/png"},
    )  # fmt: skip
    assert Story.of(READER, tmp_path).prompts() == [
        [
            {"type": "text", "text": "Look: "},
            {"type": "resource_link", "name": "README.md", "uri": "file:///x/README.md"},
            {"type": "resource", "resource": {"uri": "file:///x/extra.txt", "text": "more"}},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ]
    ]


def test_what_is_reverted_is_told_until_a_newer_prompt_takes_its_place(tmp_path: Path) -> None:
    """The program deletes it then; a pointer of before leaves nothing out."""
    store = Store(tmp_path)
    store.session(revert=json.dumps({"messageID": "msg_0003"}))
    for words in ("Hello.", "Reverted.", "Newer."):
        store.message("user", words)
    told = Story.of(READER, tmp_path)
    assert [words for _, words in told.said()] == ["Hello.", "Reverted.", "Newer."]
    assert told.facts.missed.counts == {}


def test_a_subagents_calls_stand_inside_the_call_that_started_it(
    store: Store, tmp_path: Path
) -> None:
    store.session("ses_2", parent_id=SESSION, title="count")
    store.message("user", "Delegate.")
    store.message("assistant", tool("c1", "task", title="count", metadata={"sessionId": "ses_2"}))
    store.message("user", "Count.", session="ses_2")
    store.message("assistant", "3", tool("c2", "read", title="notes.txt"), session="ses_2")
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Delegate."), ("call", "count"), ("call", "notes.txt")]


def test_a_compaction_is_told_as_the_person_asked_for_it(store: Store, tmp_path: Path) -> None:
    store.message("user", {"type": "compaction", "auto": False})
    store.message("assistant", "<summary>so far", mode="compaction", finish="stop")
    assert Story.of(READER, tmp_path).said() == [
        ("user", "/compact"),
        ("agent", "<summary>so far"),
    ]


def test_a_database_in_use_is_read_with_what_is_only_in_its_log_and_not_changed(
    store: Store, tmp_path: Path
) -> None:
    store.db.execute("PRAGMA journal_mode = WAL")
    store.db.execute("PRAGMA wal_autocheckpoint = 0")
    store.message("user", "Only in the log.")
    store.db.execute("BEGIN IMMEDIATE")  # a writer that is in the middle of something
    folder = store.path.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert Story.of(READER, tmp_path).said() == [("user", "Only in the log.")]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    store.db.execute("COMMIT")


def test_a_database_that_nobody_uses_gets_no_files_beside_it(store: Store, tmp_path: Path) -> None:
    store.message("user", "Hello.")
    store.db.execute("PRAGMA journal_mode = WAL")
    store.db.close()
    folder = store.path.parent
    before = sorted(path.name for path in folder.iterdir())
    assert Story.of(READER, tmp_path).said() == [("user", "Hello.")]
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_files_of_older_versions_are_told(tmp_path: Path) -> None:
    storage = tmp_path / ".local/share/opencode/storage"

    def write(path: str, value: Json) -> None:
        (storage / path).parent.mkdir(parents=True, exist_ok=True)
        (storage / path).write_text(json.dumps(value))

    session = {"id": "ses_1", "version": "1.1.58", "directory": CWD, "title": "Named"}
    write("session/project/ses_1.json", session)
    write("session/project/ses_2.json", {"id": "ses_2", "parentID": "ses_1"})
    write("message/ses_1/msg_1.json", {"role": "user", "time": {"created": 1_700_000_000_000}})
    write("message/ses_1/msg_2.json", {"role": "assistant", "path": {"cwd": CWD}})
    write("part/msg_1/prt_1.json", {"type": "text", "text": "Run it."})
    ran = tool("c1", "bash", input={"command": "ls"}, output="a", title="ls")
    write("part/msg_2/prt_2.json", ran)
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Run it."), ("call", "ls")]
    assert told.facts.title == "Named"
    assert told.call()["rawInput"] == {"command": "ls"}
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / ".local").rename(tmp_path / "moved/.local")
    store = Store(tmp_path)  # the migration was interrupted before the messages
    store.session()
    (moved / "share/opencode/storage").rename(store.path.with_name("storage"))
    empty, whole = sources(READER, tmp_path)
    assert Story(READER, empty).said() == []
    assert Story(READER, whole).said() == told.said()


class SecondStore(Store):
    """A database of version 2: without the older tables, or beside them."""

    sessions = "session_v2"
    """The table of sessions; previews had `session`."""

    def __init__(self, home: Path, program: str = "opencode", *, beside: bool = False) -> None:
        super().__init__(home, program)
        if not beside:
            self.db.executescript("DROP TABLE session; DROP TABLE message; DROP TABLE part;")
        self.db.executescript(
            "CREATE TABLE session_v2 (id TEXT PRIMARY KEY, parent_id TEXT, fork_session_id TEXT,"
            " directory TEXT NOT NULL, title TEXT, version TEXT NOT NULL, revert TEXT,"
            " time_created INT NOT NULL, time_updated INT NOT NULL);"
            "CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL,"
            " type TEXT NOT NULL, seq INT NOT NULL, time_created INT NOT NULL, data TEXT NOT NULL);"
        )

    def second(self, session_id: str = SESSION, **columns: Json) -> None:
        row: Json = {"id": session_id, "parent_id": None, "directory": CWD, "title": "Counted"}
        row |= {"version": "2.0.12", "revert": None, "time_created": 1, "time_updated": 5} | columns
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        query = f"INSERT INTO {self.sessions} ({names}) VALUES ({marks})"
        self.db.execute(query, tuple(row.values()))

    def say(self, kind: str, session: str = SESSION, seq: int = 0, **data: Json) -> str:
        message_id = self._id("msg")
        at = 1_700_000_000_000 + self._count
        row = (message_id, session, kind, seq or self._count, at, json.dumps(data))
        self.db.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?)", row)
        return message_id

    def answer(self, *content: Json, session: str = SESSION, **more: Json) -> str:
        parts = [{"type": "text", "text": it} if isinstance(it, str) else it for it in content]
        model = {"id": "m", "providerID": "x"}
        return self.say("assistant", session, agent="build", model=model, content=parts, **more)


def second_tool(call: str, name: str, status: str = "completed", **state: Json) -> Json:
    whole = {"status": status, "input": {}} | state
    return {"type": "tool", "id": call, "name": name, "state": whole}


@pytest.mark.parametrize("sessions", ["session_v2", "session"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_conversation_of_version_2_is_told_with_and_without_the_older_tables(
    tmp_path: Path, beside: bool, sessions: str
) -> None:
    store = SecondStore(tmp_path, beside=beside)
    if not beside and sessions == "session":
        store.db.execute("ALTER TABLE session_v2 RENAME TO session")
    store.sessions = sessions
    store.second()
    store.say("model-switched", model={"id": "m"})
    file = {"uri": "file:///x/a.txt", "mime": "text/plain", "name": "a.txt"}
    store.say("user", text="Change it.", files=[file])
    store.answer(
        {"type": "reasoning", "text": "Hm."},
        second_tool(
            "c1", "shell", input={"command": "ls"}, content=[{"type": "text", "text": "a"}]
        ),
        second_tool(
            "c2",
            "edit",
            input={"path": "/x/a.txt", "oldString": "a", "newString": "b"},
            content=[{"type": "text", "text": "Edited"}],
        ),
        second_tool("c3", "read", "error", error={"type": "unknown", "message": "no such file"}),
        "Done.",
        finish="stop",
        tokens={"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 0}},
    )
    store.say("idle", outcome="succeeded")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Change it."),
        ("thought", "Hm."),
        ("call", "ls"),
        ("call", "edit"),
        ("call", "read"),
        ("agent", "Done."),
    ]
    shell, edit, failed = told.calls()
    assert json.loads(shell.fields["content"])[0]["content"]["text"] == "a"
    assert json.loads(edit.fields["content"])[1] == {
        "type": "diff",
        "path": "/x/a.txt",
        "oldText": "a",
        "newText": "b",
    }
    assert failed.raw_output == b'{"error":"no such file"}'
    assert told.prompts()[0][1]["uri"] == "file:///x/a.txt"
    assert told.facts.title == "Counted"
    assert told.facts.missed.counts == {}
    (end,) = told.ends()
    assert (end["stopReason"], end["usage"]["totalTokens"]) == ("end_turn", 11)


def test_a_conversation_of_version_2_is_told_where_only_the_parts_of_older_ones_are_gone(
    tmp_path: Path,
) -> None:
    store = SecondStore(tmp_path, beside=True)
    store.second()
    store.say("user", text="Hello.")
    store.answer("Hi.", finish="stop")
    store.db.execute("DROP TABLE part")
    assert Story.of(READER, tmp_path).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_an_answer_of_version_2_that_is_written_on_without_its_session_is_seen(
    tmp_path: Path,
) -> None:
    store = SecondStore(tmp_path, beside=True)
    store.session()
    store.db.execute("ALTER TABLE session_message ADD COLUMN time_updated INT")
    row = ("m", SESSION, "assistant", 1, 1, "{}", 1_700_000_000_000)
    store.db.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    (before,) = sources(READER, tmp_path)
    store.db.execute("UPDATE session_message SET time_updated = 1700000009000")
    (after,) = sources(READER, tmp_path)
    assert after.changed_at == 1_700_000_009_000 * 1_000_000 > before.changed_at


@pytest.mark.parametrize(
    "error",
    [
        {"type": "aborted", "message": "stopped"},
        {"type": "unknown", "message": "Provider turn interrupted"},  # in a preview
    ],
)
def test_what_was_interrupted_typed_for_the_shell_and_compacted_in_version_2_is_told(
    tmp_path: Path, error: Json
) -> None:
    store = SecondStore(tmp_path)
    store.second()
    store.say("user", text="Count.")
    store.answer("one two", error=error)
    store.say("idle", outcome="interrupted")
    store.say("shell", shellID="s1", command="ls", status="exited", output={"output": "a.txt"})
    store.say("compaction", status="completed", reason="manual", summary="Counted.", recent="")
    store.say("user", text="Go on.")
    store.answer(second_tool("c1", "shell", "streaming", input='{"command": "sl'))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Count."),
        ("agent", "one two"),
        ("user", "! ls"),
        ("agent", "a.txt"),
        ("user", "/compact"),
        ("call", "Compact conversation"),
        ("user", "Go on."),
        ("call", "shell"),
    ]
    assert told.ends()[0]["stopReason"] == "cancelled"
    assert told.ends()[-1] == {"interrupted": None, "_meta": {"acphold/model": "m"}}


def test_a_session_that_went_on_in_version_2_is_one_conversation(tmp_path: Path) -> None:
    store = SecondStore(tmp_path, beside=True)
    store.session()
    store.second()
    first = store.message("user", "One.")
    store.message("assistant", "1", finish="stop", parentID=first)
    store.say("user", text="Two.")
    store.answer("2", finish="stop")
    told = Story.of(READER, tmp_path)
    assert [words for _, words in told.said()] == ["One.", "1", "Two.", "2"]


def test_a_session_that_was_migrated_is_told_once(tmp_path: Path) -> None:
    store = SecondStore(tmp_path, beside=True)
    store.session()
    store.second()
    store.message("user", "One.")
    store._count = 0
    store.say("user", text="One.")
    store.answer("1", finish="stop")
    assert [words for _, words in Story.of(READER, tmp_path).said()] == ["One.", "1"]


def put_files(store: Store, *said: str) -> None:
    """Write the files that the session was migrated from; a message without words has no part."""
    data = store.path.with_name("storage")

    def tell(path: str, value: Json) -> None:
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_text(json.dumps(value))

    tell("session/project/ses_1.json", {"id": SESSION, "directory": CWD, "version": "1.1.0"})
    for n, words in enumerate(said, 1):
        message: Json = {"role": "user" if n % 2 else "assistant", "finish": "stop"}
        message["time"] = {"created": 1_700_000_000_000 + n}
        tell(f"message/ses_1/msg_{n:04}.json", message)
        if words:
            tell(f"part/msg_{n:04}/prt_1.json", {"type": "text", "text": words})


@pytest.mark.parametrize("is_second", [False, True])
def test_what_was_migrated_and_then_reverted_is_not_told_from_the_files(
    tmp_path: Path, *, is_second: bool
) -> None:
    store = SecondStore(tmp_path, beside=True)
    put_files(store, "One.", "", "Two.", "2")
    if is_second:
        store.second()
    else:
        store.session()
    for count, words in ((0, "One."), (1, ""), (4, "Newer.")):  # two were taken out before it
        store._count, role = count, "assistant" if count == 1 else "user"
        if is_second:
            store.say(role, text=words)
        else:
            store.message(role, *filter(None, [words]))
    assert [words for _, words in Story.of(READER, tmp_path).said()] == ["One.", "Newer."]


def test_a_message_with_a_long_id_hides_no_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.session()
    put_files(store, "One.", "1")
    store.message("user", "Long.")
    store.db.execute("UPDATE part SET message_id = ?", ["9" * 300])
    store.db.execute("UPDATE message SET id = ?", ["9" * 300])
    assert len([*sources(READER, tmp_path)]) == 2


@pytest.mark.parametrize("program", ["opencode", "kilo"])
@pytest.mark.parametrize(
    "migrated", [[], [[]], [["One."], ["1"]]], ids=["none", "no part", "a turn"]
)
async def test_what_an_interrupted_migration_left_in_files_is_told_too(
    opened: Journal, tmp_path: Path, program: str, migrated: list[list[str]]
) -> None:
    reader = KILO if program == "kilo" else READER
    store = Store(tmp_path, program)
    store.session(version="1.1.0", time_created=1)
    put_files(store, "One.", "1", "Two.", "2")
    for number, parts in enumerate(migrated):
        store._count = number
        store.message("assistant" if number else "user", *parts, finish="stop")
    for _ in range(2):
        for source in sources(reader, tmp_path):
            await Intake(opened).take(source, reader)
    assert await turns(opened) == [("One.", "1"), ("Two.", "2")]
    store._count = 10
    store.message("user", "Three.")
    for source in sources(reader, tmp_path):
        await Intake(opened).take(source, reader)
    assert sorted(await turns(opened)) == [("One.", "1"), ("Three.", ""), ("Two.", "2")]


def test_a_message_whose_id_is_not_valid_utf_8_is_counted_as_its_parts_are_not_found(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    store.session()
    store.message("user", "One.")
    store.message("user", "Two.")
    store.db.execute("UPDATE message SET id = CAST(X'FF' AS TEXT) WHERE id = 'msg_0003'")
    told = Story.of(READER, tmp_path)
    assert [words for _, words in told.said()] == ["One."]
    assert told.facts.missed.counts == {"messages whose id is not valid UTF-8": 1}


async def turns(journal: Journal) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for row in await journal.page(ListFilter()):
        for item in (await state_of(journal, row.session_id)).timeline:
            if isinstance(item, Message):
                found += [(item.text, "")] if item.role == "user" else []
                found[-1] = (found[-1][0], item.text if item.role == "agent" else "")
    return found


@pytest.mark.parametrize("is_named", [True, False])
def test_a_stopped_subagents_calls_are_told_inside_its_call(tmp_path: Path, is_named: bool) -> None:
    store = SecondStore(tmp_path)
    store.second()
    store.second("ses_2", parent_id=SESSION, title="count")
    store.say("user", text="Delegate.")
    about = {"metadata": {"sessionID": "ses_2"}} if is_named else {}
    asked = {"agent": "general", "description": "count", "prompt": "Count."}
    store.answer(second_tool("c1", "subagent", "running", input=asked, **about))
    store.say("user", session="ses_2", text="Count.")
    store.answer(second_tool("c2", "grep", "running"), session="ses_2")
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Delegate."), ("call", "subagent"), ("call", "grep")]
    assert len(sources(READER, tmp_path)) == 1


@pytest.mark.parametrize("program", ["opencode", "kilo"])
def test_messages_are_told_by_time_and_answers_after_their_prompts(
    tmp_path: Path, program: str
) -> None:
    store = Store(tmp_path, program)
    store.session()

    def say(message_id: str, words: str, at: int, parent: str = "") -> None:
        data = {
            "role": "assistant" if parent else "user",
            "time": {"created": 1_700_000_000_000 + at},
        }
        more = {"parentID": parent, "finish": "stop"} if parent else {}
        row = (message_id, SESSION, json.dumps(data | more))
        store.db.execute("INSERT INTO message VALUES (?, ?, ?)", row)
        part = json.dumps({"type": "text", "text": words})
        store.db.execute(
            "INSERT INTO part VALUES (?, ?, ?, ?)", (f"p-{message_id}", message_id, SESSION, part)
        )

    # The browser's clock is ahead, then behind; two have one millisecond.
    say("msg_9", "One.", 0)
    say("msg_2", "1", 1, "msg_9")
    say("msg_8", "Two.", 2)
    say("msg_3", "2", 2, "msg_8")
    say("msg_1", "Three.", 4)
    say("msg_4", "3", 5, "msg_1")
    reader = READER if program == "opencode" else KILO
    told = Story.of(reader, tmp_path)
    assert [words for _, words in told.said()] == ["One.", "1", "Two.", "2", "Three.", "3"]


@pytest.mark.parametrize("program", ["opencode", "kilo"])
def test_the_databases_of_other_channels_are_found(tmp_path: Path, program: str) -> None:
    store = Store(tmp_path, program)
    for channel in ("", "-local", "-dev"):
        store.db.execute("DELETE FROM session")
        store.session(f"ses{channel}")
        copied = store.path.with_name(f"{program}{channel}.db")
        if channel:
            copied.write_bytes(store.path.read_bytes())
    store.db.execute("UPDATE session SET id = 'ses'")
    reader = READER if program == "opencode" else KILO
    found = [source.session_id for source in sources(reader, tmp_path)]
    assert sorted(found) == ["ses", "ses-dev", "ses-local"]


def test_a_fork_of_version_2_names_where_it_began(tmp_path: Path) -> None:
    store = SecondStore(tmp_path)
    store.second(fork_session_id="ses_0")
    store.say("user", text="One.")
    assert Story.of(READER, tmp_path).facts.begun_as == "ses_0"
