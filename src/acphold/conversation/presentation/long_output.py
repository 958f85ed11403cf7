"""The long output of a tool, cut while it is JSON: only what may be shown of it is decoded.

Twenty lines are shown of many megabytes, which would otherwise be in memory three times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from acp_wire import schema
from acp_wire.schema.splice import UNREADABLE
from acphold.conversation.history.beginnings import whole_bytes
from acphold.conversation.history.entries import HEAD_BYTES
from acphold.conversation.history.raw_update import array, string
from acphold.conversation.history.timeline import ToolCall
from acphold.conversation.presentation.blocks import Block, long_diff_block
from acphold.conversation.presentation.scenes import FENCE

END_BYTES: Final = HEAD_BYTES
"""Bytes of JSON that are decoded at each end of a long text."""

PIECE_BYTES: Final = 64 << 10
"""Bytes of the part between them that are looked at together."""


class LongText(Struct, frozen=True):
    """A text: its beginning, and of a long one its end, with the line ends between them.

    If only the beginning was read, `whole` are the bytes of the update that it is in.
    """

    head: str
    line_ends: int = 0
    tail: str = ""
    whole: int = 0


class _Block(Struct):
    type: str = ""
    text: Raw = Raw()


class _Part(Struct):
    type: str = ""
    content: _Block | None = None


_decode_parts: Final = Decoder(list[_Part]).decode
_decode_items: Final = Decoder(list[Raw]).decode


def shown_parts(call: ToolCall) -> Iterator[schema.ToolCallContent | LongText | Block]:
    """Yield the products of a call like `ToolCall.produced`, but long texts as LongText, without
    their fence, and a diff of which only the beginning was read as a block."""
    if whole := whole_bytes(call.fields):
        yield from call.produced[:-1]
        yield from (_begun(part, whole) for part in call.produced[-1:])
        return
    content = call.fields.get("content", b"")
    try:
        is_long = len(content) > 2 * END_BYTES and not call.terminals
        texts = [_long_text(part) for part in _decode_parts(content)] if is_long else []
    except UNREADABLE:
        texts = []
    if not any(texts):
        yield from call.produced
        return
    others = [] if all(texts) else _decode_items(content)
    for place, text in enumerate(texts):
        if text is not None:
            yield text
        else:
            yield from ToolCall("", {"content": array([bytes(others[place])])}).produced


def _begun(part: schema.ToolCallContent, whole: int) -> schema.ToolCallContent | LongText | Block:
    """Return a product of which only the beginning was read."""
    match part:
        case schema.Diff(path=path):
            return long_diff_block(path, whole)
        case schema.Content(content=schema.TextContent(text=text)):
            opening = FENCE.match(text)
            return LongText(text[opening.end() :] if opening else text, whole=whole)
        case _:
            return part


def _long_text(part: _Part) -> LongText | None:
    """Return the text of a part, None if it is no long one."""
    if part.type != "content" or part.content is None or part.content.type != "text":
        return None
    quoted = memoryview(part.content.text)
    text = quoted[1:-1]
    if len(text) <= 2 * END_BYTES or quoted[0] != ord('"'):
        return None
    before = _piece(text, 0, END_BYTES)
    at, line_ends = len(before), 0
    head = string(b'"%b"' % before) or ""
    opening = FENCE.match(head)
    fence = opening[1].encode() if opening else b""
    is_inside = False
    while len(text) - at >= PIECE_BYTES + END_BYTES:
        piece = _piece(text, at, PIECE_BYTES)
        at += len(piece)
        is_inside = is_inside or (fence != b"" and fence in before[-len(fence) :] + piece)
        bare = piece.replace(rb"\\", b"")  # an escaped backslash begins no escape
        line_ends += bare.count(rb"\n")
        line_ends += len(_SPELLED.findall(bare)) if rb"\u000" in bare else 0
        before = piece
    tail = string(b'"%b"' % bytes(text[at:])) or ""
    if opening and not is_inside:
        closed = tail.rstrip()
        inside = closed.removesuffix(opening[1])
        seam = head[opening.end() :], before[-len(fence) :].decode(errors="replace") + inside
        if len(inside) < len(closed) and not any(opening[1] in part for part in seam):
            head, tail = head[opening.end() :], inside.removesuffix("\n")
    return LongText(head, line_ends, tail)


_SPELLED: Final = re.compile(rb"\\u000[aA]")
"""A line end, as hardly anybody writes it."""

_FIRST_HALF: Final = re.compile(rb"\\u[dD][89abAB]")
"""The first escape of a surrogate pair."""


def _piece(text: memoryview, begin: int, size: int) -> bytes:
    """Return so many bytes of a JSON string, or a few less: it ends inside no character and no
    escape, if it begins inside none."""
    end = begin + size
    end = next((at for at in range(end, end - 4, -1) if text[at] & 0xC0 != 0x80), end)
    piece = bytes(text[begin:end])
    last = piece.rfind(b"\\", len(piece) - 6)
    if last >= 0 and _begins_escape(piece, last):
        needs = 6 if piece[last + 1 : last + 2] == b"u" else 2
        piece = piece[:last] if last + needs > len(piece) else piece
    half = len(piece) - 6
    if _FIRST_HALF.match(piece, half) and _begins_escape(piece, half):
        piece = piece[:half]
    return piece


def _begins_escape(piece: bytes, at: int) -> bool:
    """Return True if the backslash there is not escaped itself."""
    return (at - len(piece[:at].rstrip(b"\\"))) % 2 == 0
