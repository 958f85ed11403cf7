"""Shell commands as Codex tells them: what one is for (reading a file, listing, searching, or
other), how it is shown, and what it printed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from acphold.imports.values import Object, from_json, number, objects, text

_OPERATORS: Final = frozenset({";", "&&", "||", "|", "&"})
_SPEAKING: Final = frozenset({"echo", "printf", "true", ":", "cd", "set", "export"})
"""They only frame what the others do."""

_SHAPING: Final = frozenset(
    {"head", "tail", "wc", "sort", "uniq", "tr", "cut", "nl", "column", "awk", "sed", "less"}
)
"""Behind a pipe they only shape what the first command found."""

_LISTING: Final = frozenset({"ls", "tree", "eza", "exa", "fd", "find"})
_READING: Final = frozenset({"cat", "bat", "less", "more", "nl", "head", "tail", "sed"})
_SEARCHING: Final = frozenset({"rg", "grep", "egrep", "ag", "ack"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh"})
_EXIT: Final = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_OUTPUT: Final = re.compile(r"^Output:\n", re.MULTILINE)


def script_of(command: list[str]) -> str:
    """The script inside `bash -lc SCRIPT`; any other command as one would type it."""
    if (
        len(command) == 3
        and os.path.basename(command[0]) in _SHELLS
        and command[1].startswith("-")
        and command[1].endswith("c")
    ):
        return command[2]
    return shlex.join(command)


def purposes(script: str) -> list[Object]:
    """The commands of a script that matter, each with `type`, `cmd` and what belongs to it."""
    found: list[Object] = []
    for piped, words in _commands(script):
        name = words[0]
        if name in _SPEAKING or (piped and name in _SHAPING and not _files(words)):
            continue
        found.append(_purpose(words))
    return found or [{"type": "unknown", "cmd": script}]


def _commands(script: str) -> list[tuple[bool, list[str]]]:
    """The simple commands, each with whether a pipe stands before it."""
    try:
        lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        tokens = list(lexer)
    except ValueError:  # an open quotation mark
        return []
    commands: list[tuple[bool, list[str]]] = []
    words: list[str] = []
    piped = False
    for token in [*tokens, ";"]:
        if token not in _OPERATORS:
            words.append(token)
            continue
        if words:
            commands.append((piped, words))
        words, piped = [], token == "|"
    return commands


def _purpose(words: list[str]) -> Object:
    command = shlex.join(words)
    describe = _PURPOSES.get(words[0], _unknown)
    if words[:2] == ["git", "grep"]:
        return _search(words[1:], command)
    if words[:2] == ["git", "ls-files"] or (words[0] == "rg" and "--files" in words):
        return _listing(words, command)
    return describe(words, command)


def _files(words: list[str]) -> list[str]:
    """The arguments that are no options, nor the values of `-n` and the like, nor a sed script."""
    rest = [word for word in words[1:] if not word.startswith("-")]
    if words[0] in ("head", "tail"):
        rest = [word for word in rest if not word.isdigit()]
    return rest[1:] if words[0] in ("sed", "awk") else rest


def _reading(words: list[str], command: str) -> Object:
    files = _files(words)
    if len(files) != 1 or (words[0] == "sed" and "-n" not in words):
        return _unknown(words, command)
    return {
        "type": "read",
        "cmd": command,
        "name": os.path.basename(files[0].rstrip("/")),
        "path": files[0],
    }


def _listing(words: list[str], command: str) -> Object:
    files = [word for word in _files(words) if word != "ls-files"]
    return {"type": "list_files", "cmd": command, "path": files[0] if files else None}


def _search(words: list[str], command: str) -> Object:
    files = _files(words)
    query = files[0] if files else None
    path = files[1] if len(files) > 1 else None
    return {"type": "search", "cmd": command, "query": query, "path": path}


def _unknown(words: list[str], command: str) -> Object:
    return {"type": "unknown", "cmd": command}


_PURPOSES: Final[dict[str, Callable[[list[str], str], Object]]] = {
    **dict.fromkeys(_READING, _reading),
    **dict.fromkeys(_LISTING, _listing),
    **dict.fromkeys(_SEARCHING, _search),
}


def described(purpose: Object, cwd: str) -> tuple[str, str, str]:
    """Title, kind, and the file that is read, of a command that is not unknown."""
    kind, path = text(purpose, "type"), text(purpose, "path")
    if kind == "read":
        return f"Read {text(purpose, 'name')}", "read", os.path.join(cwd, path)
    if kind == "list_files":
        return f"List {os.path.join(cwd, path) if path else cwd}", "search", ""
    query = text(purpose, "query")
    where = f" in {path}" if path else ""
    return f"Search {query}{where}" if query else f"Search {text(purpose, 'cmd')}", "search", ""


def command_fields(found: list[Object], cwd: str, *, old: bool) -> Object:
    """How a shell command is shown: by what it is for, else as it is."""
    unknown = [text(purpose, "cmd") for purpose in found if text(purpose, "type") == "unknown"]
    if unknown:
        title = f"Run {'; '.join(unknown)}" if old else unknown[0]
        return {"title": title, "kind": "execute"}
    told = [described(purpose, cwd) for purpose in found]
    places = [{"path": place} for _, _, place in told if place]
    fields: Object = {"title": ", ".join(title for title, _, _ in told), "kind": told[-1][1]}
    return fields | ({"locations": places} if places else {})


def language(fields: Object) -> str:
    """For the fence around what a command printed: by the file that it read, if any."""
    places = objects(fields, "locations")
    suffix = Path(text(places[0], "path")).suffix if places else ""
    return suffix.removeprefix(".") if suffix else "sh"


def printed(output: object) -> tuple[str, int | None]:
    """What a call printed, and its exit code, out of the forms that it was written in."""
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
