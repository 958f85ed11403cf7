"""Reading the actions in recorded questions of real agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.safety.standing.asked_actions import (
    PERMISSION,
    Action,
    RunAction,
    Unclear,
    allow_once,
    differs,
    read_action,
)

CODEX = {"call_id": "c", "command": ["/bin/bash", "-lc", "pytest"], "cwd": "/a"}


def action_of(agent: str, call: dict[str, Any], before: dict[str, Any] | None = None) -> Action:
    params = json.dumps({"toolCall": call}).encode()
    return read_action(agent, PERMISSION, params, before or {})


def test_each_recorded_question_is_read_as_what_it_asks_for() -> None:
    lines = (Path(__file__).parent / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 32
    for row in map(json.loads, lines):
        action = action_of(row["agent"], row["call"], row["before"])
        match action:
            case RunAction(lines=texts):
                assert list(texts) == row["run"]
            case Unclear():
                assert {"unclear", "edit"} & row.keys()


@pytest.mark.parametrize(
    ("agent", "call", "before"),
    [
        ("claude", {"rawInput": {"command": "pytest"}, "kind": "execute", "title": "pytest"}, {}),
        ("claude", {"name": "mcp__x__Bash", "rawInput": {"command": "pytest"}}, {}),
        ("claude", {"name": "Bash", "rawInput": {"command": "pytest", "host": "x"}}, {}),
        (
            "claude",
            {"name": "Bash", "rawInput": {"command": "pytest", "run_in_background": True}},
            {},
        ),
        (
            "claude",
            {"name": "Bash", "rawInput": {"command": "pytest"}},
            {"rawInput": {"command": "id"}},
        ),
        ("claude", {"name": "Bash", "rawInput": {"command": ["pytest"]}}, {}),
        (
            "claude",
            {"name": "Bash", "rawInput": {"command": "pytest"}},
            {"_meta": {"claudeCode": {"toolName": "Bash", "parentToolUseId": "t"}}},
        ),
        ("claude", {"name": "Bash", "rawInput": {"command": "pytest", "sandbox": False}}, {}),
        ("claude", {"name": "bash", "rawInput": {"command": "pytest"}}, {}),
        ("claude", {"name": "Bash", "rawInput": '{"command": "pytest"}'}, {}),
        ("claude", {"name": "ExitPlanMode", "rawInput": {"command": "pytest"}}, {}),
        ("codex", {"rawInput": {**CODEX, "command": ["bash", "-lic", "pytest"]}}, {}),
        ("codex", {"rawInput": {**CODEX, "command": ["bash", "-lc", "pytest", "x"]}}, {}),
        ("codex", {"rawInput": {**CODEX, "additional_permissions": {}}}, {}),
        ("codex", {"rawInput": {"call_id": "c", "changes": {}}}, {}),
        ("codex", {"rawInput": {**CODEX, "cwd": "/a\0"}}, {}),
        ("cline", {"title": "run_commands: ", "rawInput": {"commands": []}}, {}),
        ("cline", {"title": "run_commands: x", "rawInput": {"commands": ["pytest", 1]}}, {}),
        (
            "qwen",
            {
                "rawInput": {"command": "pytest", "directory": "/tmp"},
                "_meta": {"toolName": "run_shell_command"},
            },
            {},
        ),
        ("goose", {"title": "shell", "rawInput": {"command": "pytest"}}, {}),
        ("opencode", {"title": "bash", "rawInput": {"command": "pytest"}}, {"rawInput": {"x": 1}}),
        ("claude", {"name": "Task", "rawInput": {"prompt": "pytest"}}, {}),
        ("codex", {"rawInput": {**CODEX, "command": ["python", "-c", "pytest"]}}, {}),
        ("codex", {"rawInput": {**CODEX, "command": ["./bash", "-lc", "pytest"]}}, {}),
        ("codex", {"rawInput": {**CODEX, "with_network": True}}, {}),
        ("codex", {"rawInput": {"command": "pytest", "cwd": "/a", "url": "https://a.b"}}, {}),
        ("codex", {"rawInput": {"command": "pytest"}}, {}),
        ("codex", {"rawInput": {"command": "pytest", "cwd": 1}}, {}),
        ("codex", {"rawInput": {"command": "pytest", "cwd": None}}, {}),
        ("codex", {"rawInput": {"command": """ls 'a'"'; id # '"'b'""", "cwd": "/a"}}, {}),
        *(
            ("codex", {"rawInput": {"command": "make", "cwd": "/a"}}, {"rawInput": {"command": it}})
            for it in ("/a/bash -lc make", "bash make", "bash -lc 'make", "bash -lc id", "id")
        ),
        ("codex", {"rawInput": {"call_id": "c", "changes": {"a": {"type": "delete"}}}}, {}),
        ("copilot", {"rawInput": {"command": "pytest", "commands": ["pytest", "id"]}}, {}),
        ("copilot", {"rawInput": {"command": "pytest", "commands": ["pytest"]}}, {}),
        ("cline", {"title": "use_mcp: x", "rawInput": {"commands": ["pytest"]}}, {}),
        ("opencode", {"title": "docs_run", "rawInput": {"command": "pytest"}}, {}),
        (
            "goose",
            {"title": "shell", "rawInput": {"command": "pytest"}},
            {"_meta": {"goose": {"toolCall": {"toolName": "shell", "extensionName": "evil"}}}},
        ),
        ("gemini", {"title": "pytest", "kind": "execute"}, {}),
        ("codex", {"rawInput": CODEX}, {"rawInput": {"command": ["/bin/bash", "-lc", "id"]}}),
        ("claude", {"name": "Write", "rawInput": {"file_path": "b", "content": ""}}, {}),
        ("copilot", {"rawInput": {"fileName": "/a/b", "diff": ""}}, {"rawInput": {"path": "/a/b"}}),
        ("copilot", {"rawInput": {"command": "pytest"}}, {}),
        (
            "cline",
            {"title": "run_commands: x", "rawInput": {"commands": ["pytest"]}},
            {"rawInput": {"commands": ["id"]}},
        ),
        ("opencode", {"title": "bash", "rawInput": {"command": "pytest", "workdir": "/"}}, {}),
        (
            "goose",
            {"rawInput": {"command": "pytest"}},
            {"_meta": {"goose": {"toolCall": {"toolName": "x", "extensionName": "developer"}}}},
        ),
        ("another", {"name": "Bash", "rawInput": {"command": "pytest"}}, {}),
    ],
)
def test_a_question_that_says_two_things_or_something_unknown_is_unclear(
    agent: str, call: dict[str, Any], before: dict[str, Any]
) -> None:
    assert isinstance(action_of(agent, call, before), Unclear)


def test_the_demo_agent_asks_to_run_and_its_edits_are_asked_about() -> None:
    assert action_of("demo", {"rawInput": {"command": "pytest"}}) == RunAction(("pytest",))
    assert isinstance(action_of("demo", {"rawInput": {"path": "/a/b"}}), Unclear)


def test_a_form_and_an_unreadable_request_are_unclear() -> None:
    assert isinstance(read_action("claude", "elicitation/create", b"{}", {}), Unclear)
    for params in (b"", b"[]", b"{", b'{"toolCall":1}', b'{"toolCall":{"rawInput":[]}}', b"\xff"):
        assert isinstance(read_action("claude", PERMISSION, params, {}), Unclear)


def test_only_a_single_option_that_allows_once_is_taken() -> None:
    def options(*kinds: str) -> bytes:
        given = [{"optionId": f"id {kind}", "kind": kind} for kind in kinds]
        return json.dumps({"options": given}).encode()

    assert allow_once(options("allow_always", "allow_once", "reject_once")) == b'"id allow_once"'
    assert allow_once(options("allow_always", "reject_once")) is None
    assert allow_once(options("allow_once", "allow_once")) is None
    assert allow_once(b"{}") is None
    same = {"optionId": "a", "kind": "allow_once"}, {"optionId": "a", "kind": "allow_always"}
    assert allow_once(json.dumps({"options": same}).encode()) is None
    for id_ in (1, None, ["a"]):
        given = [{"optionId": id_, "kind": "allow_once"}]
        assert allow_once(json.dumps({"options": given}).encode()) is None


def test_a_call_that_is_reported_otherwise_later_differs() -> None:
    run = RunAction(("pytest -q",), "/a")
    for told in (
        {"command": "id"},
        {"commands": ["pytest -q"], "command": "id"},
        {"commands": ["pytest -q", "id"]},
        {"command": ["/bin/bash", "-lc", "id"]},
        {"command": ["id"]},
        {"command": "pytest -q", "cwd": "/b"},
    ):
        assert differs(run, {"rawInput": told}, "/a")
    for told in (
        {"command": "pytest -q"},
        {"commands": ["pytest -q"]},
        {"command": ["/bin/bash", "-lc", "pytest -q"], "cwd": "/a/"},
        {"description": "x"},
    ):
        assert not differs(run, {"rawInput": told}, "/a")
