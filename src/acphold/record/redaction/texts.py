"""The texts inside decoded JSON, and those that arrive in pieces and are read as one.

An agent sends a message in chunks, which may cut a secret in two. Other updates may come between
two chunks of a message: see `history.fold` for the definition of a message.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from acphold.record.history.display_terminals import PRINTED
from acphold.record.history.entries import CHILD, ECHO, PARAMS, PROMPT, TERMINAL, UPDATE
from acphold.record.history.raw_update import ROLES
from acphold.record.redaction.names import Strength, strength


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


WINDOW: Final = 64 << 10
"""Characters of a message that are searched at once."""

OVERLAP: Final = 8 << 10
"""Characters shared by consecutive windows: a private key fits into them."""

_UPDATES: Final = frozenset({UPDATE, PARAMS, TERMINAL, ECHO})
_TOOLS: Final = ("tool_call", "tool_call_update")

Find = Callable[[str], list[TextCut]]


class Placed(NamedTuple):
    """Something to remove from text number `slot` of entry number `place`."""

    place: int
    slot: int
    cut: TextCut


class Chunk(NamedTuple):
    """A piece of a message, or of what a terminal prints: its speaker, its message, and the ids of
    its holders."""

    role: str
    message: tuple[str, str]
    holders: frozenset[int]


class Messages:
    """Assigns entries, in order, to the messages they have a piece of."""

    def __init__(self) -> None:
        self._children: dict[str, Messages] = {}
        self._seen: set[int] = set()
        self._unnamed = ""
        self._count = 0

    def chunk(self, kind: str, value: Any) -> Chunk | None:
        """Return the piece of a message in an entry, or None."""
        if kind == PROMPT:
            self._begins("")
            blocks = value if isinstance(value, list) else []
            return Chunk(PROMPT, (PROMPT, str(self._count)), _with_text(blocks))
        if kind == CHILD:
            # Each sub-agent speaks for itself.
            params = value.get("params", value) if isinstance(value, dict) else None
            if not isinstance(params, dict):
                return None
            child = f"child {params.get('childSessionId', params.get('sessionId'))}"
            found = self._children.setdefault(child, Messages()).chunk(UPDATE, params.get("update"))
            if found is None:
                return None
            what, which = found.message
            return Chunk(f"{child} {found.role}", (f"{child} {what}", which), found.holders)
        update = value.get("update") if kind == PARAMS and isinstance(value, dict) else value
        update_type = update.get("sessionUpdate") if isinstance(update, dict) else None
        if kind not in _UPDATES or not isinstance(update, dict) or not isinstance(update_type, str):
            return None
        if update_type in _TOOLS:
            self._comes_up("tool", update.get("toolCallId"))
            # What a terminal has printed, which `history.display_terminals` joins.
            meta = update.get("_meta")
            told = [meta.get(name) for name in PRINTED] if isinstance(meta, dict) else []
            printed = [it for it in told if isinstance(it, dict)]
            printed = [it for it in printed if isinstance(it.get("data"), str)]
            if not printed:
                return None
            which = f"{update.get('toolCallId')} {printed[0].get('terminal_id')}"
            return Chunk("terminal", ("terminal", which), frozenset(map(id, printed)))
        if not update_type.endswith("_chunk"):
            return None
        message_id = update.get("messageId", update.get("compactionId"))
        holders = _with_text([update.get("content")])
        if kind == ECHO or update_type not in ROLES:  # not part of the conversation
            return Chunk(
                f"{kind} {update_type}", (f"{kind} {update_type}", str(message_id)), holders
            )
        if isinstance(message_id, str):
            self._comes_up(update_type, message_id)
            return Chunk(update_type, (update_type, f"id {message_id}"), holders)
        if self._unnamed != update_type:
            self._begins(update_type)
        return Chunk(update_type, (update_type, str(self._count)), holders)

    def _begins(self, unnamed: str) -> None:
        """Begin another message; without an id, it lasts until something else appears."""
        self._unnamed = unnamed
        self._count += 1

    def _comes_up(self, what: str, known_by: Any) -> None:
        """Note something in the conversation, which ends the open message if it is new."""
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


class _PlacedText(NamedTuple):
    """Text number `slot` of entry number `place`, and its position in the window."""

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
        self._texts.append(text)
        self._pieces.append(_PlacedText(place, slot, self._size, self._size + len(text)))
        self._size += len(text)
        if self._size > WINDOW:
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
                rest = TextCut(cut.start, cut.end)


_WORD: Final = re.compile(r"[A-Z]?[a-z]*")
