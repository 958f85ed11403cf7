"""Commands with the right verdict, most of them hostile; the verdicts were there before the
code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acphold.safety.standing.asked_actions import PERMISSION, RunAction, read_action
from acphold.safety.standing.decision import (
    Circumstances,
    RuleDecision,
    StandingRule,
    decide,
    read_rule,
)

HOME = "/home/ada/project"
FILES = ("corpus.jsonl", "own_corpus.jsonl")


def corpus(name: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The rules of a file, and its commands."""
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    head, *rows = map(json.loads, lines)
    return head["rules"], rows


def made(texts: list[str], folder: Path) -> list[StandingRule]:
    rules = []
    for number, text in enumerate(texts, start=1):
        rule = read_rule(text)
        rules.append(
            StandingRule(
                rule.verdict,
                rule.kind,
                rule.argv,
                rule.is_prefix,
                str(folder),
                number=number,
                places=("here",),
            )
        )
    return rules


def judged(text: str, rules: list[StandingRule], folder: Path) -> RuleDecision:
    at = Circumstances("claude", str(folder), "s", "", 1, place="here")
    return decide(RunAction((text.replace(HOME, str(folder)),)), rules, at)


@pytest.mark.parametrize("name", FILES)
def test_every_command_of_the_corpus_has_its_verdict(name: str, project: Path) -> None:
    texts, rows = corpus(name)
    rules = made(texts, project)
    wrong = []
    for row in rows:
        verdict = judged(row["text"], rules, project)
        if verdict.allows != (row["verdict"] == "allow"):
            wrong.append((row["n"], row["text"][:80], row["why"], verdict.why))
    assert not wrong


@pytest.mark.parametrize("name", FILES)
def test_every_agent_that_asks_for_it_gets_the_same_verdict(name: str, project: Path) -> None:
    texts, rows = corpus(name)
    rules = made(texts, project)
    for row in rows:
        text = row["text"].replace(HOME, str(project))
        for agent, (call, before) in questions(text, str(project)).items():
            params = json.dumps({"toolCall": call}).encode()
            action = read_action(agent, PERMISSION, params, before)
            at = Circumstances(agent, str(project), "s", "", 1, place="here")
            # The shell of some agents would still be there for the next command.
            stays = agent in ("claude", "copilot") and text.startswith("cd src ")
            allowed = row["verdict"] == "allow" and not stays
            assert decide(action, rules, at).allows == allowed, (agent, row)


def questions(text: str, folder: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The call in a request of each agent for a command, and the call as reported before."""
    goose = {"goose": {"toolCall": {"toolName": "shell", "extensionName": "developer"}}}
    both = {"command": text, "commands": [text]}
    codex = {"call_id": "c", "command": ["/bin/bash", "-lc", text], "cwd": folder}
    copilot = {"rawInput": {"command": text, "description": "run it", "mode": "sync"}}
    qwen = {"command": text, "is_background": False, "description": "run it"}
    return {
        "claude": ({"name": "Bash", "rawInput": {"command": text}}, {}),
        "codex": ({"kind": "search", "title": "List it", "rawInput": codex}, {}),
        "copilot": ({"title": "run it", "rawInput": both}, copilot),
        "cline": ({"title": f"run_commands: {text[:9]}", "rawInput": {"commands": [text]}}, {}),
        "opencode": (
            {"title": text, "rawInput": {"command": text}},
            {"rawInput": {"cwd": folder, "command": text}},
        ),
        "goose": ({"title": "shell", "rawInput": {"command": text}}, {"_meta": goose}),
        "qwen": ({"rawInput": qwen, "_meta": {"toolName": "run_shell_command"}}, {}),
    }
