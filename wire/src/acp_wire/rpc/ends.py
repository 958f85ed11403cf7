"""The members at the two ends of a message that is over a limit, or broken."""

from __future__ import annotations

import re

from acp_wire.errors import InvalidParamsError
from acp_wire.schema.salvage import Scan

_SCALAR = rb'"(?:[^"\\]|\\.)*"|[-+.\w]+'
"""A JSON value that is neither an object nor an array."""


def leading_members(head: bytes) -> dict[str, bytes]:
    """Return the top-level members of the object that begins with `head`; the value of a cut one
    is b""."""
    return _members(Scan(head))


def leading_params(head: bytes) -> dict[str, bytes]:
    """Return the members of the `params` of a message whose first bytes are `head`."""
    scan = Scan(head)
    try:
        for _ in scan.elements("{", "}"):
            if scan.name()[0] == "params":
                return _members(scan)
            scan.value()
    except InvalidParamsError:
        pass
    return {}


def _members(scan: Scan) -> dict[str, bytes]:
    """Return the members of the object where `scan` is; the value of a cut member is b""."""
    found: dict[str, bytes] = {}
    whole: dict[str, bytes] = {}
    try:
        for _ in scan.elements("{", "}"):
            found |= whole
            name, _ = scan.name()
            found[name] = b""
            whole = {name: scan.value()[1]}
        found |= whole
    except InvalidParamsError:
        pass  # the line was cut in this member: return the earlier ones
    return found


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
