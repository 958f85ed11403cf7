"""The text of a permission request: every argument, and nothing twice."""

from __future__ import annotations

from msgspec.structs import replace
from rich.text import Text

from acphold.history.raw_update import items
from acphold.history.timeline import ToolCall
from acphold.presentation.permissions import (
    argument_lines,
    arguments,
    bare,
    said_once,
    whole_texts,
)
from acphold.presentation.visible_text import on_one_line, visible
from acphold.screen.layout import Passage, call_head, passage


def asked(tool: ToolCall) -> Passage:
    """Return all that is to be allowed: the whole command, the diff, and every argument."""
    shown, given, places = said_once(tool)
    title, below = on_one_line(shown), list[str]()
    if not tool.title.strip():
        title = on_one_line(tool.tool_call_id)
    elif not _fits_a_line(shown):
        title, below = "", visible(shown.strip()).splitlines()
    content = items(tool.fields.get("content", b""))
    produced = b"[%b]" % b",".join(content[place] for place in places)
    fields = {**tool.fields, "content": produced}
    _, *lines = passage(replace(tool, fields=fields), full=True).lines
    below += argument_lines(given)
    return Passage(
        "asks",
        "acphold",
        [call_head(tool, title), *lines, *(Text(f"  {line}") for line in below)],
    )


def in_short(tool: ToolCall) -> str:
    """Return the question if the title is a command, which stands above it; "" otherwise."""
    title, is_run = bare(tool.title), tool.kind == "execute"
    told = {bare(text) for text in whole_texts(tool)}
    if title in told or not _fits_a_line(title) or (is_run and title and not arguments(tool)):
        return "Allow this command?" if is_run else "Allow this?"
    return ""


def _fits_a_line(title: str) -> bool:
    """Return True if a title is the same on one line; a line end may end a comment."""
    return " ".join(title.split()) == title.strip()
