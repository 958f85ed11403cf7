"""The texts inside decoded JSON: where they are, and taking something out of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Slot(NamedTuple):
    """A place for a text in an object or an array.

    `name` is what the text is called there, empty where nothing calls it anything.
    """

    holder: Any
    key: Any
    name: str = ""

    @property
    def text(self) -> str:
        """What stands there."""
        found: str = self.holder[self.key]
        return found


class Cut(NamedTuple):
    """Something to take out of a text, and what to put in its place.

    Of what goes on in another text only the beginning has a `kind`, and something in its place.
    """

    start: int
    end: int
    kind: str = ""
    replacement: str = ""


def slots(root: Any) -> Iterator[Slot]:
    """The texts inside a value, always in the same order."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, str):
                    name = key
                    if key == "value":  # `{"name": "PASSWORD", "value": "…"}` is called PASSWORD
                        given = value.get("name", value.get("key"))
                        name = given if isinstance(given, str) else key
                    yield Slot(value, key, name)
                else:
                    waiting.append(inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                if isinstance(inner, str):
                    before = value[place - 1] if place else ""
                    is_option = isinstance(before, str) and before.startswith("-")
                    yield Slot(value, place, before.lstrip("-") if is_option else "")
                else:
                    waiting.append(inner)


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


def without(text: str, cuts: Sequence[Cut]) -> str:
    """A text without what cuts that are `apart` take out of it."""
    kept, place = [], 0
    for cut in cuts:
        kept += [text[place : cut.start], cut.replacement]
        place = cut.end
    return "".join([*kept, text[place:]])
