"""A program's output, with its colours and no other control sequences.

A colour may equal the terminal's background, which cannot be known for sure, and hide the words. So
backgrounds, concealed, dim or blinking text, and black and white are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.ansi import AnsiDecoder
from rich.text import Text

from acphold.presentation.visible_text import visible

SGR = re.compile(r"\x1b\[([0-9;:]*)m")
"""Select Graphic Rendition (ECMA-48, 8.3.117)."""

KEPT = {
    *("", "0", "1", "3", "4", "9", "22", "23", "24", "29", "39"),
    *(str(code) for code in (*range(31, 37), *range(90, 97))),
}
INSTEAD = {"30": "90", "37": "39", "97": "39"}
"""Replacements for black and white: grey, and the default colour."""

EXTREME = {*map(str, (0, 7, 15, 16, 231, *range(232, 238), *range(250, 256)))}
"""The near-black and near-white ones of the 256 colours."""


def coloured(text: str) -> list[Text]:
    """Return the lines, neutralised except for their colours."""
    if "\x1b[" not in text:
        return [Text(line) for line in visible(text).splitlines()]
    pieces = SGR.split(text)
    shown = [
        f"\x1b[{';'.join(_harmless(piece))}m" if place % 2 else visible(piece)
        for place, piece in enumerate(pieces)
    ]
    decoder = AnsiDecoder()
    return [decoder.decode_line(line) for line in "".join(shown).splitlines()]


def _harmless(codes: str) -> Iterator[str]:
    """Yield the codes of one sequence that colour the text and hide nothing."""
    left = iter(codes.replace(":", ";").split(";"))
    for code in left:
        if code in ("38", "48"):
            form = next(left, "")
            colour = [next(left, "") for _ in range({"5": 1, "2": 3}.get(form, 0))]
            levels = [int(level) for level in colour if level.isdecimal()]
            hides = colour[0] in EXTREME if form == "5" else not 60 < sum(levels) / 3 < 190
            if code == "38" and colour and not hides and len(levels) == len(colour):
                yield ";".join([code, form, *colour])
        elif code in KEPT or code in INSTEAD:
            yield INSTEAD.get(code, code)
