"""Cline's sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.imports import Reader
from acphold.imports.cline import READER
from tests.imports.told import Story

Json = Any
SESSION = "1795174407649_qRGzH_cli"
CWD = "/home/ada/project"


class Session:
    """A manifest and its messages."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ".cline/data/sessions" / SESSION
        self.folder.mkdir(parents=True)
        self._messages: list[Json] = []

    def user(self, *parts: Json) -> None:
        told = [
            {"type": "text", "text": f'<user_input mode="act">{part}</user_input>'}
            if isinstance(part, str)
            else part
            for part in parts
        ]
        self._add("user", told)

    def agent(self, *parts: Json) -> None:
        self._add("assistant", [_text(part) for part in parts])

    def result(self, call: str, output: Json, *, failed: bool = False) -> None:
        part = {"type": "tool_result", "tool_use_id": call, "content": output}
        self._add("user", [part | ({"is_error": True} if failed else {})])

    def _add(self, role: str, content: list[Json]) -> None:
        number = len(self._messages)
        ts = 1_700_000_000_000 + number
        self._messages.append({"id": f"m{number}", "role": role, "ts": ts, "content": content})

    def write(self, title: str = "") -> Path:
        manifest = {"cwd": CWD, "metadata": {"title": title}}
        (self.folder / f"{SESSION}.json").write_text(json.dumps(manifest))
        path = self.folder / f"{SESSION}.messages.json"
        path.write_text(json.dumps({"messages": self._messages}))
        return path


def _text(part: Json) -> Json:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def use(call: str, name: str, **given: Json) -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


@pytest.mark.parametrize(
    "words",
    [
        "Why is </user_input> in the text?",
        "Why </user_input> twice </user_input>?",
        "What is <user_input>this</user_input> for?",
        'Which <user_input mode="act"> is it?',
    ],
)
def test_tags_of_the_program_in_a_persons_own_words_stay_in_them(
    tmp_path: Path, words: str
) -> None:
    session = Session(tmp_path)
    session.user(words, f"{words} Again.")
    session.agent("It is.")
    session.user({"type": "text", "text": "\n".join([f"<user_input>{words}</user_input>"] * 2)})
    session.write()
    prompts = Story.of(READER, tmp_path).prompts()
    assert [[block["text"] for block in blocks] for blocks in prompts] == [
        [words, f"{words} Again."],
        [words, words],
    ]


def test_a_conversation_with_a_call_is_told(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Run it.")
    session.agent(
        {"type": "thinking", "thinking": "Hm."}, use("c1", "run_commands", commands=["ls"])
    )
    session.result("c1", [{"query": "ls", "result": "a\n", "success": True}])
    session.agent("Done.")
    session.write("Run it.")
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Run it."),
        ("thought", "Hm."),
        ("call", "run_commands: ls"),
        ("agent", "Done."),
    ]
    call = told.call()
    assert (call["kind"], call["status"]) == ("execute", "completed")
    assert call["content"][0]["content"]["text"] == "a\n"
    assert told.facts.cwd == CWD
    assert told.facts.title is None  # it only repeats the first prompt


def test_a_refused_call_has_failed(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Delete it.")
    session.agent(use("c1", "run_commands", commands=["rm x"]))
    session.result("c1", '{"error":"rejected"}', failed=True)
    session.write()
    call = Story.of(READER, tmp_path).call()
    assert (call["status"], call["rawOutput"]) == ("failed", '{"error":"rejected"}')


def test_a_long_input_is_cut_in_the_title_as_the_program_does(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Patch.")
    session.agent(use("c1", "apply_patch", input="x" * 100))
    session.write()
    title = Story.of(READER, tmp_path).call()["title"]
    assert title == 'apply_patch: {"input":"' + "x" * 47 + "..."


def test_what_a_subagent_said_and_did_stands_inside_the_call(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Delegate.")
    session.agent(use("c1", "spawn_agent", task="Count."))
    session.result("c1", '{"text":"3"}')
    session.write()
    messages = [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "Count."}]},
        {"id": "2", "role": "assistant", "content": [_text("I count.")]},
    ]
    path = session.folder / "agent_1.messages.json"
    path.write_text(json.dumps({"messages": messages * 2}))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Delegate."),
        ("call", "spawn_agent: Count."),
        ("agent", "I count."),
    ]
    assert told.call()["rawOutput"] == {"text": "3"}


def test_the_work_of_a_stopped_subagent_is_told_inside_its_call(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Delegate.")
    session.agent(use("c1", "spawn_agent", task="Count."))
    session.user("It was stopped.")
    session.agent("Yes.")
    session.write()
    messages = [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": "Count."}]},
        {"id": "2", "role": "assistant", "content": [use("c2", "read_files")]},
    ]
    path = session.folder / "agent_1.messages.json"
    path.write_text(json.dumps({"messages": messages}))
    assert Story.of(READER, tmp_path).said() == [
        ("user", "Delegate."),
        ("call", "spawn_agent: Count."),
        ("call", "read_files"),
        ("user", "It was stopped."),
        ("agent", "Yes."),
    ]


def test_a_message_that_is_there_twice_is_told_once_as_it_was_last(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Hello.")
    session.agent("Hi")
    session.user("And now?")
    session._messages.append(session._messages[1] | {"content": [_text("Hi there.")]})
    session.write()
    assert [words for _, words in Story.of(READER, tmp_path).said()] == [
        "Hello.",
        "Hi there.",
        "And now?",
    ]


def test_messages_of_two_times_with_one_id_are_both_told(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.user("Hello.")
    session.agent("Hi.")
    session.user("And now?")
    session._messages[2]["id"] = session._messages[0]["id"]
    session.write()
    said = [words for _, words in Story.of(READER, tmp_path).said()]
    assert said == ["Hello.", "Hi.", "And now?"]


# -- the tasks of editors ------------------------------------------------------------------------


def task(
    home: Path,
    *messages: Json,
    root: str = ".cline/data",
    task_id: str = "1767322800000",
    reader: Reader = READER,
    **files: Json,
) -> Story:
    """The only task of a home, with these messages on the screen."""
    (folder := home / root / "tasks" / task_id).mkdir(parents=True)
    screen = [{"ts": 1767322800000 + n, **message} for n, message in enumerate(messages)]
    (folder / "ui_messages.json").write_text(json.dumps(screen))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return Story.of(reader, home)


def say(kind: str, words: Json = "", **fields: Json) -> Json:
    written = words if isinstance(words, str) else json.dumps(words)
    return {"type": "say", "say": kind, "text": written, **fields}


def ask(kind: str, words: Json = "") -> Json:
    written = words if isinstance(words, str) else json.dumps(words)
    return {"type": "ask", "ask": kind, "text": written}


def test_a_task_of_an_editor_is_told_as_it_stood_on_the_screen(tmp_path: Path) -> None:
    changed = "------- SEARCH\nold\n=======\nnew\n+++++++ REPLACE\n"
    told = task(
        tmp_path,
        say("task", "Change it."),
        say("api_req_started", {"tokensIn": 10, "tokensOut": 5}, modelInfo={"modelId": "m"}),
        say("reasoning", "Hm."),
        say("text", "I look first."),
        say("tool", {"tool": "readFile", "path": "a.py", "content": "/p/a.py"}),
        say("tool", {"tool": "editedExistingFile", "path": "a.py", "content": changed}),
        ask("command", "make test REQ_APP"),
        ask("command_output", "1 pas"),
        say("command_output", "sed\n"),
        say("task_progress", "- [x] Look\n- [ ] Change"),
        say("completion_result", "Done."),
        ask("completion_result", ""),
        say("user_feedback", "Thanks.", images=["data:image/png;base64,AA"]),
    )
    assert told.said() == [
        ("user", "Change it."),
        ("thought", "Hm."),
        ("agent", "I look first."),
        ("call", "Read a.py"),
        ("call", "Edit a.py"),
        ("call", "make test"),
        ("agent", "Done."),
        ("user", "Thanks."),
    ]
    read, edited, ran = (json.loads(call.fields.get("content", b"[]")) for call in told.calls())
    assert read == []
    assert edited == [{"type": "diff", "path": "a.py", "oldText": "old\n", "newText": "new\n"}]
    assert ran[0]["content"]["text"] == "1 passed\n"
    (plan,) = told.updates("plan")
    assert [step["status"] for step in plan["entries"]] == ["completed", "pending"]
    assert told.facts.missed.counts == {}
    assert told.prompts()[1][1]["type"] == "image"


def test_the_first_text_of_a_task_of_2024_is_the_prompt(tmp_path: Path) -> None:
    told = task(tmp_path, say("text", "Change it."), say("text", "I look first."))
    assert told.said() == [("user", "Change it."), ("agent", "I look first.")]


def test_where_a_task_was_held_is_in_the_list_of_tasks_or_in_what_the_model_was_told(
    tmp_path: Path,
) -> None:
    told = "# Current Working Directory (/home/ada/project) Files\na.py"
    said = [{"role": "user", "content": [{"type": "text", "text": told}]}]
    first = task(tmp_path / "1", say("task", "Hi."), api_conversation_history=said)
    assert first.facts.cwd == "/home/ada/project"
    root = tmp_path / "2/.config/Code/User/globalStorage/saoudrizwan.claude-dev"
    (root / "state").mkdir(parents=True)
    listed = [{"id": "1767322800000", "cwdOnTaskInitialization": "/elsewhere"}]
    (root / "state/taskHistory.json").write_text(json.dumps(listed))
    second = task(tmp_path / "2", say("task", "Hi."), root=str(root.relative_to(tmp_path / "2")))
    assert second.facts.cwd == "/elsewhere"


def test_the_call_of_a_server_ends_with_its_answer(tmp_path: Path) -> None:
    asked = {"serverName": "docs", "toolName": "find", "arguments": '{"q":"x"}'}
    told = task(
        tmp_path,
        say("task", "Find x."),
        ask("use_mcp_server", asked),
        say("mcp_server_request_started"),
        say("mcp_server_response", "Found."),
        say("something_new", "?"),
    )
    call = told.call()
    assert (call["title"], call["rawInput"], call["status"]) == (
        "docs: find",
        {"q": "x"},
        "completed",
    )
    assert call["content"][0]["content"]["text"] == "Found."
    assert told.facts.missed.counts == {"messages of kind 'something_new'": 1}
