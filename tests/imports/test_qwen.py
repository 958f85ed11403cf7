"""Qwen Code's records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.imports.qwen import READER
from tests.imports.told import Story, sources, write_lines

Json = Any
SESSION = "7ee88a59-907e-448d-83fd-d2a27dac52e1"
CWD = "/home/ada/project"


class Chat:
    """The records of a session, each the child of the one before it."""

    def __init__(self, prompt: str = "", *, count: int = 0) -> None:
        self.records: list[Json] = []
        self.last: str | None = None
        self._count = count
        if prompt:
            self.user(prompt)

    def add(self, kind: str, after: str | None = "", **fields: Json) -> str:
        self._count += 1
        record = {
            "uuid": f"record-{self._count}",
            "parentUuid": self.last if after == "" else after,
            "sessionId": SESSION,
            "timestamp": f"2026-01-02T03:04:{self._count % 60:02}.000Z",
            "type": kind,
            "cwd": CWD,
        }
        self.records.append(record | fields)
        self.last = str(record["uuid"])
        return self.last

    def user(self, words: str, after: str | None = "", provenance: str = "real_user") -> str:
        message = {"role": "user", "parts": [{"text": words}]}
        return self.add("user", after, provenance=provenance, message=message)

    def agent(self, *parts: Json) -> str:
        told = [{"text": part} if isinstance(part, str) else part for part in parts]
        return self.add("assistant", message={"role": "model", "parts": told}, model="m")

    def result(self, call: str, display: Json, status: str = "success", **response: str) -> str:
        answer = {"functionResponse": {"id": call, "response": response}}
        about = {"callId": call, "status": status, "resultDisplay": display}
        message = {"role": "user", "parts": [answer]}
        return self.add("tool_result", message=message, toolCallResult=about)

    def system(self, subtype: str, **payload: Json) -> str:
        return self.add("system", subtype=subtype, systemPayload=payload)

    def path(self, home: Path) -> Path:
        return home / ".qwen/projects/-home-ada-project/chats" / f"{SESSION}.jsonl"

    def write(self, home: Path) -> Path:
        return write_lines(self.path(home), *self.records)


def use(call: str, name: str, **args: Json) -> Json:
    return {"functionCall": {"id": call, "name": name, "args": args}}


def story(chat: Chat, home: Path) -> Story:
    chat.write(home)
    return Story.of(READER, home)


def test_a_conversation_with_a_call_is_told(tmp_path: Path) -> None:
    chat = Chat("Read it.")
    chat.agent({"text": "Hm.", "thought": True}, "Reading.", use("c1", "read_file", file_path="/a"))
    for kind in ("ui_telemetry", "attribution_snapshot", "session_model", "turn_result"):
        chat.system(kind)
    chat.result("c1", "", output="A")
    chat.agent("It says A.")
    told = story(chat, tmp_path)
    assert told.said() == [
        ("user", "Read it."),
        ("thought", "Hm."),
        ("agent", "Reading."),
        ("call", "ReadFile: /a"),
        ("agent", "It says A."),
    ]
    made = told.call()
    assert (made["kind"], made["status"]) == ("read", "completed")
    assert made["content"][0]["content"]["text"] == "A"
    assert told.facts.missed.counts == {}


def test_a_command_that_failed_has_failed(tmp_path: Path) -> None:
    chat = Chat("Run it.")
    chat.agent(use("c1", "run_shell_command", command="false", description="fail"))
    chat.result("c1", {"type": "shell_result", "exitCode": 1}, "error", error="Exit Code: 1")
    made = story(chat, tmp_path).call()
    assert made["title"] == "Shell: false (fail)"
    assert made["status"] == "failed"
    assert made["rawOutput"] == {"type": "shell_result", "exitCode": 1}


def test_what_the_program_put_in_the_persons_place_is_left_out(tmp_path: Path) -> None:
    chat = Chat()
    chat.user("A hook says so.", provenance="hook")
    chat.user("Hello.")
    assert story(chat, tmp_path).said() == [("user", "Hello.")]


def test_the_list_of_things_to_do_is_the_plan(tmp_path: Path) -> None:
    chat = Chat("Plan.")
    todos = [{"id": "1", "content": "One", "status": "in_progress"}]
    chat.agent(use("c1", "todo_write", todos=todos))
    chat.result("c1", {"type": "todo_list", "todos": todos}, output="ok")
    told = story(chat, tmp_path)
    assert told.plan() == [("One", "in_progress")]
    assert told.calls() == []


def test_a_compaction_and_what_the_program_said_of_it_are_told(tmp_path: Path) -> None:
    chat = Chat("/compress")
    history = [{"role": "user", "parts": [{"text": "<summary>so far"}]}]
    chat.system("chat_compression", compressedHistory=history, info={"originalTokenCount": 9})
    item = {"type": "assistant", "text": "One.\nTwo.", "contextCompression": {}}
    chat.system("slash_command", rawCommand="/compress", outputHistoryItems=[item])
    assert story(chat, tmp_path).said() == [
        ("user", "/compress"),
        ("call", "Compact conversation"),
        ("agent", "One."),
        ("agent", "Two."),
    ]


@pytest.mark.parametrize(("gone", "kept"), [(2, ["One.", "1", "Two.", "2"]), (6, [])])
def test_going_back_after_a_resume_leaves_as_many_messages_as_it_says(
    tmp_path: Path, gone: int, kept: list[str]
) -> None:
    chat = Chat()
    for number, words in enumerate(("One.", "Two.", "Three."), 1):
        chat.user(words)
        chat.agent(str(number))
    chat.add("system", None, subtype="rewind", systemPayload={"truncatedCount": gone})
    chat.user("Four.")
    assert [words for _, words in story(chat, tmp_path).said()] == [*kept, "Four."]


def test_the_conversation_goes_on_behind_whatever_stands_in_the_chain(tmp_path: Path) -> None:
    chat = Chat("Hello.")
    chat.add("from-the-future")
    chat.agent("Hi.")
    chat.system("from-the-future")
    chat.user("Go on.")
    del chat.records[2:4]
    told = story(chat, tmp_path)
    assert told.said() == [("user", "Hello."), ("user", "Go on.")]


def test_what_a_subagent_said_and_did_stands_inside_the_call(tmp_path: Path) -> None:
    chat = Chat("Delegate.")
    chat.agent(use("call_1", "agent", description="count"))
    chat.result("call_1", {"type": "task_execution"}, output="3")
    path = chat.write(tmp_path)
    child = Chat(count=100)
    child.user("Count.")
    child.agent("I count.", use("call_2", "read_file", file_path=f"{CWD}/a.txt"))
    child.result("call_2", None, output="A")
    folder = path.parent.parent / "subagents" / SESSION
    write_lines(folder / "agent-general-call_1.jsonl", *child.records)
    (folder / "agent-general-call_1.meta.json").write_text(json.dumps({"agentType": "general"}))
    told = Story.of(READER, tmp_path)
    assert told.said() == [
        ("user", "Delegate."),
        ("call", "Agent: count"),
        ("agent", "I count."),
        ("call", "ReadFile: a.txt"),
    ]
    (said,) = told.updates("agent_message_chunk")
    assert said["_meta"] == {
        "acphold/parentToolCallId": "call_1",
        "parentToolCallId": "call_1",
        "subagentType": "general",
    }


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_subagent_of_a_subagent_stands_inside_its_call(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    chats = [Chat("Delegate.", count=100 * n) for n in range(3)]
    for n, chat in enumerate(chats):
        chat.agent(use(f"call_{n}", "agent", description="more"))
        if not is_stopped:
            chat.result(f"call_{n}", {"type": "task_execution"}, output="3")
    folder = chats[0].write(tmp_path).parents[1] / "subagents" / SESSION
    for n, chat in enumerate(chats[1:]):
        write_lines(folder / f"agent-general-call_{n}.jsonl", *chat.records)
    calls = Story.of(READER, tmp_path).calls()
    callers = [json.loads(it.fields["_meta"]).get("acphold/parentToolCallId") for it in calls]
    assert callers == [None, "call_0", "call_1"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_work_of_a_stopped_subagent_is_told_inside_its_call(
    tmp_path: Path, goes_on: bool
) -> None:
    chat = Chat("Delegate.")
    chat.agent(use("call_1", "agent", description="count"))
    if goes_on:
        chat.user("It was stopped.")
        chat.agent("Yes.")
    path = chat.write(tmp_path)
    child = Chat(count=100)
    child.user("Count.")
    child.agent(use("call_2", "read_file", file_path=f"{CWD}/a.txt"))
    folder = path.parent.parent / "subagents" / SESSION
    write_lines(folder / "agent-general-call_1.jsonl", *child.records)
    more = [("user", "It was stopped."), ("agent", "Yes.")] if goes_on else []
    assert Story.of(READER, tmp_path).said() == [
        ("user", "Delegate."),
        ("call", "Agent: count"),
        ("call", "ReadFile: a.txt"),
        *more,
    ]


def test_the_one_document_of_version_0_1_is_told(tmp_path: Path) -> None:
    (folder := tmp_path / ".qwen/tmp/0123/chats").mkdir(parents=True)
    messages = [
        {"id": "1", "timestamp": "2025-11-20T11:44:14Z", "type": "user", "content": "Hello."},
        {"id": "2", "type": "qwen", "content": "Hi."},
    ]
    whole = {"sessionId": SESSION, "messages": messages}
    (folder / "session-2025-11-20T11-44-7ee88a59.json").write_text(json.dumps(whole))
    assert Story.of(READER, tmp_path).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_an_archived_session_is_read_and_a_ledger_is_none(tmp_path: Path) -> None:
    chat = Chat("Hello.")
    chat.agent("Hi.")
    path = chat.path(tmp_path)
    write_lines(path.with_name("archive") / path.name, *chat.records)
    write_lines(path.with_suffix(".ledger.jsonl"), {"promptId": "p1", "status": "done"})
    (source,) = sources(READER, tmp_path)
    assert source.session_id == SESSION
    assert Story(READER, source).said() == [("user", "Hello."), ("agent", "Hi.")]


def test_a_branch_begins_as_another_session(tmp_path: Path) -> None:
    chat = Chat("Hello.")
    chat.agent("Hi.")
    for record in chat.records:
        record |= {"forkedFrom": {"sessionId": "another", "messageUuid": record["uuid"]}}
    chat.user("And now?")
    told = story(chat, tmp_path)
    assert (told.facts.session_id, told.facts.begun_as) == (SESSION, "another")
    assert [words for _, words in told.said()] == ["Hello.", "Hi.", "And now?"]
