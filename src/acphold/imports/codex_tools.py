"""Codex's tools: file changes as requested and as applied, and shell commands as it shows them.

A command is shown by its purpose: reading a file, listing, searching, or other.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from acphold.imports.content_blocks import content, diff, hunk_diffs, unified_diffs
from acphold.imports.sources import path_in
from acphold.imports.tools import call_fields
from acphold.imports.values import Object, from_json, number, obj, objects, strings, text

_FILE: Final = re.compile(
    r"^\*\*\* (?:(Add|Update|Delete) File: ([^\r\n]+)|End Patch)\r?\n?", re.MULTILINE
)
_MOVED: Final = re.compile(r"^\*\*\* Move to: ([^\r\n]+)", re.MULTILINE)


def is_patch(script: str) -> bool:
    """Return True if a text contains a patch in Codex's own format."""
    return "*** Begin Patch" in script


def patch_diffs(patch: str, cwd: str) -> list[Object]:
    """Return the diffs in a patch, as far as it has both sides."""
    changes: list[Object] = []
    _, *files = _FILE.split(patch)
    for kind, name, body in zip(files[::3], files[1::3], files[2::3], strict=True):
        if kind:  # else it is behind the end
            moved = _MOVED.search(body)
            path = path_in(cwd, moved[1] if moved else name)
            changes += [diff(path, "", "")] if kind == "Delete" else []
            changes += hunk_diffs(path, body, is_new=kind == "Add")
    return changes


def event_diffs(changes: Object) -> list[Object]:
    """Return the diffs in the `changes` of a `patch_apply_end` event, which are by path."""
    found: list[Object] = []
    for path, change in changes.items():
        kind, whole = text(change, "type"), text(change, "content")
        if kind == "add":
            found.append(diff(path, None, whole))
        elif kind == "delete":
            found.append(diff(path, whole, ""))
        else:
            found += unified_diffs(text(change, "move_path") or path, text(change, "unified_diff"))
    return found


def edit_fields(changes: list[Object]) -> Object:
    """Return the fields of a tool call that makes these changes."""
    paths = list(dict.fromkeys(text(change, "path") for change in changes))
    return {
        "title": f"Edit {', '.join(paths)}" if paths else "Edit",
        "kind": "edit",
        "content": changes,
        "locations": [{"path": path} for path in paths],
    }


# -- shell commands ------------------------------------------------------------------------------

_OPERATORS: Final = frozenset({";", "&&", "||", "|", "&"})
_SPEAKING: Final = frozenset({"echo", "printf", "true", ":", "cd", "set", "export"})
"""Commands that only frame others."""

_SHAPING: Final = frozenset(
    {"head", "tail", "wc", "sort", "uniq", "tr", "cut", "nl", "column", "awk", "sed", "less"}
)
"""Commands that after a pipe only format the first one's output."""

_LISTING: Final = frozenset({"ls", "tree", "eza", "exa", "fd", "find"})
_READING: Final = frozenset({"cat", "bat", "less", "more", "nl", "head", "tail", "sed"})
_SEARCHING: Final = frozenset({"rg", "grep", "egrep", "ag", "ack"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh"})
_DONE_TO_AGENT: Final = {
    "started": "Start",
    "interacted": "Interact with",
    "interrupted": "Interrupt",
    "completed": "Complete",
}
_OUTPUTS: Final = ("exit_code", "stdout", "stderr", "result", "error")
_EXIT: Final = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_OUTPUT: Final = re.compile(r"^Output:\n", re.MULTILINE)

HEAD_CHARACTERS: Final = 1_000
"""The beginning of an output has what Codex says about it; the command may print the same words."""


def script_of(command: list[str]) -> str:
    """Return the script in `bash -lc SCRIPT`; any other command as one would type it."""
    if (
        len(command) == 3
        and os.path.basename(command[0]) in _SHELLS
        and command[1].startswith("-")
        and command[1].endswith("c")
    ):
        return command[2]
    return shlex.join(command)


def purposes(script: str) -> list[Object]:
    """Return the relevant commands of a script, each with `type`, `cmd` and details."""
    try:
        lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        tokens = [*lexer, ";"]
    except ValueError:  # an unclosed quotation mark
        tokens = []
    found: list[Object] = []
    words: list[str] = []
    is_piped = False
    for token in tokens:
        if token not in _OPERATORS:
            words.append(token)
            continue
        is_shaping = is_piped and words and words[0] in _SHAPING and not _files(words)
        if words and words[0] not in _SPEAKING and not is_shaping:
            found.append(_purpose(words))
        words, is_piped = [], token == "|"
    return found or [{"type": "unknown", "cmd": script}]


def _purpose(words: list[str]) -> Object:
    """Return the purpose of one simple command."""
    command, files = shlex.join(words), _files(words)
    is_list = words[:2] == ["git", "ls-files"] or (words[0] == "rg" and "--files" in words)
    if is_list or words[0] in _LISTING:
        files = [word for word in files if word != "ls-files"]
        return {"type": "list_files", "cmd": command, "path": files[0] if files else None}
    if words[:2] == ["git", "grep"] or words[0] in _SEARCHING:
        query, path, *_ = *(files[1:] if words[0] == "git" else files), None, None
        return {"type": "search", "cmd": command, "query": query, "path": path}
    is_whole = len(files) == 1 and (words[0] != "sed" or "-n" in words)
    if words[0] in _READING and is_whole:
        name = os.path.basename(files[0].rstrip("/"))
        return {"type": "read", "cmd": command, "name": name, "path": files[0]}
    return {"type": "unknown", "cmd": command}


def _files(words: list[str]) -> list[str]:
    """Return the arguments except options, the values of `-n` and the like, and a sed script."""
    rest = [word for word in words[1:] if not word.startswith("-")]
    if words[0] in ("head", "tail"):
        rest = [word for word in rest if not word.isdigit()]
    return rest[1:] if words[0] in ("sed", "awk") else rest


def describe(purpose: Object, cwd: str) -> tuple[str, str, str]:
    """Return title, kind and the file read, of a command of known purpose."""
    kind, path = text(purpose, "type"), text(purpose, "path")
    if kind == "read":
        return f"Read {text(purpose, 'name')}", "read", path_in(cwd, path)
    if kind == "list_files":
        return f"List {path_in(cwd, path) or cwd}", "search", ""
    query = text(purpose, "query")
    where = f" in {path}" if path else ""
    return f"Search {query}{where}" if query else f"Search {text(purpose, 'cmd')}", "search", ""


def command_fields(found: list[Object], cwd: str, *, old: bool) -> Object:
    """Return the fields for a shell command: by its purpose, otherwise as typed."""
    unknown = [text(purpose, "cmd") for purpose in found if text(purpose, "type") == "unknown"]
    if unknown:
        title = f"Run {'; '.join(unknown)}" if old else unknown[0]
        return {"title": title, "kind": "execute"}
    descriptions = [describe(purpose, cwd) for purpose in found]
    places = [{"path": place} for _, _, place in descriptions if place]
    fields: Object = {
        "title": ", ".join(title for title, _, _ in descriptions),
        "kind": descriptions[-1][1],
    }
    return fields | ({"locations": places} if places else {})


_CALLS: Final = frozenset(
    {
        "CommandExecution", "DynamicToolCall", "FileChange", "ImageView", "McpToolCall",
        "SubAgentActivity", "WebSearch",
    }
)  # fmt: skip
"""The items on the screen that are calls."""


def item_fields(item: Object) -> Object:
    """Return the fields of a call on the screen, as codex-acp 2 shows it; empty for other items."""
    kind = text(item, "type")
    if kind not in _CALLS:
        return {}
    purposes, cwd = objects(item, "parsed_cmd"), _local(text(item, "cwd"))
    only = purposes[0] if len(purposes) == 1 else {}
    path, query = _local(text(item, "path") or text(only, "path")), text(only, "query")
    server, tool = text(item, "server"), text(item, "tool")
    match kind, text(only, "type"):
        case "CommandExecution", "read":
            path = path_in(cwd, path)
            fields = call_fields(f"Read file '{path}'", "read", only, path)
        case "CommandExecution", "search":
            title = f"Search for '{query}'" if query else "Search"
            fields = call_fields(f"{title} in {path}" if path else title, "search", only)
        case "CommandExecution", "list_files":
            fields = call_fields(f"List files in '{path}'" if path else "List files", "read", only)
        case "CommandExecution", _:
            script = script_of(strings(item, "command"))
            fields = call_fields(script, "execute", {"command": script, "cwd": cwd})
        case "FileChange", _:
            fields = edit_fields(event_diffs(obj(item, "changes")))
        case (("McpToolCall" | "DynamicToolCall"), _):
            asked: Object = {"server": server, "tool": tool, "arguments": item.get("arguments")}
            fields = call_fields(f"mcp.{server}.{tool}" if server else tool, "execute", asked)
        case "WebSearch", _:
            query = text(item, "query")
            asked = {"query": query, "action": item.get("action")}
            fields = call_fields(f"Web search: {query}" if query else "Web search", "search", asked)
        case "ImageView", _:
            fields = call_fields(f"View Image {path}", "read", {"path": path}, path)
        case _:
            done, name = text(item, "kind"), text(item, "agent_path").rpartition("/")[2]
            asked = {"agentPath": item.get("agent_path"), "activityKind": done}
            fields = call_fields(
                f"{_DONE_TO_AGENT.get(done, done)} subagent {name}", "other", asked
            )
    if words := text(item, "aggregated_output"):
        fields["content"] = [fenced(words, language(fields))]
    if output := {name: item[name] for name in _OUTPUTS if item.get(name) not in (None, "")}:
        fields["rawOutput"] = output
    failed = text(item, "status") not in ("", "completed")
    return fields | {"status": "failed" if failed else "completed"}


def _local(uri: str) -> str:
    """Return the path of a file's address; a path as it is."""
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def fenced(words: str, language: str) -> Object:
    """Return a command's output as a call's content."""
    end = "" if words.endswith("\n") else "\n"
    return content(f"```{language}\n{words}{end}```\n")


def language(fields: Object) -> str:
    """Return the language of the fence around a command's output, from the file it read."""
    places = objects(fields, "locations")
    suffix = Path(text(places[0], "path")).suffix if places else ""
    return suffix.removeprefix(".") if suffix else "sh"


def output_of(output: object) -> tuple[str, int | None]:
    """Return a call's output and its exit code, from any of the formats used."""
    if isinstance(output, dict | list):
        parts = objects(output) or objects(output, "content")
        words = "".join(text(part, "text") for part in parts) or text(output, "content")
        return (words, None) if words else (msgspec.json.encode(output).decode(), None)
    inner = from_json(output)
    if isinstance(inner, dict) and "output" in inner:
        return text(inner, "output"), number(inner, "metadata", "exit_code")
    words = output if isinstance(output, str) else ""
    head = _OUTPUT.search(words, 0, HEAD_CHARACTERS)
    code = _EXIT.search(words, 0, head.start() if head else HEAD_CHARACTERS)
    return words[head.end() :] if head else words, int(code[1]) if code else None
