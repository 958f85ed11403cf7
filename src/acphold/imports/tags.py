"""What stands between two tags in a text that somebody else wrote, and may have made to be slow."""

from __future__ import annotations

import re
from collections.abc import Iterator


def enclosed(words: str, tag: re.Pattern[str]) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Each opening tag that is closed, and what closes it: the next one of its name.

    The pattern finds both, with their names as its groups `opens` and `closes`. One pattern for all
    from an opening tag on would look for the end of each that has none: the square of the text.
    """
    opening: list[re.Match[str]] = []
    closing: dict[str, list[re.Match[str]]] = {}
    for found in tag.finditer(words):
        if found["opens"]:
            opening.append(found)
        else:
            closing.setdefault(found["closes"], []).append(found)
    for several in closing.values():
        several.reverse()
    end = 0
    for begin in opening:
        ends = closing.get(begin["opens"], [])
        while ends and ends[-1].start() < begin.end():
            ends.pop()
        if ends and begin.start() >= end:
            yield begin, ends[-1]
            end = ends[-1].end()


def inner(words: str, tag: re.Pattern[str]) -> dict[str, str]:
    """What stands in each tag that is closed, by its name; in the last one of a name."""
    return {begin["opens"]: words[begin.end() : end.start()] for begin, end in enclosed(words, tag)}


def without(words: str, tag: re.Pattern[str]) -> str:
    """The text without such tags and what stands in them."""
    kept: list[str] = []
    place = 0
    for begin, end in enclosed(words, tag):
        kept.append(words[place : begin.start()])
        place = end.end()
    return "".join([*kept, words[place:]])
