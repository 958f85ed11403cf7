"""What a program that has failed said last on stderr: the line that says why.

Programs make it hard to find. They draw a frame around an error, point at a place in the line
before, colour what they print, and put the version of their runtime below a trace.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""Sequences for a terminal; source: ECMA-48, 5.3 and 5.4."""

_DRAWN = "".join(map(chr, range(0x2500, 0x25A0))) + " \t"
"""What frames are drawn with; Unicode, blocks Box Drawing and Block Elements."""

_SIDES = ("│", "┃", "║", "┆", "┇", "┊", "┋", "╎", "╏", "▌", "▐", "█")
"""With what a line in a frame begins."""

_RUNTIME = re.compile(r"Node\.js v[\d.]+")
"""Below the trace of an error that was not caught."""


def last_words(stderr: str) -> str:
    """The last line that says something, without what is drawn around it; "" for none.

    Of words in a frame it is all that stands there, for a frame breaks lines where it ends.
    """
    lines = [_ESCAPES.sub("", line).strip() for line in stderr.splitlines()]
    said = [line for line in lines if any(map(str.isalnum, line))]
    if said and _RUNTIME.fullmatch(said[-1]):
        del said[-1]
        said = [line for line in said if "Error" in line and not line.startswith("at ")] or said
    if not said:
        return ""
    first = len(said) - 1
    while first and said[first].startswith(_SIDES) and said[first - 1].startswith(_SIDES):
        first -= 1
    return " ".join(line.strip(_DRAWN) for line in said[first:])
