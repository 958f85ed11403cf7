"""Text of others that Markdown shows as it is."""

from __future__ import annotations

import re

from acp_wire.visible_text import on_one_line


def code_block(text: str, language: str = "") -> str:
    """Return text unchanged, in a fence longer than any in it."""
    runs = re.findall("`{3,}", text) if "```" in text else ()
    longest = max(map(len, runs), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def code(text: str) -> str:
    """Return text on one line as code."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def plain(text: str) -> str:
    """Return text on one line without any Markdown in it."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", on_one_line(text)).replace("\\<", "&lt;")
