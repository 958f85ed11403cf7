"""Counts of what a reader could not interpret, for the report."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode

WORD_CHARACTERS: Final = 40
"""Characters repeated of a foreign word for a kind."""

LEFT: Final = "prompts that were gone back from, see --branches"


class Missed:
    """Counts and sizes in bytes of what was missed, by a short reason."""

    def __init__(
        self, counts: Counter[str] | None = None, sizes: Counter[str] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.sizes: Counter[str] = Counter() if sizes is None else sizes

    def add(self, why: str, what: object) -> None:
        """Count a decoded value, raw bytes, or a number of bytes."""
        self.counts[why] += 1
        if not isinstance(what, int):
            what = len(what if isinstance(what, bytes) else _encode(what))
        self.sizes[why] += what

    def left(self, prompts: int) -> None:
        """Count prompts that a person went back from."""
        if prompts:
            self.counts[LEFT] += prompts

    def kind(self, of: str, kind: str, what: object) -> None:
        """Count something of an unknown kind."""
        self.add(f"{of} of type {kind[:WORD_CHARACTERS]!r}", what)
