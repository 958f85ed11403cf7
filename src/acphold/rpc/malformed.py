"""Lines that are no message: the problem of each, and the reply that is owed.

    ==========================================  =======  ===================
    the line                                    code     the reply's id
    ==========================================  =======  ===================
    no JSON, or not in UTF-8                    -32700   as far as it is sure
    too long, or nested too deep                -32600   as far as it is sure
    an array (ACP has no batches), or a scalar  -32600   null
    an id that is none                          -32600   null
    an object that breaks JSON-RPC              -32600   its id
    an answer to nothing that was asked         none
    ==========================================  =======  ===================

An id is sure if it stands beside a `method` in a readable part of the line: an answer's id is of
our making, and sent back it would look like a request's of theirs.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import msgspec

from acphold.errors import INVALID_REQUEST, PARSE_ERROR, InvalidParamsError
from acphold.rpc.events import CutNotification, MalformedReceived
from acphold.rpc.wire_errors import WireError, wire_error

if TYPE_CHECKING:
    from acphold.schema.slow_json import Scan

EXCERPT = 200
"""Bytes of a malformed line that are kept for the log."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs begin a stream or a line with it; a reader may skip it (RFC 8259, 8.1)."""

BEGINNINGS = frozenset(b"%c" % byte for byte in b'["-0123456789tfn')
"""First bytes of JSON that is no object; other text is rejected quickly, for there may be much."""

PART = 256 * 1024
"""Bytes of a line that are decoded at once to check that they are text."""

SCALAR = rb'"(?:[^"\\]|\\.)*"|[-+.\w]+'
"""A JSON value that is neither an object nor an array."""


utf_8_decoder = codecs.getincrementaldecoder("utf-8")


def malformed(
    code: int, problem: str, frame: bytes, id_: bytes = b"", cut: CutNotification | None = None
) -> MalformedReceived:
    """Return the event for a line, with the reply that is owed for it."""
    reply = refusal(id_ or b"null", wire_error(code, problem))
    return MalformedReceived(problem, frame[:EXCERPT], reply, asked=bool(id_), cut=cut)


def invalid(problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    """Return the event for JSON that breaks JSON-RPC."""
    return malformed(INVALID_REQUEST, problem, frame, id_)


def unanswered(frame: bytes) -> MalformedReceived:
    """Return the event for an answer that nothing waits for.

    A reply to a reply would start a loop, or be taken for the answer to a request of theirs.
    """
    return MalformedReceived("a response to no request of ours", frame[:EXCERPT])


def no_object(frame: bytes) -> MalformedReceived:
    """Return the event for a line that does not begin like an object."""
    first = frame.lstrip()[:1]
    if first not in BEGINNINGS:
        return malformed(PARSE_ERROR, "not JSON", frame)
    try:
        msgspec.json.decode(frame, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return malformed(PARSE_ERROR, "not JSON", frame)
    return invalid("a batch; ACP has none" if first == b"[" else "not an object", frame)


def refusal(id_: bytes, error: WireError) -> bytes:
    """Return the line that refuses request `id_`."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (id_, error.raw)


def is_id(raw: bytes) -> bool:
    """Return True if this is a JSON string, an integer or null: a valid id."""
    if raw[:1] != b'"':
        digits = raw.removeprefix(b"-")
        return raw == b"null" or (digits.isdigit() and (digits[:1] != b"0" or digits == b"0"))
    try:
        msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def is_utf8(frame: bytes) -> bool:
    """Return True if the line is text at all."""
    try:
        if len(frame) <= PART:
            frame.decode()
            return True
        # In parts: the text of a long line takes up to four times as much memory as the line.
        decode = utf_8_decoder().decode
        for start in range(0, len(frame), PART):
            decode(frame[start : start + PART])
        decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def members_at_ends(head: bytes, tail: bytes) -> dict[str, bytes]:
    """Return the top-level members at the beginning and at the end of a JSON object.

    `head` and `tail` are its first and last bytes. The value of a cut member is b"".
    """
    return {**trailing_members(tail), **leading_members(head)}


def leading_members(head: bytes) -> dict[str, bytes]:
    """Return the top-level members in `head`, the first bytes of a JSON object."""
    from acphold.schema.slow_json import Scan  # rare, and slow to import

    return _whole_members(Scan(head))


def leading_params(head: bytes) -> dict[str, bytes]:
    """Return the same for the `params` of a message."""
    from acphold.schema.slow_json import Scan

    scan = Scan(head)
    try:
        for _ in scan.elements("{", "}"):
            if scan.name()[0] == "params":
                return _whole_members(scan)
            scan.value()
    except InvalidParamsError:
        pass
    return {}


def _whole_members(scan: Scan) -> dict[str, bytes]:
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
        pass  # the cut went through this member: return those before it
    return found


def trailing_members(tail: bytes) -> dict[str, bytes]:
    """Return the top-level members at the end of an object, back to the first that is no scalar.

    `tail` is the last bytes of a JSON object, and may begin anywhere.
    """
    import re

    # The brace that ends the message is the top level's, and a quote inside a string has a
    # backslash before it: so members right before that brace are top-level, too.
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
