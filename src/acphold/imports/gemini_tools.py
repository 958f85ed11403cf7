"""The tools of Gemini CLI, and of Qwen Code, which began as a copy of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from acphold.imports.content_blocks import content, diff, image, plan_entry, resource, text_block
from acphold.imports.values import Missed, Object, number, obj, objects, text

KINDS: Final = {
    "agent": "other",
    "edit": "edit",
    "glob": "search",
    "google_web_search": "search",
    "grep_search": "search",
    "invoke_agent": "think",
    "list_directory": "search",
    "read_file": "read",
    "read_many_files": "read",
    "replace": "edit",
    "run_shell_command": "execute",
    "save_memory": "think",
    "search_file_content": "search",
    "web_fetch": "fetch",
    "web_search": "search",
    "write_file": "edit",
}
"""Kinds of the built-in tools; any other is `other`."""

_REFERENCED: Final = re.compile(r"(?:^|\n)--- Content from referenced \w+ ---(?=\n|$)")
_REFERENCED_FILE: Final = re.compile(r"\n\s*Content from @?([^\n]+):\n")
_REFERENCED_END: Final = "\n--- End of content ---"

_FILE_TOOLS: Final = frozenset({"edit", "read_file", "replace", "write_file"})


def places(name: str, given: Object, cwd: str) -> list[Object]:
    """Return the file that a tool works on, as locations."""
    path = text(given, "file_path") or text(given, "absolute_path") or text(given, "path")
    if name not in _FILE_TOOLS or not path:
        return []
    place: Object = {"path": os.path.join(cwd, path)}
    if (line := number(given, "offset")) is not None:
        place["line"] = line
    return [place]


def change(display: object, cwd: str) -> list[Object]:
    """Return the diff in a tool's display of an edit; empty for other displays."""
    path = text(display, "filePath") or text(display, "fileName")
    if not path or not text(display, "fileDiff"):
        return []
    old = text(display, "originalContent")
    return [diff(os.path.join(cwd, path), old or None, text(display, "newContent"))]


def shown(display: object, cwd: str) -> list[Object]:
    """Return a tool's display of its result as the content of its call."""
    if isinstance(display, str):
        return [content(display)] if display else []
    return change(display, cwd)


def answer(response: object) -> str:
    """Return the result as the model got it."""
    return text(response, "output") or text(response, "error")


def plan(todos: list[Object]) -> list[Object]:
    """Return plan entries for a list of todos."""
    return [
        plan_entry(text(todo, "description") or text(todo, "content"), text(todo, "status"))
        for todo in todos
        if text(todo, "status") != "cancelled"
    ]


def typed(parts: object, cwd: str, missed: Missed) -> Iterator[Object]:
    """Yield the content blocks of a person's prompt: a string, or parts.

    The contents of files it names follow the text, in one string or in parts of their own; they are
    told as the contents of these files.
    """
    referenced = ""
    for part in [{"text": parts}] if isinstance(parts, str) else objects(parts):
        if data := obj(part, "inlineData"):
            yield image(text(data, "data"), text(data, "mimeType"))
        elif "text" not in part:
            missed.kind("parts of prompts", next(iter(part), ""), part)
        elif referenced:
            referenced += text(part, "text")
        else:
            words = text(part, "text")
            begun = _REFERENCED.search(words)
            referenced = words[begun.start() :] if begun else ""
            if own := words.removesuffix(referenced):
                yield text_block(own)
    inner, _, own = referenced.partition(_REFERENCED_END)
    names = [*_REFERENCED_FILE.finditer(inner)]
    for name, following in zip_longest(names, names[1:]):
        words = inner[name.end() : following.start() if following else len(inner)]
        uri = name[1] if "://" in name[1] else f"file://{os.path.join(cwd, name[1])}"
        yield resource(uri, words.removesuffix("\n"))
    if not names and (words := _REFERENCED.sub("", inner).strip()):
        yield resource("context:referenced", words)
    if own.strip():
        yield text_block(own.strip())


def parts_text(parts: object) -> str:
    """Return the text of a message: a string, or parts that hold some."""
    if isinstance(parts, str):
        return parts
    return "".join(text(part, "text") for part in objects(parts) if part.get("thought") is not True)
