"""Values in foreign JSON, and text between tags: unexpected ones count as missing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Struct, field

from acp_wire.schema.salvage import repair
from acphold.conversation.history.entries import LATEST_MS

Object: TypeAlias = dict[str, object]
"""A decoded JSON object; read its values with the functions of this module."""

_NUMBERS: Final = int, float

UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""Exceptions of decoding bytes that are not JSON, too deep, or not UTF-8."""

_decode: Final = msgspec.json.Decoder(Object).decode


def decode(raw: bytes) -> Object:
    """Return the object in `raw`; raises one of UNREADABLE.

    JavaScript writes half a surrogate pair if it cuts a string in the middle, which msgspec
    refuses; here it becomes U+FFFD. Raw line ends in strings are accepted, too.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        value: object = json.loads(repair(raw), strict=False)  # it accepts NaN as well
        if not isinstance(value, dict):
            raise ValueError("not an object") from None
        return cast("Object", value)


def look_up(value: object, *path: str) -> object:
    """Return the value at `path` inside nested objects; None if a step of it is missing."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text(value: object, *path: str) -> str:
    """Return the string at `path`, or ""."""
    for name in path:  # not by `look_up`, nor in `obj`: a tenth of an import is spent here
        if not isinstance(value, dict):
            return ""
        value = value.get(name)
    return value if isinstance(value, str) else ""


def first_text(value: object, names: Iterable[str]) -> str:
    """Return the first nonempty string under one of these names, or ""."""
    if isinstance(value, dict):
        for name in names:
            if (found := value.get(name)) and isinstance(found, str):
                return found
    return ""


def number(value: object, *path: str) -> int | None:
    """Return the number at `path`, rounded down, or None."""
    found = look_up(value, *path) if path else value
    if isinstance(found, bool) or not isinstance(found, _NUMBERS):
        return None
    return int(found) if -(2**62) < found < 2**62 else None


def obj(value: object, *path: str) -> Object:
    """Return the object at `path`, or an empty one."""
    for name in path:
        if not isinstance(value, dict):
            return {}
        value = value.get(name)
    return value if isinstance(value, dict) else {}


def objects(value: object, *path: str) -> list[Object]:
    """Return the objects in the array at `path`."""
    found = look_up(value, *path) if path else value
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def strings(value: object, *path: str) -> list[str]:
    """Return the strings in the array at `path`."""
    found = look_up(value, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def from_json(source: object) -> object:
    """Return the JSON value inside a string; the string itself if it is not JSON."""
    if not isinstance(source, str):
        return source
    try:
        return cast("object", msgspec.json.decode(source))
    except UNREADABLE:
        return source


def as_bytes(value: object) -> bytes:
    """Return a database's value as bytes: of text in UTF-8."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def milliseconds(value: object) -> int | None:
    """Return a time in ms, from ISO 8601 text or a number of seconds or ms since the epoch.

    None before 1970, and if it cannot be written as a date: see LATEST_MS.
    """
    if isinstance(value, str):
        try:
            at = int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    elif (found := number(value)) is not None:
        # Seconds of today have ten digits, milliseconds thirteen.
        at = found if found > 10**11 else int(cast("float", value) * 1000)
    else:
        return None
    return at if 0 < at < LATEST_MS else None


# -- missed ------------------------------------------------------------------------------

_encode: Final = msgspec.json.Encoder().encode

WORD_CHARACTERS: Final = 40
"""Characters repeated of a foreign word for a kind."""

ABANDONED: Final = "prompts in abandoned branches, see --branches"


class Missed(Struct):
    """Counts and sizes in bytes of what a reader could not interpret, by a short reason.

    `torn` are damaged lines, each with its offset and size, `left` digests of the ids of
    prompts that are not told, as the person went back from them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    torn: list[tuple[int, int]] = field(default_factory=list)
    left: set[str] = field(default_factory=set)

    def add(self, why: str, what: object) -> None:
        """Count a decoded value, raw bytes, or a number of bytes."""
        self.counts[why] += 1
        if not isinstance(what, int):
            what = len(what if isinstance(what, bytes) else _encode(what))
        self.sizes[why] += what

    def kind(self, of: str, kind: str, what: object) -> None:
        """Count something of an unknown kind, or of none."""
        named = f"type {kind[:WORD_CHARACTERS]!r}" if kind else "an unknown form"
        self.add(f"{of} of {named}", what)

    @property
    def is_foreign(self) -> bool:
        """True if there were damaged lines, or records that are not of the program."""
        return bool(self.torn or self.counts["records of an unknown form"])


# -- texts ---------------------------------------------------------------------------------


def digest_of(words: str, size: int = 8) -> str:
    """Return a digest of a text, of so many bytes."""
    return blake2b(words.encode(errors="replace"), digest_size=size).hexdigest()


# -- text between tags ---------------------------------------------------------------------


def squeeze(words: str) -> str:
    """Return a text normalised for comparison."""
    return " ".join(words.split())


def tag_pairs(
    words: str, tag: re.Pattern[str], *, widest: bool = False
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each opening tag that is closed, with its closing tag: the next one of its name; or the
    `widest`, as words in between may have such tags: the last one that belongs to no other.

    The pattern finds both, with their names as its groups `opens` and `closes`. A single pattern
    for the whole element would search the rest of the text for each unclosed tag: quadratic time.
    """
    opening: list[re.Match[str]] = []
    waiting: dict[str, list[re.Match[str]]] = {}
    ends: dict[re.Match[str], re.Match[str]] = {}
    for found in tag.finditer(words):
        its = waiting.setdefault(found["opens"] or found["closes"], [])
        if found["opens"]:
            if its and its[-1] in ends:
                its.clear()
            opening.append(found)
            its.append(found)
        elif widest and its:
            ends[its[-1]] = found
            if len(its) > 1:  # the outermost may have another end
                its.pop()
        else:
            ends.update(dict.fromkeys(its, found))
            its.clear()
    following: dict[str, re.Match[str]] = {}
    for begin in reversed(opening):
        if its_end := ends.get(begin) or following.get(begin["opens"]):
            ends[begin] = following[begin["opens"]] = its_end
    end = 0
    for begin in opening:
        if begin in ends and begin.start() >= end:
            yield begin, ends[begin]
            end = ends[begin].end()


def inner(words: str, tag: re.Pattern[str]) -> dict[str, str]:
    """Return the text in each closed tag, by name; for repeated names, the last one."""
    return {
        begin["opens"]: words[begin.end() : end.start()]
        for begin, end in tag_pairs(words, tag, widest=True)
    }


def without(words: str, tag: re.Pattern[str]) -> str:
    """Return the text without such tags and their content."""
    kept: list[str] = []
    place = 0
    for begin, end in tag_pairs(words, tag):
        kept.append(words[place : begin.start()])
        place = end.end()
    return "".join([*kept, words[place:]])
