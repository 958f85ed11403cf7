"""Compaction: entries that belong together become one, and the state stays the same.

The chunks of a message become one chunk, a tool call and its updates become one call. A property
test holds it to that: the compacted entries fold to the same state as the original ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from acphold.journal.entries import PARAMS, TERMINAL, TURN_END, UPDATE, Segment
from acphold.journal.raw_update import (
    ROLES,
    UNREADABLE,
    PlainChunk,
    decode_plain_chunk,
    encode_object,
    encode_text,
    may_be_chunk,
    members,
    tool_id,
    update_kind,
)
from acphold.journal.standing import is_snapshot
from acphold.journal.timeline import replace_fields

LINE_BYTES: Final = 60 << 10
"""How long an entry may get by joining, unless a single one came longer.

Clients read lines of 64 KiB at least; the rest is for the frame around the update.
"""

PACKED_BYTES: Final = 64 << 10
"""How many bytes of entries that stayed alone are packed into one segment."""

_CHUNK: Final = b'{"sessionUpdate":"%b",%b"content":{"type":"text","text":%b}}'
_MESSAGE_ID: Final = b'"messageId":%b,'
_AROUND_TEXT: Final = {kind: len(_CHUNK % (kind.encode(), b"", b'""')) for kind in ROLES}
"""Bytes of a chunk of each kind that are not its text, at least."""


class Run:
    """Plain chunks of one message in a row."""

    __slots__ = ("_around", "_kind", "_message_id", "_raw", "_size", "_texts")

    def __init__(self, chunk: PlainChunk, raw: bytes) -> None:
        self._kind = chunk.kind
        self._message_id = chunk.messageId
        self._raw = raw
        self._texts = [chunk.content.text]
        self._size = len(raw)
        self._around = _AROUND_TEXT[chunk.kind]
        if chunk.messageId is not None:
            self._around += len(_MESSAGE_ID) + len(chunk.messageId.encode())

    def take(self, chunk: PlainChunk, raw: bytes) -> bool:
        """Take the next chunk in; False when it is of another message, or too much."""
        if chunk.kind != self._kind or chunk.messageId != self._message_id:
            return False
        # No text gets longer by being read and written again, so this is never too little.
        size = self._size + len(raw) - self._around
        if size > LINE_BYTES:
            return False
        self._size = size
        self._texts.append(chunk.content.text)
        return True

    def joined(self) -> bytes:
        """One chunk for all; a chunk that stayed alone is what it was, byte for byte."""
        if len(self._texts) == 1:
            return self._raw
        message_id = b""
        if self._message_id is not None:
            message_id = _MESSAGE_ID % encode_text(self._message_id)
        return _CHUNK % (self._kind.encode(), message_id, encode_text("".join(self._texts)))


def compact(segments: Sequence[Segment]) -> list[Segment]:
    """Segments over the same numbers without a gap, that fold to the same state.

    Chunks of one message in a row become one; a tool call and what updates it become one where
    the call began. Of updates that say it all anew only the last stays: the others are emptied.
    Everything else stays as it is.
    """
    if not segments:
        return []
    compacting = _Compacting()
    for segment in segments:
        for first_seq, raw in _numbered(segment):
            compacting.add(first_seq, segment.kind, segment.at, raw)
    return list(_packed(compacting.pieces, segments[-1].last_seq))


def snapshots(segments: Iterable[Segment]) -> dict[str, int]:
    """The number of the last update of each kind that says it all anew."""
    entries = (
        entry for segment in segments if segment.kind == UPDATE for entry in segment.entries()
    )
    return {
        kind: entry.seq
        for entry in entries
        if not may_be_chunk(entry.raw) and is_snapshot(kind := update_kind(entry.raw), entry.raw)
    }


def _numbered(segment: Segment) -> Iterable[tuple[int, bytes]]:
    return enumerate(segment.raw.split(b"\n"), segment.first_seq)


class _Piece:
    """What one entry is made of; `last_seq` follows from the piece after it."""

    def __init__(self, first_seq: int, kind: str, at: int, content: bytes | Run | _Tool) -> None:
        self.first_seq = first_seq
        self.kind = kind
        self.at = at
        self.content = content

    def raw(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.joined()


class _Tool:
    """A tool call, or an update of one, and what updated it since."""

    def __init__(self, kind: str, raw: bytes) -> None:
        self._kind = kind
        self._raw = raw
        self._longest = len(raw)
        self._fields: dict[str, bytes] | None = None

    def take(self, kind: str, raw: bytes) -> bool:
        """Take the next update in; False when both do not go into one line."""
        if kind == "tool_call" and self._kind != kind:
            return False
        fields = self._joined() if self._fields is None else {**self._fields}
        replace_fields(fields, kind, members(raw))
        size = sum(len(name) + len(value) + 4 for name, value in fields.items())
        if size > max(LINE_BYTES, self._longest, len(raw)):
            return False
        self._longest = max(self._longest, len(raw))
        self._fields = fields
        return True

    def _joined(self) -> dict[str, bytes]:
        head = members(self._raw)
        fields = {"sessionUpdate": encode_text(self._kind), "toolCallId": head["toolCallId"]}
        replace_fields(fields, self._kind, head)
        return fields

    def joined(self) -> bytes:
        return self._raw if self._fields is None else encode_object(self._fields)


class _Compacting:
    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self._run: Run | None = None
        self._tools: dict[str, _Tool] = {}
        self._snapshots: dict[str, int] = {}

    def add(self, first_seq: int, kind: str, at: int, raw: bytes) -> None:
        content: bytes | Run | _Tool | None = raw
        if kind in (UPDATE, TERMINAL):
            content = self._update(raw)
        elif kind == TURN_END:
            self._tools.clear()  # who has all of a turn gets the next ones whole
        elif kind == PARAMS:
            self._let_go(members(raw).get("update", b""))
        if content is None:
            return
        self._run = content if isinstance(content, Run) else None
        self.pieces.append(_Piece(first_seq, kind, at, content))

    def _update(self, raw: bytes) -> bytes | Run | _Tool | None:
        """What the update adds; None when an earlier piece took it in."""
        if not may_be_chunk(raw):
            return self._other_update(raw)
        try:
            chunk = decode_plain_chunk(raw)
        except UNREADABLE:
            return self._other_update(raw)
        if self._run is not None and self._run.take(chunk, raw):
            return None
        return Run(chunk, raw)

    def _other_update(self, raw: bytes) -> bytes | _Tool | None:
        kind = update_kind(raw)
        if is_snapshot(kind, raw):
            if (earlier := self._snapshots.get(kind)) is not None:
                self.pieces[earlier].content = b""
            self._snapshots[kind] = len(self.pieces)
        if kind not in ("tool_call", "tool_call_update"):
            return raw
        if not _is_whole(raw):
            self._let_go(raw)
            return raw
        return self._tool(kind, raw)

    def _tool(self, kind: str, raw: bytes) -> bytes | _Tool | None:
        if not (tool_call_id := tool_id(raw)):
            return raw
        tool = self._tools.get(tool_call_id)
        if tool is not None and tool.take(kind, raw):
            return None
        self._tools[tool_call_id] = tool = _Tool(kind, raw)
        return tool

    def _let_go(self, raw: bytes) -> None:
        """Something about a call has to stay where it is: what follows may not move before it."""
        self._tools.pop(tool_id(raw), None)


_decode_whole = msgspec.json.Decoder(dict[str, Raw]).decode


def _is_whole(raw: bytes) -> bool:
    """Whether the update can be taken apart and put together again without loss."""
    try:
        _decode_whole(raw)
    except UNREADABLE:
        return False
    return True


def _packed(pieces: Sequence[_Piece], last_seq: int) -> Iterable[Segment]:
    """Each piece as a segment; those that stand for one number each share one, as they came."""
    ends = [piece.first_seq - 1 for piece in pieces[1:]] + [last_seq]
    row: list[bytes] = []
    start = pieces[0]
    size = 0
    for piece, end in zip(pieces, ends, strict=True):
        raw = piece.raw()
        single = piece.first_seq == end
        fits = (piece.kind, piece.at) == (start.kind, start.at) and size + len(raw) <= PACKED_BYTES
        if row and not (single and fits):
            yield _row(start, row)
            row = []
        if not single:
            yield Segment(piece.first_seq, end, piece.kind, piece.at, raw)
            continue
        if not row:
            start, size = piece, 0
        row.append(raw)
        size += len(raw)
    if row:
        yield _row(start, row)


def _row(start: _Piece, raws: Sequence[bytes]) -> Segment:
    last = start.first_seq + len(raws) - 1
    return Segment(start.first_seq, last, start.kind, start.at, b"\n".join(raws))
