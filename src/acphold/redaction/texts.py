"""The texts inside decoded JSON: where they are, which of them are read as one, and changing them.

Agents send a text in pieces, and a secret may be cut in two; so pieces that are shown as one text
are looked through as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from acphold.journal.entries import ECHO, PARAMS, PROMPT, TERMINAL, UPDATE
from acphold.journal.raw_update import ROLES

_UPDATES: Final = frozenset({UPDATE, PARAMS, TERMINAL, ECHO})


class Slot(NamedTuple):
    """A place for a text in an object or an array, in the entry `seq`.

    `name` is what the text is called there, empty where nothing calls it anything.
    """

    holder: Any
    key: Any
    seq: int
    name: str = ""

    @property
    def text(self) -> str:
        """What stands there."""
        found: str = self.holder[self.key]
        return found


class Cut(NamedTuple):
    """Something to take out of a text, and what to put in its place."""

    start: int
    end: int
    kind: str
    replacement: str


class Messages:
    """Finds the texts of one message, which may have come in many chunks.

    A secret that was cut between two chunks is whole only in the message: see `journal.fold` for
    what one message is.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str | int], list[Slot]] = {}
        self._last: tuple[str, str | int] | None = None
        self._breaks = 0

    def claim(self, kind: str, value: Any, seq: int) -> set[int]:
        """Take the texts of an entry that belong to a message; the ids of their holders."""
        if kind == PROMPT:
            blocks = value if isinstance(value, list) else []
            return self._add(("prompt", seq), [block for block in blocks if _is_text(block)], seq)
        if kind not in _UPDATES or not isinstance(value, dict):
            return set()
        update = value.get("update") if kind == PARAMS else value
        told = update.get("sessionUpdate") if isinstance(update, dict) else None
        role = ROLES.get(told) if isinstance(told, str) else None
        if role is None or not isinstance(update, dict):
            self._last = None
            return set()
        content = update.get("content")
        message_id = update.get("messageId")
        if isinstance(message_id, str):
            key: tuple[str, str | int] = (role, message_id)
        else:
            if self._last is None or self._last[0] != role:
                self._breaks += 1
            key = (role, self._breaks)
        self._last = key
        return self._add(key, [content] if _is_text(content) else [], seq)

    def _add(self, key: tuple[str, str | int], holders: list[Any], seq: int) -> set[int]:
        slots = [Slot(holder, "text", seq) for holder in holders]
        self.groups.setdefault(key, []).extend(slots)
        return set(map(id, holders))


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and isinstance(block.get("text"), str)


def slots(root: Any, seq: int, claimed: set[int]) -> Iterator[Slot]:
    """The texts inside a value, but the `text` of what is claimed; names of members included.

    A name is told as a slot of a list that holds it: see `renamed`.
    """
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, str):
                    if not (key == "text" and id(value) in claimed):
                        yield Slot(value, key, seq, _name(value, key))
                else:
                    waiting.append(inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                if isinstance(inner, str):
                    before = value[place - 1] if place else ""
                    is_option = isinstance(before, str) and before.startswith("-")
                    yield Slot(value, place, seq, before.lstrip("-") if is_option else "")
                else:
                    waiting.append(inner)


def _name(holder: dict[str, Any], key: str) -> str:
    """What a member is called: `{"name": "PASSWORD", "value": "…"}` is called PASSWORD."""
    if key == "value":
        given = holder.get("name", holder.get("key"))
        return given if isinstance(given, str) else key
    return key


def objects(root: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a value, the outer ones first."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def apart(cuts: Sequence[Cut]) -> list[Cut]:
    """Cuts that do not overlap, in their order: of those that do, one for all of them."""
    done: list[Cut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if done and cut.start < done[-1].end:
            last = done[-1]
            done[-1] = last._replace(end=max(last.end, cut.end))
        elif cut.start < cut.end:
            done.append(cut)
    return done


def change(group: Sequence[Slot], cuts: Sequence[Cut]) -> None:
    """Take cuts that are `apart` out of texts that are read as one.

    What takes the place of a cut stands where the cut begins.
    """
    place = 0
    for slot in group:
        text = slot.text
        end = place + len(text)
        kept, at = "", place
        for cut in cuts:
            if cut.end <= at or cut.start >= end:
                continue
            kept += text[at - place : max(at, cut.start) - place]
            if cut.start >= place:
                kept += cut.replacement
            at = min(cut.end, end)
        slot.holder[slot.key] = kept + text[at - place :]
        place = end
