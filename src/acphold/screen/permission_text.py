"""The text of a permission request: every argument, and nothing twice.

Agents say a command in the title of its call, in its content, and in several arguments. No argument
is left out: one that repeats a text says which other one has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.text import Text

from acphold.history.raw_update import items, members, string
from acphold.history.timeline import ToolCall
from acphold.presentation.blocks import unfenced
from acphold.presentation.permissions import Argument, argument_lines, arguments
from acphold.presentation.visible_text import on_one_line, visible
from acphold.screen.layout import Passage, call_head, passage


def asked(tool: ToolCall) -> Passage:
    """Return all that is to be allowed: the whole command, the diff, and every argument."""
    given = arguments(tool)
    whole = _whole_texts(tool) if given else {}
    told = {_bare(text) for text in whole}
    title, below = on_one_line(tool.title) or on_one_line(tool.tool_call_id), list[str]()
    if _bare(tool.title) in told:
        title = ""
    elif not _fits_a_line(tool.title):
        title, below = "", visible(tool.title.strip()).splitlines()
    told.add(_bare(tool.title))
    content = [raw for raw in items(tool.fields.get("content", b"")) if _text_of(raw) not in told]
    fields = {**tool.fields, "content": b"[%b]" % b",".join(content)}
    _, *produced = passage(replace(tool, fields=fields), full=True).lines
    below += argument_lines([_once(each, tool, whole) for each in given])
    lines = [call_head(tool, title), *produced, *(Text(f"  {line}") for line in below)]
    return Passage("asks", "acphold", lines)


def in_short(tool: ToolCall) -> str:
    """Return the question if the title is a command, which stands above it; "" otherwise."""
    title, is_run = _bare(tool.title), tool.kind == "execute"
    told = {_bare(text) for text in _whole_texts(tool)}
    if title in told or not _fits_a_line(title) or (is_run and title and not arguments(tool)):
        return "May it run this?" if is_run else "May it do this?"
    return ""


def _bare(text: str) -> str:
    return text.strip().strip("`").strip()


def _fits_a_line(title: str) -> bool:
    """Return True if a title is the same on one line; a line end may end a comment."""
    return " ".join(title.split()) == title.strip()


def _text_of(raw: bytes) -> str | None:
    """Return the text of an item of a call's content; None if it is something else."""
    text = string(members(members(raw).get("content", b"")).get("text"))
    return None if text is None else _bare(unfenced(text))


def _input(tool: ToolCall) -> Mapping[str, Any]:
    """Return the arguments by name; what has none, under ""."""
    value = tool.input
    return value if isinstance(value, dict) else {"": value}


def _whole_texts(tool: ToolCall) -> dict[str, str]:
    """Return the texts that an argument shows as they are, with its name."""
    found: dict[str, str] = {}
    for name, value in _input(tool).items():
        is_line = isinstance(value, list) and all(isinstance(word, str) for word in value)
        for text in value if is_line else (value,):
            if isinstance(text, str) and text.strip():
                found.setdefault(text, name)
    return found


def _once(shown: Argument, tool: ToolCall, whole: Mapping[str, str]) -> Argument:
    """Return an argument with a reference for each text of several words that another one shows."""

    def without(part: Any) -> Any:
        match part:
            case str() if " " in part and (other := whole.get(part, shown.name)) != shown.name:
                return f"(as in {other})"
            case list():
                return [without(each) for each in part]
            case dict():
                return {name: without(each) for name, each in part.items()}
        return part

    value = _input(tool).get(shown.name)
    try:
        changed = without(value)
        if changed == value:
            return shown
        text = changed if isinstance(changed, str) else msgspec.json.encode(changed).decode()
    except RecursionError:
        return shown
    return Argument(shown.name, text)
