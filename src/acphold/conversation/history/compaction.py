"""Compaction: entries that belong together become one, and the state stays the same.

The chunks of a message become one chunk, a tool call and its updates become one call, and whatever
a later update replaces is void. A property test checks this: the compacted entries fold to the same
state as the original ones.
"""

# See docs/decisions.md, 10.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from acphold.conversation.history.attributes import changes_meta, is_snapshot
from acphold.conversation.history.children import LASTING, child_update, with_update
from acphold.conversation.history.display_terminals import (
    INPUT,
    PRINTED_BYTES,
    DisplayTerminals,
    may_tell,
    with_terminals,
)
from acphold.conversation.history.entries import (
    CHILD,
    LONG_BYTES,
    PARAMS,
    PROMPT,
    TERMINAL,
    TURN_END,
    UPDATE,
    Segment,
)
from acphold.conversation.history.raw_update import (
    PlainChunk,
    encode_object,
    encode_text,
    is_for_the_moment,
    may_be_chunk,
    members,
    plain_chunk,
    string,
    tool_id,
    update_kind,
)
from acphold.conversation.history.timeline import ToolDraft

LINE_BYTES: Final = 60 << 10
"""Most bytes of an entry after joining, unless a single one came longer.

Clients read lines of at least 64 KiB; the rest is for the frame around the update.
"""

BESIDE_BYTES: Final = 4 << 10
"""Bytes by which a long entry may get longer: a title and a command stand before its output then,
and are read without the rest of it."""

PACKED_BYTES: Final = 64 << 10
"""Most bytes of single entries that are packed into one segment."""

_CHUNK: Final = b'{"sessionUpdate":"%b",%b"content":{"type":"text","text":%b}}'


class Run:
    """Consecutive plain chunks of one message, or of the summary of one compaction."""

    __slots__ = ("_around", "_first", "_raw", "_size", "_texts")

    def __init__(self, chunk: PlainChunk, raw: bytes) -> None:
        self._first = chunk
        self._raw = raw
        self._texts = [chunk.content.text]
        self._size = len(raw)
        self._around = len(self._chunk(""))

    def take(self, chunk: PlainChunk, raw: bytes) -> bool:
        """Append the next chunk; False if it belongs to something else, or is too long."""
        first = self._first
        if chunk.kind != first.kind or chunk.messageId != first.messageId:
            return False
        if chunk.compactionId != first.compactionId:
            return False
        # No text gets longer by being read and written again, so this never underestimates.
        size = self._size + len(raw) - self._around
        if size > LINE_BYTES:
            return False
        self._size = size
        self._texts.append(chunk.content.text)
        return True

    def join(self) -> bytes:
        """Return one chunk for all; a single chunk is returned byte for byte."""
        return self._raw if len(self._texts) == 1 else self._chunk("".join(self._texts))

    def _chunk(self, text: str) -> bytes:
        ids = b""
        if (message_id := self._first.messageId) is not None:
            ids = b'"messageId":%b,' % encode_text(message_id)
        if (compaction_id := self._first.compactionId) is not None:
            ids += b'"compactionId":%b,' % encode_text(compaction_id)
        return _CHUNK % (self._first.kind.encode(), ids, encode_text(text))


def compact(segments: Sequence[Segment], apart: Collection[int] = ()) -> list[Segment]:
    """Return segments over the same numbers without a gap, that fold to the same state.

    Consecutive chunks of one thing become one; a tool call and its updates become one at the place
    of the call. Updates that a later one makes void are emptied, and so are those that were only
    for the moment. Everything else stays as it is. Each sub-agent's updates are joined on their
    own, however they alternate. Nothing is joined across an entry of `apart`, and a segment ends
    there: a client resumes after it.
    """
    if not segments:
        return []
    compacting = _Compacting()
    for segment in segments:
        for first_seq, raw in enumerate(segment.raw.split(b"\n"), segment.first_seq):
            if apart and first_seq - 1 in apart:
                compacting.part()
            compacting.add(first_seq, segment.kind, segment.at, raw)
    # Each piece becomes a segment; pieces for a single number share one, in their order.
    packed: list[Segment] = []
    pieces = compacting.pieces
    ends = [piece.first_seq - 1 for piece in pieces[1:]] + [segments[-1].last_seq]
    row: list[bytes] = []
    start, size = pieces[0], 0
    for piece, end in zip(pieces, ends, strict=True):
        raw = piece.raw()
        single = piece.first_seq == end
        fits = (piece.kind, piece.at) == (start.kind, start.at) and size + len(raw) <= PACKED_BYTES
        if row and not (single and fits and piece.first_seq - 1 not in apart):
            packed.append(_row(start, row))
            row = []
        if not single:
            packed.append(Segment(piece.first_seq, end, piece.kind, piece.at, raw))
            continue
        if not row:
            start, size = piece, 0
        row.append(raw)
        size += len(raw)
    if row:
        packed.append(_row(start, row))
    return packed


def snapshots(segments: Iterable[Segment]) -> dict[str, int]:
    """Return the number of the last update of each kind that states everything."""
    entries = (
        entry for segment in segments if segment.kind == UPDATE for entry in segment.entries()
    )
    return {
        kind: entry.seq
        for entry in entries
        if not may_be_chunk(entry.raw) and is_snapshot(kind := update_kind(entry.raw), entry.raw)
    }


class _EntryPiece(Struct):
    """The content of one entry; `last_seq` follows from the piece after it."""

    first_seq: int
    kind: str
    at: int
    content: bytes | Run | _JoinedCall
    original: bytes

    def raw(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        joined = self.content.join()
        return with_update(self.original, joined) if self.kind == CHILD else joined


_COLLECTED: Final = ("content", "locations", "rawInput", "rawOutput")
"""Members of a call that may be large; each update that has one replaces all of it."""


class _JoinedCall:
    """A tool call, or an update of one, and its later updates.

    The one `before` was too long to be joined with it; it need not keep what this replaces.
    """

    def __init__(self, kind: str, raw: bytes, before: _JoinedCall | None) -> None:
        self._kind = kind
        self._raw = raw
        self._longest = len(raw)
        self._id = tool_id(raw)
        self._draft: ToolDraft | None = None
        self._is_joined = False
        self._printed = 0
        self._takes_more = True
        self._before = before
        if before is not None:
            self._replace(kind, members(raw))

    def _replace(self, kind: str, parts: dict[str, bytes]) -> None:
        """Drop from the entries before what these members of an update replace."""
        if self._before is None:
            return
        latest = ToolDraft(self._id)
        latest.patch(kind, {name: parts[name] for name in _COLLECTED if name in parts})
        piece: _JoinedCall = self
        while (earlier := piece._before) is not None:
            draft = earlier._draft = earlier._draft or earlier._first_draft()
            kept = {name: it for name, it in draft.fields.items() if name not in latest.fields}
            earlier._is_joined |= len(kept) < len(draft.fields)
            draft.fields = kept
            if kept.keys().isdisjoint(_COLLECTED):
                piece._before = earlier._before
            else:
                piece = earlier

    def take(self, kind: str, raw: bytes) -> bool:
        """Merge the next update; False if the two do not fit into one line."""
        if kind == "tool_call" and self._kind != kind:
            return False
        if self._draft is None:
            self._draft = self._first_draft()
        parts, draft = members(raw), self._draft
        meta = parts.get("_meta", b"")
        has_terminals = may_tell(meta)
        if not (draft.terminals.goes_with(meta if has_terminals else b"{}") and self._takes_more):
            return False
        before, draft.fields = draft.fields, {**draft.fields}
        printed = self._printed + len(meta) if has_terminals else self._printed
        draft.patch(kind, {name: value for name, value in parts.items() if name != "_meta"})
        if not has_terminals and "_meta" in parts:
            draft.patch("tool_call_update", {"_meta": meta})
        size = sum(len(name) + len(value) + 4 for name, value in draft.fields.items())
        size += min(printed, PRINTED_BYTES)
        most = max(LINE_BYTES, self._longest, len(raw))
        if size > (most + BESIDE_BYTES if most > LONG_BYTES else most):
            draft.fields = before
            return False
        self._replace(kind, parts)
        if has_terminals:  # only now: the output of terminals cannot be taken out again
            draft.patch("tool_call_update", {"_meta": meta})
        self._longest = max(self._longest, len(raw))
        self._printed, self._is_joined = printed, True
        self._takes_more = INPUT not in meta
        return True

    def _first_draft(self) -> ToolDraft:
        head = members(self._raw)
        meta = head.get("_meta", b"")
        draft = ToolDraft(self._id)
        draft.patch(self._kind, head)
        if may_tell(meta):
            self._printed = len(meta)
            self._takes_more = INPUT not in meta and DisplayTerminals().goes_with(meta)
        return draft

    def join(self) -> bytes:
        if self._draft is None or not self._is_joined:
            return self._raw
        head = {"sessionUpdate": encode_text(self._kind), "toolCallId": encode_text(self._id)}
        fields = {**head, **self._draft.fields}
        if self._draft.terminals:
            known = self._draft.terminals.terminals()
            fields["_meta"] = with_terminals(fields.get("_meta", b""), known)
        joined = encode_object(fields)
        if len(joined) > LONG_BYTES:  # first what is short, then what is shown
            of_length = sorted(
                fields, key=lambda it: (len(fields[it]) > BESIDE_BYTES, it != "content")
            )
            joined = encode_object({name: fields[name] for name in of_length})
        return joined


class _Statement(Struct):
    """An update that the next one about the same thing may make void."""

    index: int
    parts: dict[str, bytes]

    def covers(self, earlier: _Statement, kind: str) -> bool:
        """Return True if dropping the earlier one loses nothing."""
        if kind == "session_info_update" and changes_meta(earlier.parts.get("_meta", b"")):
            return False  # each adds to those before, and may be too much for that
        meta = members(earlier.parts.get("_meta", b"")).keys()
        if not meta <= members(self.parts.get("_meta", b"")).keys():
            return False
        return earlier.parts.keys() - {"_meta"} <= self.effective(kind)

    def effective(self, kind: str) -> set[str]:
        """Return the members that change something: by the schema, one of a wrong type does not."""
        starts = _STARTS[kind]
        return {
            name for name, value in self.parts.items() if value.startswith(starts.get(name, b""))
        }


_TEXT_OR_NULL: Final = (b'"', b"null")

_STARTS: Final[dict[str, dict[str, bytes | tuple[bytes, ...]]]] = {
    "plan": {"entries": b"["},
    "session_info_update": {"title": _TEXT_OR_NULL, "updatedAt": _TEXT_OR_NULL},
    "compaction_update": {"status": b'"', "summary": (b"[", b"null"), "error": _TEXT_OR_NULL},
}
"""The first bytes of valid values, for members that the schema gives a type."""

ONE_A_TURN: Final = frozenset({"plan", "session_info_update", "compaction_update"})
"""Kinds of which the last update of a turn is enough, if it has all members of those before. Of a
compaction the first one stays, too, for it marks the place."""


class _Compacting:
    """The pieces of a session, with a lane for itself, "", and for each of its sub-agents."""

    def __init__(self) -> None:
        self.pieces: list[_EntryPiece] = []
        self._lanes: dict[str, _Lane] = {"": _Lane(self.pieces)}
        self._present: set[str] = set()

    def part(self) -> None:
        """Join nothing that follows with anything before."""
        for lane in self._lanes.values():
            lane.part()

    def add(self, first_seq: int, kind: str, at: int, raw: bytes) -> None:
        if kind == CHILD:
            entry = child_update(raw)
            child, update = entry.child, entry.update
            lane = self._lanes.setdefault(child, _Lane(self.pieces))
            if child not in self._present and update_kind(update) in LASTING:
                self._present.add(child)
                self._lanes[""].end_run()  # it may appear on the timeline here
            content = lane.add(UPDATE, update)
            if content is update:
                content = raw
        else:
            if kind in (TURN_END, PROMPT):
                for each in self._lanes.values():
                    each.end_turn(has_ended=kind == TURN_END)
            content = self._lanes[""].add(kind, raw)
        if content is not None:
            self.pieces.append(_EntryPiece(first_seq, kind, at, content, raw))


class _Lane:
    """The updates of one session; they are never joined with those of another."""

    def __init__(self, pieces: list[_EntryPiece]) -> None:
        self.pieces = pieces
        self._run: Run | None = None
        self._tools: dict[str, _JoinedCall] = {}
        self._snapshots: dict[str, int] = {}
        self._in_turn: dict[str, _Statement | None] = {}

    def end_run(self) -> None:
        """Do not join the next text with the text before it."""
        self._run = None

    def part(self) -> None:
        self._run = None
        self._tools.clear()

    def end_turn(self, *, has_ended: bool) -> None:
        """Forget the last turn: it has ended, or the next one begins."""
        self._in_turn.clear()
        if has_ended:
            self._tools.clear()  # a client that has a whole turn gets the next calls whole

    def add(self, kind: str, raw: bytes) -> bytes | Run | _JoinedCall | None:
        """Return the content that an entry adds; None if an earlier piece absorbed it."""
        content: bytes | Run | _JoinedCall | None = raw
        if kind in (UPDATE, TERMINAL):
            if (chunk := plain_chunk(raw)) is None:
                content = self._other_update(raw)
            elif self._run is not None and self._run.take(chunk, raw):
                content = None
            else:
                content = Run(chunk, raw)
        elif kind == PARAMS:
            self._close_call(members(raw).get("update", b""))
        if content is not None:
            self._run = content if isinstance(content, Run) else None
        return content

    def _other_update(self, raw: bytes) -> bytes | _JoinedCall | None:
        kind = update_kind(raw)
        if is_snapshot(kind, raw):
            if (earlier := self._snapshots.get(kind)) is not None:
                self._void(earlier)
            self._snapshots[kind] = len(self.pieces)
        elif kind in ONE_A_TURN:
            latest = _Statement(len(self.pieces), members(raw))
            id_ = string(latest.parts.get("compactionId")) or ""
            if kind == "compaction_update" and not id_:
                return raw
            what = f"{kind} {id_}"
            if (before := self._in_turn.get(what)) is not None and latest.covers(before, kind):
                self._void(before.index)
            stays = kind == "compaction_update" and what not in self._in_turn
            self._in_turn[what] = None if stays else latest
        elif kind in ("tool_call", "tool_call_update"):
            if not members(raw):  # it cannot be taken apart without loss
                self._close_call(raw)
            elif tool_call_id := tool_id(raw):
                tool = self._tools.get(tool_call_id)
                if tool is not None and tool.take(kind, raw):
                    return None
                self._tools[tool_call_id] = tool = _JoinedCall(kind, raw, tool)
                return tool
        elif is_for_the_moment(kind):
            return b""
        return raw

    def _void(self, index: int) -> None:
        self.pieces[index].content = b""

    def _close_call(self, raw: bytes) -> None:
        """Stop merging into a call: this update of it stays here, and later ones must not move
        ahead of it."""
        self._tools.pop(tool_id(raw), None)


def _row(start: _EntryPiece, raws: Sequence[bytes]) -> Segment:
    last = start.first_seq + len(raws) - 1
    return Segment(start.first_seq, last, start.kind, start.at, b"\n".join(raws))
