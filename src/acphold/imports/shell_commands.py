"""Shell commands as Codex shows them: purpose, title and output.

Purposes are reading a file, listing, searching, or other.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final

import msgspec

from acphold.imports.values import Object, from_json, number, objects, text

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
_EXIT: Final = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_OUTPUT: Final = re.compile(r"^Output:\n", re.MULTILINE)


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


def described(purpose: Object, cwd: str) -> tuple[str, str, str]:
    """Return title, kind and the file read, of a command of known purpose."""
    kind, path = text(purpose, "type"), text(purpose, "path")
    if kind == "read":
        return f"Read {text(purpose, 'name')}", "read", os.path.join(cwd, path)
    if kind == "list_files":
        return f"List {os.path.join(cwd, path) if path else cwd}", "search", ""
    query = text(purpose, "query")
    where = f" in {path}" if path else ""
    return f"Search {query}{where}" if query else f"Search {text(purpose, 'cmd')}", "search", ""


def command_fields(found: list[Object], cwd: str, *, old: bool) -> Object:
    """Return the fields for a shell command: by its purpose, otherwise as typed."""
    unknown = [text(purpose, "cmd") for purpose in found if text(purpose, "type") == "unknown"]
    if unknown:
        title = f"Run {'; '.join(unknown)}" if old else unknown[0]
        return {"title": title, "kind": "execute"}
    told = [described(purpose, cwd) for purpose in found]
    places = [{"path": place} for _, _, place in told if place]
    fields: Object = {"title": ", ".join(title for title, _, _ in told), "kind": told[-1][1]}
    return fields | ({"locations": places} if places else {})


def language(fields: Object) -> str:
    """Return the language of the fence around a command's output, from the file it read."""
    places = objects(fields, "locations")
    suffix = Path(text(places[0], "path")).suffix if places else ""
    return suffix.removeprefix(".") if suffix else "sh"


def printed(output: object) -> tuple[str, int | None]:
    """Return a call's output and its exit code, from any of the formats used."""
    if isinstance(output, dict | list):
        parts = objects(output) or objects(output, "content")
        words = "".join(text(part, "text") for part in parts) or text(output, "content")
        return (words, None) if words else (msgspec.json.encode(output).decode(), None)
    inner = from_json(output)
    if isinstance(inner, dict) and "output" in inner:
        return text(inner, "output"), number(inner, "metadata", "exit_code")
    words = output if isinstance(output, str) else ""
    head = _OUTPUT.search(words)
    code = _EXIT.search(words, 0, head.start() if head else len(words))
    return words[head.end() :] if head else words, int(code[1]) if code else None
