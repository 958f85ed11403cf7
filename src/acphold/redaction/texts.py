"""The texts inside decoded JSON: finding them, and cutting parts out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


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
        found: str = self.holder[self.key]
        return found


class TextCut(NamedTuple):
    """A part to remove from a text, and its replacement.

    If a part continues in another text, only the first cut has a `kind` and a replacement.
    """

    start: int
    end: int
    kind: str = ""
    replacement: str = ""


def slots(root: Any) -> Iterator[TextSlot]:
    """Yield the texts inside a value, always in the same order."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, str):
                    name = key
                    if key == "value":  # `{"name": "PASSWORD", "value": "…"}`: PASSWORD
                        given = value.get("name", value.get("key"))
                        name = given if isinstance(given, str) else key
                    yield TextSlot(value, key, name)
                else:
                    waiting.append(inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                if isinstance(inner, str):
                    before = value[place - 1] if place else ""
                    is_option = isinstance(before, str) and before.startswith("-")
                    yield TextSlot(value, place, before.lstrip("-") if is_option else "")
                else:
                    waiting.append(inner)


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


def apart(cuts: Sequence[TextCut]) -> list[TextCut]:
    """Return cuts in order, with overlapping ones merged."""
    done: list[TextCut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if done and cut.start < done[-1].end:
            last = done[-1]
            done[-1] = last._replace(end=max(last.end, cut.end))
        elif cut.start < cut.end:
            done.append(cut)
    return done


def without(text: str, cuts: Sequence[TextCut]) -> str:
    """Return a text without the parts of cuts that are `apart`."""
    kept, place = [], 0
    for cut in cuts:
        kept += [text[place : cut.start], cut.replacement]
        place = cut.end
    return "".join([*kept, text[place:]])
