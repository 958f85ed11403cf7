"""Text between two tags in foreign text, which may be made to be slow to match."""

from __future__ import annotations

import re
from collections.abc import Iterator


def enclosed(words: str, tag: re.Pattern[str]) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each opening tag that is closed, with its closing tag: the next one of its name.

    The pattern finds both, with their names as its groups `opens` and `closes`. A single pattern
    for the whole element would search the rest of the text for each unclosed tag: quadratic time.
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
    """Return the text in each closed tag, by name; for repeated names, the last one."""
    return {begin["opens"]: words[begin.end() : end.start()] for begin, end in enclosed(words, tag)}


def without(words: str, tag: re.Pattern[str]) -> str:
    """Return the text without such tags and their content."""
    kept: list[str] = []
    place = 0
    for begin, end in enclosed(words, tag):
        kept.append(words[place : begin.start()])
        place = end.end()
    return "".join([*kept, words[place:]])
