"""The stand-in for a model vendor, steered by words for the tests of real agents.

It answers `ECHO: ` and the last line of the user's prompt. Words on that line steer it:

- `USE_TOOL:read|shell|write|recall`: first a call of the offered tool that fits, with `FILE=…` as
  its path, `CMD=…` as its command and `QUERY=…` as its query; then the tool's result.
- `SLOW`: 200 words, one every 50 ms.
- `BADREQ`: HTTP 400, which agents do not retry; `FAIL`: HTTP 500, which they retry for minutes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from acp_check.model_endpoint import (
    Failure,
    ModelEndpoint,
    ModelPrompt,
    Reply,
    ToolUse,
    Words,
    endpoint,
)

__all__ = ["SLOW_WORDS", "ModelEndpoint", "running"]

Json = dict[str, Any]

SLOW_WORDS = 200
SLOW_PAUSE = 0.05
"""Seconds between two of them."""

SCRIPT = "functions::exec"
"""The tool of a Codex whose model runs commands from scripts alone."""

OUTSIDE = {"sandbox_permissions": "require_escalated", "justification": "May it?"}
"""Arguments for which such a Codex asks; it asks for no command in its sandbox."""

TITLE = "Your task is to generate"
"""The beginning of Codex's request for a title, which repeats the prompt."""

TOOLS = {
    "read": ("read_file", "read", "Read"),
    "shell": (
        *("exec_command", "shell_command", "run_shell_command", "shell", "bash", "execute"),
        *("Bash", SCRIPT),
    ),
    "write": ("write_file", "write", "Write"),
    "recall": ("acphold_search", "mcp__acphold::search"),
}
"""The names that agents give to each kind of tool."""

HANDED_OVER = "# Earlier in this conversation"
WORDS_NOW = "# What the user says now"
"""The lines that mark the beginning and the end of an earlier conversation."""


def running() -> AbstractContextManager[ModelEndpoint]:
    """An endpoint on a free port of this machine, for the block."""
    return endpoint(answer)


def answer(asked: ModelPrompt) -> Reply:
    """The reply that the words of the prompt order."""
    order = _order(asked.user)
    if (failure := re.search(r"\b(BADREQ|FAIL)\b", order)) is not None:
        return Failure({"BADREQ": 400, "FAIL": 500}[failure[1]])
    wanted = re.search(r"USE_TOOL:(\w+)", order)
    if asked.user.startswith(TITLE):
        wanted = None
    if wanted is not None and asked.tool_result is None:
        for name in TOOLS[wanted[1]]:
            if name in asked.tools:
                arguments = _arguments(asked.tools[name], order)
                return ToolUse(name, arguments | (OUTSIDE if name == SCRIPT else {}))
    return Words(_words(asked.tool_result, order))


def _order(user: str) -> str:
    """The line that steers; agents put an earlier prompt that failed in front of it.

    So does an earlier conversation that was handed over stand there.
    """
    return (user.rpartition(WORDS_NOW)[2].strip().splitlines() or [""])[-1]


def _words(tool_result: str | None, order: str) -> Iterator[str]:
    if tool_result is not None:
        yield f"DONE: the tool said: {tool_result[:200]}"
    elif "SLOW" in order:
        for number in range(SLOW_WORDS):
            yield f"tick{number} "
            time.sleep(SLOW_PAUSE)
    else:
        yield "ECHO: "
        yield order[:400]


def _arguments(schema: Json, order: str) -> Json:
    properties: Json = schema.get("properties", {})
    needed = schema.get("required", [])
    return {name: _argument(name, properties[name], order) for name in needed}


def _argument(name: str, schema: Json, order: str) -> object:
    if name in ("command", "cmd"):
        command = found[1] if (found := re.search(r"CMD=(\S+)", order)) else "pwd"
        return ["bash", "-lc", command] if schema.get("type") == "array" else command
    if name == "query" and (found := re.search(r"QUERY=(\S+)", order)):
        return found[1]
    if "path" in name.lower() and (found := re.search(r"FILE=(\S+)", order)):
        return found[1]
    return {"string": "written by the model\n", "boolean": False}.get(schema.get("type", ""), 1)
