"""Messages that are too long or too deep: how to tell, and whom they have to be answered to."""

from __future__ import annotations

MAX_DEPTH = 500
"""Levels of nesting in a message. Every reader has such a bound, at which it fails; ours holds for
all of them, so that what came in can be journalled, folded and replayed as well."""

TEXTS = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
"""A JSON string; also one without an end."""

SCALAR = rb'"(?:[^"\\]|\\.)*"|[-+.\w]+'
"""A JSON value that is no object and no array."""


def too_deep(frame: bytes) -> bool:
    """Whether this JSON text is nested deeper than MAX_DEPTH."""
    if len(frame) <= MAX_DEPTH or frame.count(b"{") + frame.count(b"[") <= MAX_DEPTH:
        return False  # nearly every message: the exact look costs more than decoding it
    import re
    from itertools import accumulate

    structure = re.sub(TEXTS, b"", frame, flags=re.DOTALL).translate(None, _NO_BRACKETS)
    levels = accumulate([_STEP[bracket] for bracket in structure])
    return max(levels, default=0) > MAX_DEPTH


_STEP = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEP)


def leading_members(head: bytes) -> dict[str, bytes]:
    """The top-level members that lie whole in `head`, the first bytes of a JSON object.

    Enough to answer a message that is too long with the id it came with.
    """
    import json  # here: a message over the limit is rare, and start-up is not

    decode = json.JSONDecoder().raw_decode
    text = head.decode("utf-8", "replace")
    found: dict[str, bytes] = {}
    place = _skip(text, 0, "{")
    try:
        while place < len(text):
            name, place = decode(text, place)
            found[str(name)] = b""  # its value may be what was too long
            place = _skip(text, place, ":")
            _, end = decode(text, place)
            if end == len(text):
                break  # a number may go on behind the cut
            found[str(name)] = text[place:end].encode()
            place = _skip(text, end, ",")
    except (ValueError, RecursionError):
        pass  # the cut went through this member: those before it are what there is
    return found


def trailing_members(tail: bytes) -> dict[str, bytes]:
    """The top-level members at the end of an object, back to the first that is no scalar.

    `tail` is the last bytes of a JSON object, and may begin anywhere.
    """
    import re

    # The brace that ends the message is the top level's, and a quote inside of a string has a
    # backslash before it: what stands before that brace, member by member, is top-level too.
    begin = re.compile(rb'[,{]\s*"(\w+)"\s*:')
    scalar = re.compile(rb"\s*(" + SCALAR + rb")\s*", re.DOTALL)
    found: dict[str, bytes] = {}
    rest = tail.rstrip().removesuffix(b"}")
    while starts := list(begin.finditer(rest)):
        value = scalar.fullmatch(rest, starts[-1].end())
        if value is None:
            break
        found.setdefault(starts[-1][1].decode(), value[1])
        rest = rest[: starts[-1].start()]
    return found


def _skip(text: str, place: int, mark: str) -> int:
    while place < len(text) and (text[place].isspace() or text[place] == mark):
        place += 1
    return place
