"""Gemini CLI's logs of states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.gemini import READER
from acphold.imports.sources import searching
from acphold.imports.values import ABANDONED
from tests.imports.told import Story, sources, write_lines

Json = Any
SESSION = "ce6dab5b-3b21-4af2-9b67-32908592cd64"
CWD = "/home/ada/project"


class Log:
    """The lines of a session's file."""

    def __init__(self, session: str = SESSION) -> None:
        self._count = 0
        self.lines: list[Json] = []
        self.header(session)

    def header(self, session: str = SESSION) -> None:
        self.lines.append({"sessionId": session, "startTime": self._now(), "kind": "main"})
        context = {"id": "context", "type": "user", "content": [{"text": "<session_context>\nx"}]}
        self.set(context)

    def _now(self) -> str:
        self._count += 1
        return f"2026-01-02T03:04:{self._count:02}.000Z"

    def set(self, *messages: Json) -> None:
        self.lines.append({"$set": {"messages": list(messages)}})

    def message(self, message_id: str, kind: str, content: Json, **more: Json) -> Json:
        line = {"id": message_id, "timestamp": self._now(), "type": kind, "content": content}
        self.lines.append(line | more)
        return line | more

    def user(self, message_id: str, words: str) -> Json:
        return self.message(message_id, "user", [{"text": words}])

    def result(self, call: str, **response: str) -> None:
        answer = {"functionResponse": {"id": call, "name": "run_shell_command"}}
        answer["functionResponse"]["response"] = response  # type: ignore[assignment]
        self.message(f"result-{call}", "user", [answer])

    def path(self, home: Path, minute: int = 4) -> Path:
        folder = home / ".gemini/tmp/project"
        (folder / "chats").mkdir(parents=True, exist_ok=True)
        (folder / ".project_root").write_text(f"{CWD}\n")
        return folder / "chats" / f"session-2026-01-02T03-{minute:02}-{SESSION[:8]}.jsonl"

    def write(self, home: Path, minute: int = 4) -> Path:
        return write_lines(self.path(home, minute), *self.lines)


def call(call_id: str, name: str = "read_file", **more: Json) -> Json:
    args = {"file_path": "notes.txt"}
    return {"id": call_id, "name": name, "args": args, "status": "success"} | more


def story(log: Log, home: Path) -> Story:
    log.write(home)
    return Story.of(READER, home)


def test_a_conversation_is_told_without_the_context_that_the_program_put_in(
    tmp_path: Path,
) -> None:
    log = Log()
    log.header()
    log.user("u1", "Hello.")
    thoughts = [{"subject": "Greeting", "description": "Someone is there."}]
    log.message("g1", "gemini", "Hello Ada.", thoughts=thoughts, tokens={"input": 9, "cached": 4})
    told = story(log, tmp_path)
    assert told.said() == [
        ("user", "Hello."),
        ("thought", "**Greeting**\nSomeone is there."),
        ("agent", "Hello Ada."),
    ]
    assert told.facts.cwd == CWD
    assert told.facts.session_id == SESSION


def test_a_call_that_never_ran_is_told_by_its_file_and_not_by_what_its_tool_is(
    tmp_path: Path,
) -> None:
    log = Log()
    log.user("u1", "Go.")
    tool = "Writes content to a specified file.\n\n The user has the ability to modify it."
    never = call("c1", "write_file", status="error", description=tool)
    log.message("g1", "gemini", "One.", toolCalls=[never])
    log.result("c1", error="no such file")
    assert story(log, tmp_path).said()[-1] == ("call", "notes.txt")


def test_each_call_is_told_where_it_was_made_though_all_pile_up_on_one_message(
    tmp_path: Path,
) -> None:
    log = Log()
    log.user("u1", "Go.")
    log.message("heap", "gemini", "One.", toolCalls=[call("c1", description="notes.txt")])
    log.result("c1", output="x")
    log.message("g2", "gemini", "Two.")
    log.message("heap", "gemini", "One.", toolCalls=[call("c1"), call("c2", description="b")])
    log.message("g3", "gemini", "Three.")
    assert story(log, tmp_path).said() == [
        ("user", "Go."),
        ("agent", "One."),
        ("call", "notes.txt"),
        ("agent", "Two."),
        ("call", "b"),
        ("agent", "Three."),
    ]


def test_an_edit_is_a_diff_of_the_whole_file(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Edit.")
    display = {
        "fileDiff": "…",
        "filePath": f"{CWD}/notes.txt",
        "originalContent": "1\n",
        "newContent": "2\n",
    }
    log.message("g", "gemini", "", toolCalls=[call("c1", "replace", resultDisplay=display)])
    made = story(log, tmp_path).call()
    assert made["content"] == [
        {"type": "diff", "path": f"{CWD}/notes.txt", "oldText": "1\n", "newText": "2\n"}
    ]
    assert made["locations"] == [{"path": f"{CWD}/notes.txt"}]
    assert made["kind"] == "edit"


def test_a_refused_call_is_told_from_its_answer(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Delete.")
    log.result("c1", error="canceled by the user")
    made = story(log, tmp_path).call()
    assert (made["title"], made["status"]) == ("run_shell_command", "failed")


def test_a_cancelled_turn_that_the_program_forgot_is_told(tmp_path: Path) -> None:
    log = Log()
    first = log.user("u1", "Hello.")
    second = log.message("g1", "gemini", "Hi.")
    log.user("u2", "Count.")
    log.message("g2", "gemini", "one")
    log.set(first, second)
    log.user("u3", "Where were you?")
    log.message("g3", "gemini", "Stopped.")
    told = story(log, tmp_path)
    assert [words for who, words in told.said() if who == "user"] == [
        "Hello.",
        "Count.",
        "Where were you?",
    ]
    assert [end["stopReason"] for end in told.ends()] == ["end_turn", "cancelled", "end_turn"]


def test_after_a_compaction_the_whole_conversation_is_still_told_once(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Hello.")
    log.message("g1", "gemini", "Hi.")
    log.set(
        {"id": "s1", "type": "user", "content": [{"text": "<state_snapshot>so far"}]},
        {"id": "s2", "type": "gemini", "content": "Got it."},
        {"id": "again", "type": "user", "content": [{"text": "Hello."}]},
    )
    log.user("u2", "Go on.")
    log.message("g3", "gemini", "Yes.")
    assert story(log, tmp_path).said() == [
        ("user", "Hello."),
        ("agent", "Hi."),
        ("call", "Compact conversation"),
        ("user", "Go on."),
        ("agent", "Yes."),
    ]


def test_all_files_of_a_session_are_one_conversation(tmp_path: Path) -> None:
    log = Log()
    one, two = log.user("u1", "Hello."), log.message("g1", "gemini", "Hi.")
    log.write(tmp_path, minute=4)
    loaded = Log()
    loaded.set(one, two)
    loaded.user("u2", "Go on.")
    loaded.message("g2", "gemini", "Yes.")
    loaded.write(tmp_path, minute=9)
    told = Story.of(READER, tmp_path)
    assert [words for _, words in told.said()] == ["Hello.", "Hi.", "Go on.", "Yes."]


@pytest.mark.parametrize("its_id", ["ada.lovelace:7", "Größe", 'a"b', "a/b", "../chats", "a\nb"])
def test_a_session_is_known_by_whatever_id_it_has_and_no_id_is_a_path(
    tmp_path: Path, its_id: str
) -> None:
    log = Log(its_id)
    log.user("u1", "Hello.")
    log.message("g1", "gemini", "Hi.")
    log.write(tmp_path)
    write_lines(tmp_path / ".gemini/tmp/project/chats/session-other.jsonl", {"type": "user"})
    with searching() as search:
        (source,) = sources(READER, tmp_path)
    assert (source.session_id, len(source.paths)) == (its_id, 1)
    assert Story(READER, source).said() == [("user", "Hello."), ("agent", "Hi.")]
    assert ["it names no session" in str(error) for error in search.unreadable] == [True]


def test_the_one_document_of_older_versions_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ".gemini/tmp" / sha256(CWD.encode()).hexdigest() / "chats"
    folder.mkdir(parents=True)
    thoughts = [{"subject": "", "description": d} for d in ("One.", "Two.")]
    messages = [
        {"id": "1", "timestamp": "2025-11-20T11:44:14Z", "type": "user", "content": "Hello."},
        {"id": "2", "type": "gemini", "content": "Hi.", "thoughts": thoughts},
        {
            "id": "3",
            "type": "gemini",
            "content": "",
            "toolCalls": [call("c", args={"file_path": f"{CWD}/a/b.txt"}, description="b.txt")],
        },
    ]
    whole = {"sessionId": SESSION, "startTime": "2025-11-20T11:44:14Z", "messages": messages}
    (folder / "session-2025-11-20T11-44-ce6dab5b.json").write_text(json.dumps(whole, indent=1))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Hello."),
        ("thought", "One. Two. "),
        ("agent", "Hi."),
        ("call", "b.txt"),
    ]
    assert told.facts.cwd == CWD  # its hash is the name of the folder


def test_the_folder_of_a_session_is_found_in_the_list_of_projects(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Hello.")
    path = log.write(tmp_path)
    (path.parent.parent / ".project_root").unlink()
    projects = {"projects": {CWD: "project"}}
    (tmp_path / ".gemini/projects.json").write_text(json.dumps(projects))
    assert Story.of(READER, tmp_path).facts.cwd == CWD


def test_a_subagents_calls_stand_inside_the_call_that_started_it(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Delegate.")
    log.message("g1", "gemini", "", toolCalls=[call("c1", "invoke_agent", description="helper")])
    path = log.write(tmp_path)
    child = Log("child")
    child.user("x1", "Count.")
    child.message("x2", "gemini", "I count.", toolCalls=[call("c2", description="notes.txt")])
    write_lines(path.parent / SESSION / "child.jsonl", *child.lines)
    told = Story.of(READER, tmp_path)
    assert told.said() == [("user", "Delegate."), ("call", "helper"), ("call", "notes.txt")]
    meta = json.loads(told.calls()[1].fields["_meta"])
    assert meta["acphold/parentToolCallId"] == "c1"


def test_starting_the_program_without_a_word_makes_no_conversation(tmp_path: Path) -> None:
    told = story(Log(), tmp_path)
    assert told.prompts() == []
    assert len(sources(READER, tmp_path)) == 1


@pytest.mark.parametrize("how", ["parts", "string"])
def test_files_that_a_prompt_names_are_not_told_as_the_persons_words(
    tmp_path: Path, how: str
) -> None:
    parts: Sequence[str] = (
        "Compare @a.txt and @/x/b.txt",
        "\n--- Content from referenced files ---",
        "\nContent from @a.txt:\n",
        "A\nsecond line",
        "\nContent from @/x/b.txt:\n",
        "B",
        "\n--- End of content ---\n",
    )
    said = [{"text": part} for part in parts] if how == "parts" else "".join(parts)
    log = Log()
    log.message("u1", "user", said)
    log.message("g1", "gemini", "Done.")
    assert story(log, tmp_path).prompts() == [
        [
            {"type": "text", "text": parts[0]},
            {
                "type": "resource",
                "resource": {"uri": f"file://{CWD}/a.txt", "text": "A\nsecond line"},
            },
            {"type": "resource", "resource": {"uri": "file:///x/b.txt", "text": "B"}},
        ]
    ]


def test_going_back_over_what_a_second_file_repeats_leaves_it_behind_in_both(
    tmp_path: Path,
) -> None:
    first = Log()
    kept = [first.user("u1", "One."), first.message("g1", "gemini", "1")]
    gone = [first.user("u2", "Two."), first.message("g2", "gemini", "2")]
    first.write(tmp_path)
    second = Log()
    second.set(*kept, *gone)
    second.lines.append({"$rewindTo": "u2"})
    second.set(*kept)
    second.user("u3", "Three.")
    second.message("g3", "gemini", "3")
    second.write(tmp_path, minute=9)
    told = Story.of(READER, tmp_path)
    assert [words for _, words in told.said()] == ["One.", "1", "Three.", "3"]
    assert told.facts.missed.counts == {ABANDONED: 1}


def test_going_back_to_nothing_takes_nothing_away(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "One.")
    log.lines.append({"$rewindTo": "from-elsewhere"})
    log.user("u2", "Two.")
    assert [words for _, words in story(log, tmp_path).said()] == ["One.", "Two."]


def test_tokens_that_come_with_a_later_line_of_a_message_count_once(tmp_path: Path) -> None:
    log = Log()
    log.user("u1", "Hello.")
    log.message("g1", "gemini", "", tokens=None)
    spent = {"input": 100, "output": 20, "cached": 40, "thoughts": 5, "total": 125}
    whole = log.message("g1", "gemini", "Hi.", tokens=spent)
    log.message("g1", "gemini", "Hi.", tokens=spent)
    log.user("u2", "And now?")
    log.message("g2", "gemini", "Yes.", tokens=spent)
    log.user("u3", "Later.")
    log.write(tmp_path)
    again = Log()
    again.set(whole)
    again.write(tmp_path, minute=9)
    told = Story.of(READER, tmp_path)
    counted = {"inputTokens": 60, "outputTokens": 20, "cachedReadTokens": 40, "thoughtTokens": 5}
    assert [end.get("usage", {}) for end in told.ends()] == [
        counted | {"totalTokens": 125},
        counted | {"totalTokens": 125},
        {},
    ]


def test_the_work_of_a_stopped_subagent_is_told_in_the_turn_that_it_began_in(
    tmp_path: Path,
) -> None:
    log = Log()
    log.user("u1", "Delegate.")
    log.message("g1", "gemini", "I ask a helper.")
    children = []
    for name, words in (("z-first", "Count."), ("a-second", "Read.")):
        child = Log(name)
        child.lines[0]["startTime"] = log._now()
        child.user("x1", f"Your task: {words}")
        child.message("x2", "gemini", "", toolCalls=[call(f"{name}-1", description=words)])
        children.append(child)
        if name == "z-first":
            log.user("u2", "It was stopped. Again.")
    asked = call("c1", "invoke_agent", description="helper", args={"prompt": "Read."})
    log.message("g2", "gemini", "", toolCalls=[asked])
    path = log.write(tmp_path)
    for place, child in enumerate(children):
        write_lines(path.parent / SESSION / f"{'za'[place]}.jsonl", *child.lines)
    assert Story.of(READER, tmp_path).said() == [
        ("user", "Delegate."),
        ("agent", "I ask a helper."),
        ("call", "Subagent"),
        ("call", "Count."),
        ("user", "It was stopped. Again."),
        ("call", "helper"),
        ("call", "Read."),
    ]
