"""GitHub Copilot CLI's events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acphold.imports.copilot import READER, workspace
from tests.imports.told import Story, write_lines

Json = Any
SESSION = "f6274b9f-cbce-4d4b-b478-c79a421de505"
CWD = "/home/ada/project"


class Events:
    """The events of a session."""

    def __init__(self) -> None:
        self.lines: list[Json] = []
        self.add("session.start", context={"cwd": CWD})

    def add(self, kind: str, **data: Json) -> None:
        at = f"2026-01-02T03:04:{len(self.lines):02}.000Z"
        self.lines.append(
            {"type": kind, "data": data, "id": f"e{len(self.lines)}", "timestamp": at}
        )

    def user(self, words: str, **more: Json) -> None:
        self.add("user.message", content=words, transformedContent=f"<x>{words}", **more)

    def agent(self, words: str, *, calls: bool = False, **more: Json) -> None:
        requests = [{"toolCallId": "x"}] if calls else []
        message_id = f"m{len(self.lines)}"
        self.add(
            "assistant.message", messageId=message_id, content=words, toolRequests=requests, **more
        )

    def tool(self, call: str, name: str, title: str = "", **arguments: Json) -> None:
        about = {"toolTitle": title} if title else {}
        self.add(
            "tool.execution_start", toolCallId=call, toolName=name, arguments=arguments, **about
        )

    def done(self, call: str, words: str) -> None:
        self.add(
            "tool.execution_complete", toolCallId=call, success=True, result={"content": words}
        )

    def write(self, home: Path) -> Path:
        folder = home / ".copilot/session-state" / SESSION
        path = write_lines(folder / "events.jsonl", *self.lines)
        (folder / "workspace.yaml").write_text(f"id: {SESSION}\ncwd: {CWD}\nname: 'It''s named'\n")
        return path


def story(events: Events, home: Path) -> Story:
    events.write(home)
    return Story.of(READER, home)


def test_a_conversation_with_calls_is_told(tmp_path: Path) -> None:
    events = Events()
    events.user("Do it.")
    events.agent("Reading.", calls=True, reasoningText="Hm.")
    events.tool("c1", "view", "Viewing file", path="/a")
    events.done("c1", "A")
    events.tool("c2", "edit", "Editing file", path="/a", old_str="x", new_str="y")
    events.add("permission.requested", toolCallId="c2")
    events.done("c2", "updated")
    events.tool("c3", "bash", "Running command", command="false", description="fail")
    events.add(
        "tool.execution_complete", toolCallId="c3", success=False, error={"code": "rejected"}
    )
    events.agent("Done.")
    told = story(events, tmp_path)
    assert told.said() == [
        ("user", "Do it."),
        ("thought", "Hm."),
        ("agent", "Reading."),
        ("call", "Viewing /a"),
        ("call", "Editing /a"),
        ("call", "fail"),
        ("agent", "Done."),
    ]
    viewed, edited, failed = told.calls()
    assert viewed.fields["locations"] == b'[{"path":"/a"}]'
    assert b'"diff"' in edited.fields["content"]
    assert failed.status == "failed"
    assert failed.raw_output == b'{"code":"rejected"}'
    assert told.facts.title == "It's named"
    assert told.facts.missed.counts == {}


def test_what_the_program_put_in_the_persons_place_is_left_out(tmp_path: Path) -> None:
    events = Events()
    events.user("A hook says so.", source="hook")
    events.user("Hello.")
    assert story(events, tmp_path).said() == [("user", "Hello.")]


def test_a_cancelled_turn_and_a_failed_one_end_as_such(tmp_path: Path) -> None:
    events = Events()
    events.user("One.")
    events.add("abort", reason="user_initiated")
    events.user("Two.")
    events.add("session.error", message="no quota")
    cancelled, failed = story(events, tmp_path).ends()
    assert cancelled["stopReason"] == "cancelled"
    assert failed["error"]["message"] == "no quota"


def test_a_compaction_that_was_asked_for_is_told_with_its_answer(tmp_path: Path) -> None:
    events = Events()
    events.user("Hello.")
    events.agent("Hi.")
    events.add("session.compaction_start", trigger="manual")
    events.add(
        "session.compaction_complete", summaryContent="so far", messagesRemoved=7, tokensRemoved=9
    )
    assert story(events, tmp_path).said()[2:] == [
        ("user", "/compact"),
        ("call", "Compact conversation"),
        ("agent", "Compacted conversation history and removed 7 messages and 9 tokens."),
    ]


def test_a_warning_after_a_crash_stands_behind_the_next_prompt(tmp_path: Path) -> None:
    events = Events()
    events.user("Sleep.")
    events.tool("c1", "bash", command="sleep")
    events.add("session.resume", context={"cwd": CWD})
    events.add("session.warning", message="1 tool call had no result.")
    events.user("Go on.")
    events.agent("Yes.")
    told = story(events, tmp_path)
    assert told.said()[2:] == [
        ("user", "Go on."),
        ("agent", "Warning: 1 tool call had no result."),
        ("agent", "Yes."),
    ]
    assert told.ends()[0]["interrupted"] is None


def test_a_subagents_calls_are_marked_with_the_call_that_started_it(tmp_path: Path) -> None:
    events = Events()
    events.user("Delegate.")
    events.tool("c1", "task", "Running agent")
    events.add("subagent.started", toolCallId="c1")
    events.agent("Inner words.", parentToolCallId="c1")
    events.add("tool.execution_start", toolCallId="c2", toolName="bash", arguments={},
               toolTitle="Inner", parentToolCallId="c1")  # fmt: skip
    told = story(events, tmp_path)
    assert told.said() == [
        ("user", "Delegate."),
        ("call", "Running agent"),
        ("agent", "Inner words."),
        ("call", "Inner"),
    ]
    assert b'"acphold/parentToolCallId":"c1"' in told.calls()[1].fields["_meta"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("name: plain words", "plain words"),
        ('name: "quoted \\"words\\""', 'quoted "words"'),
        ("name: |-\n  over\n  lines", "over lines"),
        ("other: x", None),
    ],
)
def test_the_name_of_a_session_is_read_as_yaml_writes_it(
    tmp_path: Path, written: str, name: str | None
) -> None:
    path = tmp_path / "workspace.yaml"
    path.write_text(written + "\n")
    assert workspace(path).get("name") == name


def test_what_a_subagent_thinks_and_says_is_told_as_the_part_of_its_call(tmp_path: Path) -> None:
    events = Events()
    events.user("Look into it.")
    events.agent("I send somebody.", calls=True)
    events.tool("c1", "task", "Sending", description="look")
    events.add("user.message", content="Look.", parentToolCallId="c1")
    events.agent("It is there.", reasoningText="Where is it?", parentToolCallId="c1")
    events.done("c1", "There.")
    events.agent("Done.")
    told = story(events, tmp_path)
    assert told.said() == [
        ("user", "Look into it."),
        ("agent", "I send somebody."),
        ("call", "look"),
        ("thought", "Where is it?"),
        ("agent", "It is there."),
        ("agent", "Done."),
    ]
    parents = [
        update.get("_meta", {}).get("acphold/parentToolCallId")
        for kind in ("agent_thought_chunk", "agent_message_chunk")
        for update in told.updates(kind)
    ]
    assert parents == ["c1", None, "c1", None]


@pytest.mark.parametrize("is_named", [True, False])
def test_what_is_said_to_a_subagent_is_no_prompt(tmp_path: Path, *, is_named: bool) -> None:
    """Newer versions mark its events with its id only, which its first one gives to the call."""
    events = Events()
    events.user("Look around.")
    events.tool("c1", "task", description="Look")
    if is_named:
        events.add("subagent.started", toolCallId="c1", agentName="explore")
        events.lines[-1]["agentId"] = "a1"
    events.user("Find the tests.")
    events.agent("There are two.")
    for event in events.lines[-2:]:
        event["agentId"] = "a1"
    events.done("c1", "Two.")
    events.agent("Two tests.")
    told = story(events, tmp_path)
    assert [words for who, words in told.said() if who == "user"] == ["Look around."]
    (first, _) = told.updates("agent_message_chunk")
    assert first["_meta"]["acphold/parentToolCallId"] == ("c1" if is_named else "a1")
