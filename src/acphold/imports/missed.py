"""What a reader met and could not place, so that it can be said."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode

WORD_CHARACTERS: Final = 40
"""How much of somebody's word for a kind is repeated."""

LEFT: Final = "prompts that were gone back from, see --branches"


class Missed:
    """How often something was met, and how many bytes that is, by a few words for why."""

    def __init__(
        self, counts: Counter[str] | None = None, sizes: Counter[str] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.sizes: Counter[str] = Counter() if sizes is None else sizes

    def add(self, why: str, what: object) -> None:
        """Count this: a decoded value, its raw bytes, or how many bytes it has."""
        self.counts[why] += 1
        if not isinstance(what, int):
            what = len(what if isinstance(what, bytes) else _encode(what))
        self.sizes[why] += what

    def left(self, prompts: int) -> None:
        """Count prompts that a person went back from."""
        if prompts:
            self.counts[LEFT] += prompts

    def kind(self, of: str, kind: str, what: object) -> None:
        """Count this as one of a kind that is not known."""
        self.add(f"{of} of type {kind[:WORD_CHARACTERS]!r}", what)
