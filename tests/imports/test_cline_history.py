"""What a task's cut screen lost and the model's side beside it has: Cline, Roo Code, Kilo Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.timeline import Message
from acphold.imports import Intake
from acphold.imports.cline import READER as CLINE, ROO
from acphold.imports.opencode import KILO
from acphold.imports.readers import Reader
from acphold.journal.journal import Journal, state_of
from acphold.journal.rows import ListFilter
from tests.imports.told import Story, sources

Json = Any
PLACES = {
    "cline": (CLINE, ".config/Code/User/globalStorage/saoudrizwan.claude-dev"),
    "roo": (ROO, ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline"),
    "kilo": (KILO, ".kilocode/cli/global"),
}
SCREEN = [
    {"ts": 1, "type": "say", "say": "task", "text": "Count </task>."},
    {"ts": 2, "type": "say", "say": "text", "text": "one"},
    {"ts": 3, "type": "say", "say": "user_feedback", "text": "y"},
    {"ts": 4, "type": "say", "say": "text", "text": "two"},
    {"ts": 5, "type": "say", "say": "user_feedback", "text": "y"},
    {"ts": 6, "type": "say", "say": "text", "text": "three"},
]


def said(role: str, *blocks: Json) -> Json:
    parts = [{"type": "text", "text": it} if isinstance(it, str) else it for it in blocks]
    return {"role": role, "content": parts}


def history() -> list[Json]:
    edit = "<write_to_file>\n<path>a.txt</path>\n<content>\nx\n</content>\n</write_to_file>"
    command = {"type": "tool_use", "name": "execute_command", "input": {"command": "ls"}}
    return [
        said(
            "user",
            "<task>\nCount </task>.\n</task>",
            "<environment_details>\nx\n</environment_details>",
        ),
        said("assistant", "one"),
        said("user", "<feedback>\ny\n</feedback>"),
        said("assistant", "two"),
        said("user", "<feedback>\ny\n</feedback>"),
        said("assistant", f"<thinking>Hm.</thinking>\n\nthree\n\n{edit}"),
        said("user", "[write_to_file for 'a.txt'] Result:\nok"),
        said("assistant", "four", command),
        said("user", {"type": "tool_result", "tool_use_id": "1", "content": "a.txt"}),
        said("assistant", "<attempt_completion>\n<result>\nfive\n</result>\n</attempt_completion>"),
    ]


WHOLE = ["Count </task>.", "one", "y", "two", "y", "three", "Write a.txt", "four"]
WHOLE += ["ls", "five"]


def write(home: Path, agent: str, screen: str, model: str | None) -> Reader:
    reader, root = PLACES[agent]
    (folder := home / root / "tasks/1770629640000").mkdir(parents=True)
    (folder / "ui_messages.json").write_text(screen)
    if model is not None:
        (folder / "api_conversation_history.json").write_text(model)
    return reader


@pytest.mark.parametrize("agent", PLACES)
@pytest.mark.parametrize("left", [4, 60, 130, 190, 270, 5_000])
def test_what_the_screen_lost_is_told_from_the_models_side(
    tmp_path: Path, agent: str, left: int
) -> None:
    screen = json.dumps(SCREEN)
    reader = write(tmp_path, agent, screen[: max(0, len(screen) - left)], json.dumps(history()))
    assert [words for _, words in Story.of(reader, tmp_path).said()] == WHOLE


@pytest.mark.parametrize("agent", PLACES)
def test_of_a_whole_screen_nothing_is_told_from_the_models_side(tmp_path: Path, agent: str) -> None:
    reader = write(tmp_path, agent, json.dumps(SCREEN), json.dumps(history()))
    assert [words for _, words in Story.of(reader, tmp_path).said()] == WHOLE[:6]


@pytest.mark.parametrize("agent", PLACES)
def test_a_task_is_told_by_whichever_of_its_files_there_are(tmp_path: Path, agent: str) -> None:
    reader = write(tmp_path, agent, "[]", json.dumps(history()))
    told = [[words for _, words in Story.of(reader, tmp_path).said()]]
    (screen,) = tmp_path.rglob("ui_messages.json")
    screen.unlink()
    told.append([words for _, words in Story.of(reader, tmp_path).said()])
    screen.with_name("claude_messages.json").write_text(json.dumps(SCREEN))  # its name in 2024
    told.append([words for _, words in Story.of(reader, tmp_path).said()])
    assert told == [WHOLE, WHOLE, WHOLE[:6]]


@pytest.mark.parametrize("agent", PLACES)
def test_a_models_side_of_something_else_adds_nothing(tmp_path: Path, agent: str) -> None:
    other = json.dumps([said("user", "<task>Other.</task>"), said("assistant", "Other answer.")])
    reader = write(tmp_path, agent, json.dumps(SCREEN)[:-5], other)
    assert [words for _, words in Story.of(reader, tmp_path).said()] == WHOLE[:5]


def test_a_tool_that_is_never_closed_is_what_was_said(tmp_path: Path) -> None:
    model = [said("user", "<task>Q.</task>"), said("assistant", "Look: <read_file> <path>a")]
    reader = write(tmp_path, "cline", "[", json.dumps(model))
    told = [words for _, words in Story.of(reader, tmp_path).said()]
    assert told == ["Q.", "Look: <read_file> <path>a"]


@pytest.mark.parametrize("agent", PLACES)
async def test_a_screen_that_is_whole_again_tells_nothing_twice(
    tmp_path: Path, opened: Journal, agent: str
) -> None:
    screen = json.dumps(
        [*SCREEN, {"ts": 9, "type": "say", "say": "user_feedback", "text": "More."}]
    )
    reader = write(tmp_path, agent, screen[: screen.index('"two"')], json.dumps(history()))
    (source,) = sources(reader, tmp_path)
    assert (await Intake(opened).take(source, reader)).outcome == "new"
    source.path.write_text(screen)
    (source,) = sources(reader, tmp_path)
    assert (await Intake(opened).take(source, reader)).outcome == "grown"
    (row,) = await opened.page(ListFilter())
    told = (await state_of(opened, row.session_id)).timeline
    said = [item.text for item in told if isinstance(item, Message) and item.role == "user"]
    assert said == ["Count </task>.", "y", "y", "More."]
