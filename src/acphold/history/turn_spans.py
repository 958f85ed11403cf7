"""The entries of each turn of a session.

A turn begins with a prompt, and with its author if that is known; in an agent's own replay, with
the user's words. It ends where the next one begins. Entries before the first turn belong to none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterable, Sequence
from itertools import pairwise

from msgspec import Struct

from acphold.history.entries import AUTHOR, PARAMS, PROMPT, TURN_END, UPDATE, Segment
from acphold.history.raw_update import members, string, update_kind


class TurnSpan(Struct, frozen=True):
    """A turn and its entries, `first` to `last`; turns are numbered from 1.

    `is_open` says that a prompt began it and no entry ends it: it runs, or a crash cut it off.
    """

    number: int
    first: int
    last: int
    is_open: bool = False


async def turn_spans(segments: AsyncIterable[Segment]) -> list[TurnSpan]:
    """Return the turns of a whole session, oldest first."""
    finding = _SpanSearch()
    async for segment in segments:
        finding.add(segment)
    return finding.spans()


def span_at(spans: Sequence[TurnSpan], seq: int) -> TurnSpan | None:
    """Return the turn that entry `seq` belongs to; None before the first one."""
    place = bisect_right(spans, seq, key=lambda span: span.first)
    return spans[place - 1] if place else None


class _SpanSearch:
    def __init__(self) -> None:
        self._starts: list[int] = []
        self._author = -1  # the entry with the author of the prompt behind it
        self._is_open = False
        self._last_seq = 0
        self._speaking: tuple[str | None] | None = None  # the id of the user's message, if in one

    def add(self, segment: Segment) -> None:
        kind = segment.kind
        for seq, raw in enumerate(segment.raw.split(b"\n"), segment.first_seq):
            if kind == AUTHOR:
                self._author = seq
            elif kind == PROMPT:
                self._starts.append(self._author if self._author == seq - 1 else seq)
                self._is_open, self._speaking = True, None
            elif kind == TURN_END:
                self._is_open = False
            elif kind in (UPDATE, PARAMS) and not self._is_open and raw:
                update = raw if kind == UPDATE else members(raw).get("update", b"")
                self._add_replayed(seq, update)
        self._last_seq = segment.last_seq

    def _add_replayed(self, seq: int, raw: bytes) -> None:
        if b'"user_message_chunk"' not in raw or update_kind(raw) != "user_message_chunk":
            self._speaking = None
            return
        speaking = (string(members(raw).get("messageId")),)
        if speaking != self._speaking:
            self._starts.append(seq)
        self._speaking = speaking

    def spans(self) -> list[TurnSpan]:
        starts = [*self._starts, self._last_seq + 1]
        numbered = enumerate(pairwise(starts), 1)
        return [
            TurnSpan(number, first, after - 1, self._is_open and number == len(self._starts))
            for number, (first, after) in numbered
        ]
