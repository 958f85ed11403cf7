"""A permission request on the screen: each command once, and every argument."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from acphold.conversation.history.timeline import ToolCall
from acphold.faces.screen.answers import AskedCalls, PersonAnswers
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.panels import KeyChoice, call_details, permission

COMMAND = "git log  --since='two weeks ago' | grep -v merge && make all"


def call(**fields: Any) -> ToolCall:
    return ToolCall("t1", {name: json.dumps(value).encode() for name, value in fields.items()})


def told(tool: ToolCall) -> list[str]:
    """The lines of a question, its last line with it."""
    choice = permission(tool, [])
    return [*(line.plain for line in call_details(tool).lines), choice.short or choice.title]


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def test_a_command_as_claude_code_asks_for_it_stands_there_once() -> None:
    given = {"command": COMMAND, "description": "Look", "dangerouslyDisableSandbox": True}
    tool = call(title=f"`{COMMAND}`", kind="execute", rawInput=given, content=text("Look"))
    assert told(tool) == [
        "○ execute · pending",
        f"  command: {COMMAND}",
        "  description: Look",
        "  dangerouslyDisableSandbox: true",
        "Allow this command?",
    ]


def test_a_command_as_gemini_asks_for_it_stands_there_once() -> None:
    title = f"{COMMAND} [in src] (Look)"
    assert told(call(title=title, kind="execute", content=[])) == [
        "○ execute · pending",
        f"  command: {title}",
        "Allow this command?",
    ]
    assert told(call(title="make all", kind="execute")) == [
        "○ execute · pending",
        "  command: make all",
        "Allow this command?",
    ]


def test_a_command_of_several_lines_is_never_put_on_one_where_a_comment_would_hide_the_rest() -> (
    None
):
    for given in ({}, {"command": "make #\nrm -rf /"}):
        tool = call(title="make #\nrm -rf /", kind="execute", rawInput=given)
        assert told(tool)[1:3] == ["  command: make #", "    rm -rf /"]


def test_what_a_call_is_called_stays_in_the_question() -> None:
    tool = call(title="Run it", kind="execute", rawInput={"command": "make all"})
    assert told(tool) == [
        "○ Run it  execute · pending",
        "  command: make all",
        "Allow this? Run it",
    ]


def test_a_folder_outside_of_its_own_is_asked_for_in_words() -> None:
    folder = "/home/ada/code/infra"
    given = {"filepath": f"{folder}/a.tf", "parentDir": folder}
    tool = call(title=folder, kind="other", rawInput=given)
    assert told(tool) == [
        "○ work outside its folder  other · pending",
        f"  {folder}",
        f"  filepath: {folder}/a.tf",
        "Allow this?",
    ]
    assert permission(tool, []).title == f"Allow this? work outside its folder: {folder}"


async def test_who_only_looks_on_reads_the_command_once_too() -> None:
    asked_for: list[KeyChoice] = []

    async def choose(choice: KeyChoice) -> None:
        asked_for.append(choice)

    answers = PersonAnswers(Flow(), AskedCalls(), reads_only=True)
    face: Any = SimpleNamespace(choose=choose, refresh=lambda: None)
    answers.face = face
    tool = call(title="make all", kind="execute", rawInput={"command": "make all"})
    question: Any = SimpleNamespace(session_id="s", tool_call=tool, options=())
    await answers.on_permission(question)
    assert [it.short for it in asked_for] == ["Allow this command? (cannot be answered here)"]
