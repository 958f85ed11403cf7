"""The history of a session as every store keeps it: packed, settled, and read from rows.

A packed row begins with the four magic bytes of a Zstandard frame (RFC 8878, 3.1.1), which no JSON
begins with. Each row is a frame of its own, without a dictionary: a dictionary trained on
conversations would still contain words of deleted ones.

New rows are not packed, so that a live session never waits for it. (In PostgreSQL long ones are,
because sending them takes longer than packing: see `session_rows` there.) Each session has a number
up to which it is packed. Later rows are packed in pieces: rows that are a day old; and all settled
rows, once nobody has continued the session for a day.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from acphold.errors import RewrittenError
from acphold.record.history.compaction import compact, snapshots
from acphold.record.history.entries import PROMPT, TURN_END, Entry, Run, Segment, in_one
from acphold.record.history.fold import EMPTY, Fold, SessionState, Summary, fold
from acphold.record.history.raw_update import CHUNK_STARTS
from acphold.record.history.timeline import Message
from acphold.record.journal import bounds, token_reports
from acphold.record.journal.journal import PageBack

Kept = TypeVar("Kept")
"""The tables, or the records, of a journal."""

LEVEL: Final = 3
"""The level of compression, of 1 to 22; the next levels take two to six times as long for 1 % of
size."""

FRAME: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of a packed row."""

_kept = threading.local()  # two threads must not use one compressor at the same time


class DamagedRowError(ValueError):
    """A packed row differs from what was written."""


def plain(raw: bytes) -> bytes:
    """Return the content of a row, packed or not; raises DamagedRowError."""
    return unpack(raw) if raw.startswith(FRAME) else raw


def pack(raw: bytes) -> bytes:
    """Return the row packed; or unchanged if packing saves less than a tenth."""
    if len(raw) < bounds.WORTH_PACKING_BYTES or raw.startswith(FRAME):
        return raw
    compressor = getattr(_kept, "compressor", None)
    if compressor is None:
        from acphold.record.journal.compression import zstd

        option = zstd.CompressionParameter
        # SQLite has no checksums of its own; here they cost four bytes.
        options: dict[int, int] = {option.compression_level: LEVEL, option.checksum_flag: 1}
        compressor = _kept.compressor = zstd.ZstdCompressor(options=options)
    smaller: bytes = compressor.compress(raw, compressor.FLUSH_FRAME)
    return smaller if len(smaller) * 10 < len(raw) * 9 else raw


def as_kept(segment: Segment, old_before: int) -> Segment:
    """Return a segment as its row stores it: packed if it is older than `old_before` (ms)."""
    if segment.at >= old_before:
        return segment
    return replace(segment, raw=pack(segment.raw))


def unpack(frame: bytes) -> bytes:
    """Return the content of a packed row; raises DamagedRowError."""
    from acphold.record.journal.compression import zstd

    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > bounds.UNPACKED_BYTES:
            raise zstd.ZstdError(f"its header claims {size} bytes")
        decompressor = zstd.ZstdDecompressor()
        raw = decompressor.decompress(frame, size + 1)  # one more byte, to read the frame's end
        if not decompressor.eof or len(raw) != size:
            raise zstd.ZstdError(f"it does not have the {size} bytes that its header claims")
    except zstd.ZstdError as error:
        raise DamagedRowError(f"a packed row cannot be read: {error}") from error
    return raw


class Settled(Struct, frozen=True, array_like=True):
    """The state of a session at `settled_through`.

    `snapshots` has the numbers of the updates that the next update of their kind makes void.
    `ahead` is the summary at `ahead_through`, an entry that is not settled yet: so whoever opens a
    session after a crash need not read a long turn from its beginning.
    """

    summary: Summary = Summary()
    snapshots: dict[str, int] = {}
    ahead_through: int = 0
    ahead: Summary | None = None

    def newest(self, settled: int) -> tuple[Summary, int]:
        """Return the newest summary that is kept, and the entry that it goes up to."""
        if self.ahead is None:
            return self.summary, settled
        return self.ahead, self.ahead_through


class Piece:
    """A run of segments, and the result of settling it.

    `before` is the state before the run. With `stored`, the segments are in rows already. Segments
    from before `old_before` (ms) are packed at once. No entry in `apart` is merged with later ones.

    `gone` are the segments whose rows are removed, `new` those that get a row. `messages` is the
    number of messages added to the count, `summary` the summary of the session at the end of the
    run, `usage` the reports in it. `snapshots` has the numbers of the updates that the next update
    of their kind makes void. With `is_packed`, the whole run is packed.
    """

    def __init__(
        self,
        found: list[Segment],
        before: SessionState,
        *,
        stored: bool,
        old_before: int = 0,
        apart: Collection[int] = (),
    ) -> None:
        compacted = compact(found, apart)
        kept = {*found} & {*compacted} if stored else set()
        self.gone = [segment for segment in found if segment not in kept] if stored else []
        self.new = [segment for segment in compacted if segment not in kept]
        state = fold((entry for segment in compacted for entry in segment.entries()), before)
        self.messages = messages(state) - messages(before)
        self.summary = state.summary()
        self.snapshots = snapshots(compacted)
        # From what was found: compaction makes some reports void.
        self.usage = token_reports.reports(found)
        self.last_seq = found[-1].last_seq
        self.new = [as_kept(segment, old_before) for segment in self.new]
        self.is_packed = all(segment.at < old_before for segment in found)


def messages(state: SessionState) -> int:
    """Count the messages of users and agents, without thoughts."""
    return sum(
        isinstance(item, Message) and item.role in ("user", "agent") for item in state.timeline
    )


def late_context(before: list[Segment]) -> SessionState:
    """The state after the last segments, as far as it matters for a late chunk of a message that is
    already counted."""
    entries = [entry for segment in before for entry in segment.entries()]
    return fold(entries[-bounds.CONTEXT_ENTRIES :])


def going_on(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """Return a state to continue folding from: `summary`, with the conversation of `state`."""
    return replace(state, **{name: getattr(summary, name) for name in Summary.__struct_fields__})


END: Final = (1 << 32) - 1
"""No entry has a higher number."""


class StoredSegments(Protocol):
    """The rows of one session's segments."""

    def read(
        self, after: int, limit_bytes: int, through: int = END, *, chunks: bool = True
    ) -> list[Segment]:
        """Return segments that end above `after` and not above `through`, oldest first.

        Returns about `limit_bytes`, but at least one segment if there is one. With `chunks=False`,
        most segments that hold only text are left out.
        """

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        """Return the last `limit` segments that end by `through`, oldest first; of these kinds, if
        any are named."""


def new_segments(seq: int, runs: Iterable[Run], at: int) -> list[Segment]:
    """The segments of runs that are appended at this time, numbered from `seq` on."""
    made: list[Segment] = []
    for kind, raws in runs:
        made.append(one := in_one(seq, kind, raws, at))
        seq = one.last_seq + 1
    return made


def read_all(rows: StoredSegments, after: int, *, chunks: bool = True) -> Iterator[Segment]:
    """Yield all segments that end above `after`, oldest first, with some in memory at a time."""
    while found := rows.read(after, bounds.READ_BYTES, chunks=chunks):
        yield from found
        after = found[-1].last_seq


def backwards(rows: StoredSegments, through: int, kinds: Sequence[str] = ()) -> Iterator[Segment]:
    """Yield the segments that end by `through`, newest first; of these kinds, if any are named."""
    while found := rows.read_back(through, bounds.BACK_SEGMENTS, kinds):
        yield from reversed(found)
        through = found[0].first_seq - 1


def tail(rows: StoredSegments, after: int, limit_bytes: int) -> list[Segment]:
    """Return the last segments that end above `after`, about `limit_bytes`, oldest first."""
    found: list[Segment] = []
    for segment in backwards(rows, END):
        if segment.last_seq <= after or limit_bytes <= 0:
            break
        found.append(segment)
        limit_bytes -= len(segment.raw)
    return found[::-1]


class EntryReads(Generic[Kept]):
    """The reads of a session's entries that every store makes in the same way.

    `find` returns the rows of a session, and the number up to which it is settled; it raises
    UnknownSessionError.
    """

    def __init__(self, find: Callable[[Kept, str], tuple[StoredSegments, int]]) -> None:
        self._find = find

    def read(
        self,
        kept: Kept,
        session_id: str,
        after: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        tail_bytes: int = 0,
    ) -> list[Segment]:
        """Like `Entries.read`."""
        rows, settled = self._find(kept, session_id)
        if not tail_bytes:
            found = rows.read(after, limit_bytes)
        else:
            # Pages of settled segments; the last one also has the unsettled end: it could change.
            found = rows.read(after, limit_bytes, max(after, settled))
            if not found or found[-1].last_seq >= settled:
                found += rows.read(max(after, settled), tail_bytes)
        if found:
            found[0] = found[0].after(after)
        return found

    def read_back(
        self,
        kept: Kept,
        session_id: str,
        before: int | None,
        limit: int,
        limit_bytes: int = bounds.READ_BYTES,
        *,
        kinds: Sequence[str] = (),
    ) -> PageBack:
        """Like `Entries.read_back`."""
        rows, settled = self._find(kept, session_id)
        is_settled = before is not None and before <= settled
        through = END if before is None else before - 1
        entries: list[Entry] = []
        if before is not None:
            # The page may begin inside a segment, whose entries below `before` are part of it.
            cut = next(iter(rows.read(through, 1)), None)
            if cut is not None and cut.first_seq < before:
                if cut.is_merged:
                    raise RewrittenError(
                        f"session {session_id!r} was compacted since that page was read, or "
                        "`before` is not from a page; start again at the end of the session"
                    )
                if not kinds or cut.kind in kinds:
                    entries = _newest_first(cut.up_to(through))
                    limit_bytes -= len(cut.raw)
                through = cut.first_seq - 1
        for segment in backwards(rows, through, kinds):
            if len(entries) >= limit or (entries and limit_bytes <= 0):
                break
            limit_bytes -= len(segment.raw)
            entries += _newest_first(segment)
            through = segment.first_seq - 1
        else:
            through = 0  # the session begins here
        if len(entries) > limit:
            return PageBack(entries[:limit], entries[limit - 1].seq, is_settled)
        return PageBack(entries, through + 1 if through else None, is_settled)

    def is_exact(self, kept: Kept, session_id: str, after: int) -> bool:
        """Like `Entries.is_exact`.

        This holds if nothing above `after` was merged. It also holds if `after` lies between two
        turns, because only entries of one turn are merged.
        """
        rows, settled = self._find(kept, session_id)
        position = after
        while after < settled:
            found = rows.read(after, bounds.PIECE_BYTES, settled)
            if any(segment.is_merged for segment in found):
                return _is_between_turns(rows, position)
            if not found:
                return True
            after = found[-1].last_seq
        return True


def _newest_first(segment: Segment) -> list[Entry]:
    """The entries of a segment, newest first, without void ones."""
    return [entry for entry in reversed(segment.entries()) if entry.raw]


def summary(rows: StoredSegments, kept: Summary, settled: int) -> Summary:
    """Combine the summary kept at `settled` with the entries after it."""
    folding = Fold(going_on(kept))
    for segment in read_all(rows, settled, chunks=False):
        if all(raw.startswith(CHUNK_STARTS) for raw in segment.raw.split(b"\n")):
            continue  # chunks add to the timeline alone
        for entry in segment.entries():
            folding.add(entry)
    return folding.state().summary()


def context(rows: StoredSegments, kept: Summary, settled: int) -> SessionState:
    """The state at `settled`, with the summary kept there, as far as it matters for what follows: a
    late chunk may belong to a message that is already counted."""
    return going_on(kept, late_context(rows.read_back(settled, bounds.CONTEXT_SEGMENTS)))


def messages_after(rows: StoredSegments, settled: int) -> int:
    """The number of messages after `settled`: of a running turn, or of one that a crash cut off."""
    before = late_context(rows.read_back(settled, bounds.CONTEXT_SEGMENTS))
    entries = (entry for one in rows.read(settled, bounds.COUNTED_BYTES) for entry in one.entries())
    return messages(fold(entries, before)) - messages(before)


def _is_between_turns(rows: StoredSegments, after: int) -> bool:
    """True if nothing above `after` can have been merged with anything up to it."""
    [behind, *_] = rows.read(after, 1)
    if behind.first_seq <= after:
        return False
    if behind.kind == TURN_END:
        return True
    for segment in backwards(rows, after):
        if segment.kind == TURN_END:
            return True
        if segment.kind == PROMPT or b'"toolCallId"' in segment.raw:
            return False
    return True
