"""The reason why a program failed: its last meaningful line on stderr.

Programs make it hard to find. They draw a frame around an error, point at a place in the line
before, colour their output, and print the version of their runtime below a trace.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""Terminal escape sequences; source: ECMA-48, 5.3 and 5.4."""

_DRAWN = "".join(map(chr, range(0x2500, 0x25A0))) + " \t"
"""Characters of frames; Unicode, blocks Box Drawing and Block Elements."""

_SIDES = ("│", "┃", "║", "┆", "┇", "┊", "┋", "╎", "╏", "▌", "▐", "█")
"""Characters that begin a line in a frame."""

_RUNTIME = re.compile(r"Node\.js v[\d.]+")
"""A line below the trace of an uncaught error."""


def last_words(stderr: str) -> str:
    """Return the last meaningful line, without a frame around it; "" if there is none.

    Text in a frame is returned whole, since a frame breaks its lines.
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
