"""Tool call fields from Cursor's editor: `toolFormerData` of a bubble.

`rawArgs` is the model's input, `params` Cursor's version of it, `result` the output: JSON in
strings. A name that ends in `_v2` means the same as the name without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from acphold.imports.content_blocks import content, diff
from acphold.imports.tellings import call_fields
from acphold.imports.values import Object, from_json, looked_up, obj, objects, text

TOOLS: Final = {
    "apply_patch": ("Edit", "edit"),
    "codebase_search": ("Search", "search"),
    "delete_file": ("Delete", "delete"),
    "edit_file": ("Edit", "edit"),
    "edit_notebook": ("Edit", "edit"),
    "fetch": ("Fetch", "fetch"),
    "file_search": ("Find", "search"),
    "glob_file_search": ("Find", "search"),
    "grep": ("Search", "search"),
    "grep_search": ("Search", "search"),
    "list_dir": ("List", "read"),
    "multi_edit": ("Edit", "edit"),
    "read_file": ("Read", "read"),
    "read_lints": ("Read lints of", "read"),
    "reapply": ("Edit", "edit"),
    "ripgrep_raw_search": ("Search", "search"),
    "ripgrep_search": ("Search", "search"),
    "run_terminal_cmd": ("", "execute"),
    "run_terminal_command": ("", "execute"),
    "search_replace": ("Edit", "edit"),
    "semantic_search_full": ("Search", "search"),
    "task": ("Task:", "think"),
    "todo_write": ("Update the plan", "think"),
    "create_plan": ("Plan", "think"),
    "switch_mode": ("Switch to mode", "switch_mode"),
    "web_fetch": ("Fetch", "fetch"),
    "web_search": ("Search the web for", "fetch"),
    "write": ("Write", "edit"),
}
"""A tool's title on screen, and its kind."""

_PATHS: Final = (
    "relativeWorkspacePath", "targetFile", "file_path", "target_file", "path", "directoryPath",
    "targetDirectory", "target_directory", "relative_workspace_path", "target_notebook",
)  # fmt: skip
_SHOWN: Final = (
    "command", "query", "pattern", "globPattern", "glob_pattern", "searchTerm", "search_term",
    "url", "description", "toMode", "target_mode_id", "name",
)  # fmt: skip
"""Argument names of a call's path, and of other texts for its title."""

_PRINTED: Final = ("output", "contents", "content", "results", "markdown", "message", "result")
"""Names of a result's text."""


def short(name: str) -> str:
    """Return the name of a tool without its version."""
    return name.removesuffix("_v2")


def given(call: Object) -> Object:
    """Return the arguments of a call, filled in from Cursor's version of them."""
    asked, made = from_json(text(call, "rawArgs")), from_json(text(call, "params"))
    return {**obj(made), **obj(asked)}


def asked(call: Object, cwd: str) -> Object:
    """Return the fields of the call as it was made."""
    name, values = text(call, "name"), given(call)
    path = _path(values, cwd)
    shown = next((words for key in _SHOWN if (words := text(values, key))), path)
    if name.startswith(("mcp-", "mcp_")):
        (tool, *_) = objects(values, "tools") or [values]
        server = text(tool, "serverName") or text(tool, "server")
        title = f"{server}: {text(tool, 'name')}" if server else name
        values = obj(from_json(text(tool, "parameters"))) or values
        return {"title": title, "kind": "other", "rawInput": values}
    verb, kind = TOOLS.get(short(name), (name.replace("_", " "), "other"))
    title = f"{verb} {path if kind == 'edit' else shown}".strip() or name
    return call_fields(title, kind, values or text(call, "rawArgs"), path)


def answered(call: Object, cwd: str, kept: Callable[[str], str | None]) -> Object:
    """Return the fields of its result; empty if pending. `kept` finds a file's content by id."""
    status, refused = text(call, "status"), text(call, "userDecision") == "rejected"
    if status not in ("completed", "error", "cancelled") and not refused:
        return {}
    result = from_json(text(call, "result"))
    is_done = status == "completed" and not refused
    values = given(call)
    produced: list[Object] = []
    if is_done and TOOLS.get(short(text(call, "name")), ("", ""))[1] == "edit":
        produced = _changes(_path(values, cwd), values, result, kept)
    if not produced and (printed := _printed(result)):
        produced = [content(printed)]
    wrong = from_json(text(call, "error"))
    for key in ("clientVisibleErrorMessage", "modelVisibleErrorMessage", "message"):
        if complaint := text(wrong, key):
            produced.append(content(complaint))
            break
    fields: Object = {"status": "completed" if is_done else "failed"}
    if produced:
        fields["content"] = produced
    if result:
        fields["rawOutput"] = result
    return fields


def _path(values: Object, cwd: str) -> str:
    path = next((found for key in _PATHS if (found := text(values, key))), "")
    return os.path.join(cwd, path) if path and cwd else path


def _printed(result: object) -> str:
    if isinstance(result, str):
        return result
    for key in _PRINTED:
        if words := text(result, key):
            inner = from_json(words)
            parts = [words for part in objects(inner, "content") if (words := text(part, "text"))]
            return "\n".join(parts) or words
    return ""


def _changes(
    path: str, values: Object, result: object, kept: Callable[[str], str | None]
) -> list[Object]:
    """Return the diffs of an edit: from both file versions, its chunks, or its arguments."""
    if not path:
        return []
    if after := text(result, "afterContentId"):
        before = text(result, "beforeContentId")
        old, new = kept(before) if before else None, kept(after)
        if new is not None:
            return [diff(path, old, new)]
    chunks = objects(looked_up(result, "diff"), "chunks") or objects(result, "chunks")
    found: list[Object] = []
    for chunk in chunks:
        lines = text(chunk, "diffString").split("\n")
        old, new = (
            "\n".join(line[2:] for line in lines if not line.startswith(other))
            for other in ("+ ", "- ")
        )
        found.append(diff(path, old, new))
    if found:
        return found
    pairs = objects(values, "edits") or [values]
    for pair in pairs:
        old = text(pair, "old_string") or text(pair, "oldString")
        new = text(pair, "new_string") or text(pair, "newString")
        new = new or text(pair, "contents") or text(pair, "streamingContent")
        if old or new:
            found.append(diff(path, old or None, new))
    return found
