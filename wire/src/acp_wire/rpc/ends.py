"""The members at the two ends of a message that is over a limit, or broken."""

from __future__ import annotations

import json
import re

_SPACE = r"[ \t\n\r]*+"
_MARK = re.compile(rf"{_SPACE}([{{,]){_SPACE}")
"""The mark before a member, the first or another one."""
_COLON = re.compile(f"{_SPACE}:{_SPACE}")
_END = re.compile(f"{_SPACE}}}{_SPACE}")

_SCALAR = rb'"(?:[^"\\]|\\.)*"|[-+.\w]+'
"""A JSON value that is neither an object nor an array."""


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text: they are not used, and int() refuses more than 4300 digits.
_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode


def leading_members(head: bytes) -> dict[str, bytes]:
    """Return the top-level members of the object that begins with `head`; the value of a cut one
    is b""."""
    return _members(head)


def leading_params(head: bytes) -> dict[str, bytes]:
    """Return the members of the `params` of a message whose first bytes are `head`."""
    return _members(head, "params")


def _members(head: bytes, inside: str | None = None) -> dict[str, bytes]:
    """Return the members of an object, or those of its member `inside`, which is one.

    A value is b"" if it may be cut: if neither another member follows, nor the end of the text.
    """
    # Bytes that are not UTF-8 are restored on encoding.
    text, at, before = head.decode("utf-8", "surrogateescape"), 0, "{"
    found: dict[str, bytes] = {}
    name, value = "", b""
    try:
        while (mark := _MARK.match(text, at)) and mark[1] == before:
            if before == ",":
                found[name] = value
            if text[mark.end() : mark.end() + 1] != '"':
                break
            name, at = _decode(text, mark.end())
            if (colon := _COLON.match(text, at)) is None:
                raise ValueError("a name without a value")
            at, before = colon.end(), ","
            if name == inside:
                inside, before, found = None, "{", {}
                continue
            found[name] = b""
            _, end = _decode(text, at)
            value, at = text[at:end].encode("utf-8", "surrogateescape"), end
        if before == "," and _END.fullmatch(text, at):
            found[name] = value
    except (ValueError, RecursionError):
        pass  # the line was cut in this member
    return found if inside is None else {}


def trailing_members(tail: bytes) -> dict[str, bytes]:
    """Return the top-level members at the end of an object, back to the first that is no scalar.

    `tail` is the last bytes of a JSON object, and may begin anywhere.
    """
    # The brace that ends the message is the top level's, and a quote inside a string has a
    # backslash before it: so members right before that brace are top-level, too.
    begin = re.compile(rb'[,{]\s*"(\w+)"\s*:')
    scalar = re.compile(rb"\s*(" + _SCALAR + rb")\s*", re.DOTALL)
    found: dict[str, bytes] = {}
    rest = tail.rstrip().removesuffix(b"}")
    while starts := list(begin.finditer(rest)):
        value = scalar.fullmatch(rest, starts[-1].end())
        if value is None:
            break
        found.setdefault(starts[-1][1].decode(), value[1])
        rest = rest[: starts[-1].start()]
    return found
