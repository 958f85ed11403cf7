"""The mind of the stand-in model: carries out errands with the agent's own tools."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from acphold.conformance.errands import Errand, Task, errand, errands
from acphold.conformance.model_endpoint import ModelPrompt, Reply, ToolUse, Words
from acphold.conformance.record import Json

PAUSE_SECONDS = 0.02
"""Seconds between two counted numbers: makes a turn long enough to cancel."""

TOOLS: dict[Task, tuple[str, ...]] = {
    "read": ("read_file", "read", "read_text_file", "view"),
    "write": ("write_file", "write", "create_file", "write_text_file"),
    "run": (
        *("exec_command", "shell_command", "run_shell_command", "shell", "bash", "execute"),
        *("run_command", "run"),
    ),
    "plan": ("update_plan", "todowrite", "write_todos", "todo_write", "TodoWrite", "plan"),
}
"""Names that agents give the tools for an errand; the first one offered is used."""


def answer(asked: ModelPrompt) -> Reply:
    """Return the model's reply to a request; the person's last errand counts."""
    todo = errand(asked.user) or Errand("greet")
    if asked.tool_said is not None:
        return Words((f"It says: {asked.tool_said[:2000]}",))
    for way in (todo, _in_shell(todo)):
        names = TOOLS.get(way.task, ())
        fitting = [name for name in names if name in asked.tools]
        if way.task == "call":
            fitting = [name for name in asked.tools if name.endswith(way.what)]
        for tool in fitting[:1]:
            return ToolUse(tool, arguments(asked.tools[tool], way))
    return Words(_said(asked, todo))


def _said(asked: ModelPrompt, todo: Errand) -> Iterator[str]:
    match todo.task:
        case "count":
            for number in range(1, 301):
                yield f"{number}\n"
                time.sleep(PAUSE_SECONDS)
        case "remember":
            yield "OK"
        case "recall":
            yield recalled(asked) or "You told me none."
        case "greet":
            yield "Hello, "
            yield "nice to meet you."
        case _:
            yield "I have no tool for that."


def recalled(asked: ModelPrompt) -> str:
    """Return the code word given in the conversation, or in one that was handed over."""
    for text in (asked.user, *reversed(asked.earlier)):
        for todo in reversed(errands(text)):
            if todo.task == "remember":
                return todo.what
    return ""


def _in_shell(todo: Errand) -> Errand:
    """Return the same errand as a command, for agents that only have a shell."""
    path = shlex.quote(todo.what)
    match todo.task:
        case "read":
            return Errand("run", f"cat {path}")
        case "write":
            return Errand("run", f"printf %s {shlex.quote(todo.text)} > {path}")
    return todo


# -- arguments --------------------------------------------------------------------------------


def arguments(schema: Json, todo: Errand) -> Json:
    """Return the arguments for a tool with these parameters: all required ones."""
    properties: Json = schema.get("properties") or {}
    return {
        name: _argument(name, properties.get(name) or {}, todo)
        for name in schema.get("required") or ()
    }


def _argument(name: str, schema: Json, todo: Errand) -> object:
    lower = name.lower()
    if lower in ("command", "cmd"):
        return ["bash", "-lc", todo.what] if schema.get("type") == "array" else todo.what
    if "path" in lower or lower in ("file", "filename"):
        return todo.what
    if todo.text and lower in ("content", "contents", "text", "file_text", "new_text"):
        return todo.text
    return _anything(schema, todo)


def _anything(schema: Json, todo: Errand) -> object:
    """Return some value that a schema allows."""
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "array":
            items = schema.get("items") or {}
            return [_anything(items, Errand(todo.task, step)) for step in ("Knead", "Wait", "Bake")]
        case "object":
            return arguments(schema, todo)
        case "boolean":
            return False
        case "integer" | "number":
            return 1
    return todo.what or "as it was asked for"
