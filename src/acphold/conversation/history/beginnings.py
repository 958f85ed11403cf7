"""The beginning of a long update of a tool call, as an update: of megabytes a page is shown.

It is cut while it is JSON, in a text that the call has produced, and closed again there; or in a
member that few look at, which is left out. A mark says that its text was cut: see WHOLE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from acp_wire.schema.splice import UNREADABLE, json_value
from acphold.conversation.history.entries import HEAD_BYTES
from acphold.conversation.history.raw_update import members, with_meta

LEAST_BYTES: Final = HEAD_BYTES // 2
"""Fewest bytes of content that are left: an agent that says itself that a text was cut, to have it
shown folded, has to send so many."""

WHOLE: Final = "acphold/whole"
"""The `_meta` key of an update whose last text was cut: `[bytes of the whole update, bytes of its
content that is left]`."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[{}\[\]:,]', re.DOTALL)

TOKENS: Final = 10_000
"""Strings and signs of JSON that are looked at: with more, it is no long text that comes first."""

_NEEDED: Final = {b"sessionUpdate", b"toolCallId", b"title", b"kind", b"status"}
"""Members that are shown: one that has not come yet may follow."""

_OUTPUT: Final = [b"{content", b"[", b"{content", b"{text"]
_DIFFS: Final = ([b"{content", b"[", b"{oldText"], [b"{content", b"[", b"{newText"])


class _Named(Struct):
    type: str


class _Produced(Struct):
    type: str
    path: str | None = None
    content: _Named | None = None


class _Call(Struct):
    content: list[_Produced]


_decode: Final = Decoder(_Call).decode
_decode_any: Final = Decoder(dict[str, Raw]).decode


def beginning(head: bytes, whole: int, *, least: int = LEAST_BYTES) -> bytes | None:
    """Return the update of `whole` bytes that begins with `head`, without its end, with at least so
    many bytes of a content that is cut; None if more of it is needed."""
    path: list[bytes] = []  # the open objects, each with the name of its last member, and arrays
    opened: list[int] = []
    names: set[bytes] = set()
    member_at = 0
    text_at = None
    before = b""
    for count, match in enumerate(_TOKEN.finditer(head)):
        token = match[0]
        sign = token[:1]
        if sign == b'"':
            is_name = before in (b"{", b",") and path[-1:] != [b"["]
            if not match[1]:
                text_at = None if is_name else match.start() + 1
                break
            if is_name and path:
                path[-1] = b"{" + token[1:-1]
                if len(path) == 1:
                    names.add(token[1:-1])
                    member_at = match.start()
        elif sign in b"{[":
            path.append(sign)
            opened.append(match.start())
        elif sign in b"}]" and path:
            path.pop()
            opened.pop()
        before = sign
        if count >= TOKENS:
            return None
    if not path or path[0][:1] != b"{":
        return None
    last = path[0][1:]
    names.discard(last)
    if not names >= _NEEDED or b'"terminalId"' in head:  # its text may follow, in the `_meta`
        return None
    if last != b"content":
        made = head[:member_at].rstrip(b" ,") + b"}"
        return made if b"content" in names and _is_object(made) else None
    if text_at is None or (path != _OUTPUT and path not in _DIFFS):
        return None
    has_new = b'"newText"' in head[opened[-1] : text_at]
    new = b"" if path == _OUTPUT or has_new else b',"newText":""'
    closing = b"".join(b"}" if each[:1] == b"{" else b"]" for each in reversed(path))
    made = b'%b%b"%b%b' % (head[:text_at], _cut(head[text_at:]), new, closing)
    try:
        produced = _decode(made).content[-1]
    except UNREADABLE:
        return None
    if path == _OUTPUT:
        is_cut = produced.type == "content" and produced.content == _Named("text")
    else:
        is_cut = produced.type == "diff" and produced.path is not None
    left = len(members(made)["content"])
    is_cut &= left >= least
    return with_meta(made, WHOLE, b"[%d,%d]" % (whole, left)) if is_cut else None


def whole_bytes(fields: Mapping[str, bytes], *, least: int = LEAST_BYTES) -> int:
    """Return the bytes of the update with the content of a tool call, if its last text was cut;
    else 0."""
    mark = members(fields.get("_meta", b"")).get(WHOLE)
    whole, left = json_value(mark, tuple[int, int]) or (0, 0)
    return whole if least <= left == len(fields.get("content", b"")) else 0


def _is_object(raw: bytes) -> bool:
    try:
        _decode_any(raw)
    except UNREADABLE:
        return False
    return True


def _cut(text: bytes) -> bytes:
    """Return a text in JSON that ends anywhere, without the last character or escape."""
    for _ in range(4):
        last = text[-1:]
        if last < b"\x80":
            break
        text = text[:-1]
        if last >= b"\xc0":
            break
    for _ in range(2):  # a pair of surrogates is two escapes
        if (escape := text.rfind(b"\\", max(0, len(text) - 6))) >= 0:
            text = text[:escape].rstrip(b"\\")
    return text
