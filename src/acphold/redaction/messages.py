"""Text that comes in pieces and is read as one: which pieces those are, and looking through them.

An agent sends a message in chunks, and a secret may be cut in two by them. Other updates may stand
between two chunks of a message: see `history.fold` for what one message is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from acphold.history.entries import CHILD, ECHO, PARAMS, PROMPT, TERMINAL, UPDATE
from acphold.history.raw_update import ROLES
from acphold.redaction.texts import Cut

WINDOW: Final = 64 << 10
"""Characters of a message that are looked through at once."""

OVERLAP: Final = 8 << 10
"""Characters of a window that the next one has again: a private key fits into them."""

_UPDATES: Final = frozenset({UPDATE, PARAMS, TERMINAL, ECHO})
_TOOLS: Final = ("tool_call", "tool_call_update")

Find = Callable[[str], list[Cut]]


class Placed(NamedTuple):
    """Something to take out of the text number `slot` of the entry number `place`."""

    place: int
    slot: int
    cut: Cut


class Chunk(NamedTuple):
    """A piece of a message: who says it, which message it is of, and the ids of what holds it."""

    role: str
    message: tuple[str, str]
    holders: frozenset[int]


class Messages:
    """Tells of entries, in their order, which message they have a piece of."""

    def __init__(self) -> None:
        self._children: dict[str, Messages] = {}
        self._seen: set[int] = set()
        self._unnamed = ""
        self._count = 0

    def chunk(self, kind: str, value: Any) -> Chunk | None:
        """The piece of a message that an entry has; None for one that has none."""
        if kind == PROMPT:
            self._begins("")
            blocks = value if isinstance(value, list) else []
            return Chunk(PROMPT, (PROMPT, str(self._count)), _with_text(blocks))
        if kind == CHILD:
            return self._of_child(value)
        update = value.get("update") if kind == PARAMS and isinstance(value, dict) else value
        told = update.get("sessionUpdate") if isinstance(update, dict) else None
        if kind not in _UPDATES or not isinstance(update, dict) or not isinstance(told, str):
            return None
        if told in _TOOLS:
            self._comes_up("tool", update.get("toolCallId"))
        if not told.endswith("_chunk"):
            return None
        message_id = update.get("messageId", update.get("compactionId"))
        holders = _with_text([update.get("content")])
        if kind == ECHO or told not in ROLES:  # said beside the conversation
            return Chunk(f"{kind} {told}", (f"{kind} {told}", str(message_id)), holders)
        if isinstance(message_id, str):
            self._comes_up(told, message_id)
            return Chunk(told, (told, f"id {message_id}"), holders)
        if self._unnamed != told:
            self._begins(told)
        return Chunk(told, (told, str(self._count)), holders)

    def _of_child(self, value: Any) -> Chunk | None:
        """The same of a sub-agent's entry: each of them speaks for itself."""
        told = value.get("params", value) if isinstance(value, dict) else None
        if not isinstance(told, dict):
            return None
        child = f"child {told.get('childSessionId', told.get('sessionId'))}"
        found = self._children.setdefault(child, Messages()).chunk(UPDATE, told.get("update"))
        if found is None:
            return None
        what, which = found.message
        return Chunk(f"{child} {found.role}", (f"{child} {what}", which), found.holders)

    def _begins(self, unnamed: str) -> None:
        """Another message begins; if it has no id, it goes on until something else comes up."""
        self._unnamed = unnamed
        self._count += 1

    def _comes_up(self, what: str, known_by: Any) -> None:
        """This stands in the conversation; where it first comes up, if it was not there before."""
        key = hash((what, str(known_by)))
        if key not in self._seen:
            self._seen.add(key)
            self._unnamed = ""


def _with_text(blocks: list[Any]) -> frozenset[int]:
    return frozenset(
        id(block)
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    )


class _Piece(NamedTuple):
    """The text number `slot` of the entry number `place`, and where it is in the window."""

    place: int
    slot: int
    start: int
    end: int


class Stretch:
    """Pieces of text that are read as one.

    `find` tells what is to be taken out of such a text. With `across`, only what goes on from one
    message to the next is told: a reader may put together what stands apart.
    """

    def __init__(self, find: Find, *, across: bool = False) -> None:
        self._find = find
        self._across = across
        self._texts: list[str] = []
        self._pieces: list[_Piece] = []
        self._breaks: list[int] = []
        self._size = 0
        self._message: tuple[str, str] | None = None

    def add(self, text: str, place: int, slot: int, message: tuple[str, str]) -> Iterator[Placed]:
        """Go on with this text; tells what was found meanwhile."""
        if message != self._message and self._size:
            self._breaks.append(self._size)
        self._message = message
        self._texts.append(text)
        self._pieces.append(_Piece(place, slot, self._size, self._size + len(text)))
        self._size += len(text)
        if self._size > WINDOW:
            yield from self.found()
            gone = self._size - OVERLAP
            self._texts = ["".join(self._texts)[gone:]]
            self._size = OVERLAP
            self._pieces = [
                piece._replace(start=piece.start - gone, end=piece.end - gone)
                for piece in self._pieces
                if piece.end > gone
            ]
            self._breaks = [place - gone for place in self._breaks if place > gone]

    def found(self) -> Iterator[Placed]:
        """What is to be taken out of the pieces that are still here."""
        text = "".join(self._texts)
        for cut in self._find(text):
            if self._across:
                # It must go on in another message; a plain word there is no part of it.
                crossed = [place for place in self._breaks if cut.start < place < cut.end]
                if not crossed or _WORD.fullmatch(text, crossed[-1], cut.end):
                    continue
            rest = cut
            first = bisect_right(self._pieces, cut.start, key=lambda piece: piece.end)
            for piece in islice(self._pieces, first, None):
                if piece.start >= cut.end:
                    break
                start, end = max(cut.start, piece.start), min(cut.end, piece.end)
                inside = rest._replace(start=start - piece.start, end=end - piece.start)
                yield Placed(piece.place, piece.slot, inside)
                rest = Cut(cut.start, cut.end)


_WORD: Final = re.compile(r"[A-Z]?[a-z]*")
