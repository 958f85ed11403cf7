"""The texts inside decoded JSON, and those that arrive in pieces and are read as one.

An agent sends a message in chunks, which may cut a secret in two. Other updates may come between
two chunks of a message: who keeps the session knows them (`Chunks`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from acp_wire.visible_text import INVISIBLE
from acphold.safety.redaction.names import Strength, strength


class TextSlot(NamedTuple):
    """A place for a text in an object or an array.

    `name` is the text's name there, empty if it has none.
    """

    holder: Any
    key: Any
    name: str = ""

    @property
    def text(self) -> str:
        """The text in this place."""
        return str(self.holder[self.key])


class TextCut(NamedTuple):
    """A part to remove from a text, and its replacement.

    If a part continues in another text, only the first cut has a `kind` and a replacement.
    """

    start: int
    end: int
    kind: str = ""
    replacement: str = ""


def slots(root: Any) -> Iterator[TextSlot]:
    """Yield the texts inside a value, always in the same order.

    One in an array has the array's name, unless an option stands before it; one called `value` has
    the name beside it, else that of the object.
    """
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        value, outer = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                name = key
                if key in ("value", "Value"):  # `{"name": "PASSWORD", "value": "…"}`: PASSWORD
                    beside = map(value.get, ("name", "key", "Name", "Key"))
                    name = next((it for it in beside if isinstance(it, str)), outer or key)
                if isinstance(inner, str) or (
                    type(inner) is int and strength(name) is Strength.PASSWORD
                ):
                    yield TextSlot(value, key, name)
                else:
                    waiting.append((inner, name))
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                if isinstance(inner, str):
                    before = value[place - 1] if place else ""
                    is_option = isinstance(before, str) and before.startswith("-")
                    yield TextSlot(value, place, before.lstrip("-") if is_option else outer)
                else:
                    waiting.append((inner, outer))


def objects(root: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects inside a value, the outer ones first."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def apart(cuts: Iterable[TextCut]) -> list[TextCut]:
    """Return cuts in order, with overlapping ones merged."""
    done: list[TextCut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if done and cut.start < done[-1].end:
            last = done[-1]
            done[-1] = last._replace(end=max(last.end, cut.end))
        elif cut.start < cut.end:
            done.append(cut)
    return done


def without(text: str, cuts: Iterable[TextCut]) -> str:
    """Return a text without the parts of cuts that are `apart`."""
    kept, place = [], 0
    for cut in cuts:
        kept += [text[place : cut.start], cut.replacement]
        place = cut.end
    return "".join([*kept, text[place:]])


PAYLOAD: Final = 1000
"""Characters of a window's title, or of a link, in a sequence for a terminal."""

UNSEEN: Final = re.compile(
    r"(?:\x1b|\\{1,8}(?:x1[bB]|u001[bB]|033))"
    rf"(?:\[[0-?]*[ -/]*[@-~]|\](?P<payload>[^\x07\x1b]{{0,{PAYLOAD}}})(?:\x07|\x1b\\))"
    rf"|(?!\r)[{INVISIBLE}]"
)


class SeenText(NamedTuple):
    """A text as it is seen, and the places of its pieces in the original.

    `pieces` has for each its start here, and its start there.
    """

    text: str
    pieces: Sequence[tuple[int, int]] = ((0, 0),)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original for a span of the seen text."""
        if len(self.pieces) == 1 or start >= end:
            return start, end
        return self._place(start), self._place(end - 1) + 1

    def _place(self, seen: int) -> int:
        here, there = self.pieces[bisect_right(self.pieces, (seen, len(self.text) * 9)) - 1]
        return there + seen - here


def seen_text(text: str) -> SeenText:
    """Return the visible part of a text."""
    if UNSEEN.search(text) is None:
        return SeenText(text)
    kept: list[str] = []
    pieces: list[tuple[int, int]] = []
    seen = place = 0
    for hidden in [*(found.span() for found in UNSEEN.finditer(text)), (len(text), len(text))]:
        if piece := text[place : hidden[0]]:
            pieces.append((seen, place))
            kept.append(piece)
            seen += len(piece)
        place = hidden[1]
    return SeenText("".join(kept), pieces or ((0, 0),))


WINDOW: Final = 64 << 10
"""Characters of a message that are searched at once."""

OVERLAP: Final = 8 << 10
"""Characters shared by consecutive windows: a private key fits into them."""

Find = Callable[[str], list[TextCut]]


class Placed(NamedTuple):
    """Something to remove from text number `slot` of record number `place`."""

    place: int
    slot: int
    cut: TextCut


class Chunk(NamedTuple):
    """A piece of a message, or of what a terminal prints: its speaker, its message, and the ids of
    its holders. With `is_whole`, the message came at once, and no other continues it."""

    role: str
    message: tuple[str, str]
    holders: frozenset[int]
    is_whole: bool = False


class Chunks(Protocol):
    """Assigns records, in order, to the messages they have a piece of."""

    def chunk(self, kind: str, value: Any, /) -> Chunk | None:
        """Return the piece of a message in the next record of this kind, or None."""


class _PlacedText(NamedTuple):
    """Text number `slot` of record number `place`, and its position in the window."""

    place: int
    slot: int
    start: int
    end: int


class Stretch:
    """Pieces of text that are read as one.

    `find` returns the parts to remove from such a text. With `across`, only findings that span two
    messages are reported: a reader may join them.
    """

    def __init__(self, find: Find, *, across: bool = False) -> None:
        self._find = find
        self._across = across
        self._texts: list[str] = []
        self._pieces: list[_PlacedText] = []
        self._breaks: list[int] = []
        self._size = 0
        self._message: tuple[str, str] | None = None

    def add(self, text: str, place: int, slot: int, message: tuple[str, str]) -> Iterator[Placed]:
        """Append this text; yield the findings so far."""
        if message != self._message and self._size:
            self._breaks.append(self._size)
        self._message = message
        for begin in range(0, len(text) or 1, WINDOW):
            part = text[begin : begin + WINDOW]
            self._texts.append(part)
            start, self._size = self._size, self._size + len(part)
            if begin:
                self._pieces[-1] = self._pieces[-1]._replace(end=self._size)
            else:
                self._pieces.append(_PlacedText(place, slot, start, self._size))
            if self._size <= WINDOW:
                continue
            yield from self.findings()
            gone = self._size - OVERLAP
            self._texts = ["".join(self._texts)[gone:]]
            self._size = OVERLAP
            self._pieces = [
                piece._replace(start=piece.start - gone, end=piece.end - gone)
                for piece in self._pieces
                if piece.end > gone
            ]
            self._breaks = [place - gone for place in self._breaks if place > gone]

    def findings(self) -> Iterator[Placed]:
        """Yield the parts to remove from the remaining pieces."""
        text = "".join(self._texts)
        for cut in self._find(text):
            if self._across:
                # It must continue in another message; a plain word there is not part of it.
                last = bisect_left(self._breaks, cut.end) - 1
                if last < 0 or self._breaks[last] <= cut.start:
                    continue
                if _WORD.fullmatch(text, self._breaks[last], cut.end):
                    continue
            rest = cut
            first = bisect_right(self._pieces, cut.start, key=lambda piece: piece.end)
            for piece in islice(self._pieces, first, None):
                if piece.start >= cut.end:
                    break
                start, end = max(cut.start, piece.start), min(cut.end, piece.end)
                inside = rest._replace(start=start - piece.start, end=end - piece.start)
                yield Placed(piece.place, piece.slot, inside)
                rest = TextCut(cut.start, cut.end)


_WORD: Final = re.compile(r"[A-Z]?[a-z]*")
