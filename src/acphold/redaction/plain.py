"""Text as a reader sees it: without colours and characters without width.

A program that highlights a match writes a colour into the middle of a word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

_UNSEEN: Final = re.compile(
    r"(?:\x1b|\\{1,8}(?:x1[bB]|u001[bB]|033))"
    r"(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\))"
    r"|[\xad\u200b-\u200f\u2060-\u2064\ufeff]"
)


class Plain(NamedTuple):
    """A text as it is seen, and the places of its pieces in the original.

    `pieces` has for each its start here, and its start there.
    """

    text: str
    pieces: Sequence[tuple[int, int]] = ((0, 0),)

    def written(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original for a span of the seen text."""
        if len(self.pieces) == 1 or start >= end:
            return start, end
        return self._place(start), self._place(end - 1) + 1

    def _place(self, seen: int) -> int:
        here, there = self.pieces[bisect_right(self.pieces, (seen, len(self.text) * 9)) - 1]
        return there + seen - here


def plain(text: str) -> Plain:
    """Return the visible part of a text."""
    if _UNSEEN.search(text) is None:
        return Plain(text)
    kept: list[str] = []
    pieces: list[tuple[int, int]] = []
    seen = place = 0
    for hidden in [*(found.span() for found in _UNSEEN.finditer(text)), (len(text), len(text))]:
        if piece := text[place : hidden[0]]:
            pieces.append((seen, place))
            kept.append(piece)
            seen += len(piece)
        place = hidden[1]
    return Plain("".join(kept), pieces or ((0, 0),))
