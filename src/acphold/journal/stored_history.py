"""The history of a session as every store keeps it: packed, and settled.

A packed row begins with the four magic bytes of a Zstandard frame (RFC 8878, 3.1.1), which no JSON
begins with. Each row is a frame of its own, without a dictionary: a dictionary trained on
conversations would still contain words of deleted ones.

New rows are not packed, so that a live session never waits for it. (In PostgreSQL long ones are,
because sending them takes longer than packing: see `session_rows` there.) Very long ones are packed
when they are settled: of a packed row, a store reads the beginning alone. Each session has a number
up to which it is packed. Later rows are packed in pieces: rows that are a day old; and all settled
rows, once nobody has continued the session for a day.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from io import BytesIO
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.compaction import compact, snapshots
from acphold.conversation.history.entries import (
    HEAD_BYTES,
    LONG_BYTES,
    PROMPT,
    TURN_END,
    Run,
    Segment,
    in_one,
)
from acphold.conversation.history.fold import EMPTY, SessionState, Summary, fold
from acphold.conversation.history.timeline import Message, TurnOutcome, turn_end
from acphold.journal import bounds, token_reports

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
        from acphold.journal.compression import zstd

        option = zstd.CompressionParameter
        # SQLite has no checksums of its own; here they cost four bytes.
        options: dict[int, int] = {option.compression_level: LEVEL, option.checksum_flag: 1}
        compressor = _kept.compressor = zstd.ZstdCompressor(options=options)
    smaller: bytes = compressor.compress(raw, compressor.FLUSH_FRAME)
    return smaller if len(smaller) * 10 < len(raw) * 9 else raw


def unpack(frame: bytes) -> bytes:
    """Return the content of a packed row; raises DamagedRowError."""
    from acphold.journal.compression import zstd

    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > bounds.UNPACKED_BYTES:
            raise zstd.ZstdError(f"its header claims {size} bytes")
        decompressor = zstd.ZstdDecompressor()
        made, piece = BytesIO(), frame  # in one go a long one would be in memory twice
        while not decompressor.eof and made.tell() <= size:
            # One more byte, to read the frame's end.
            raw = decompressor.decompress(piece, min(size + 1 - made.tell(), HEAD_BYTES))
            if not raw and not decompressor.eof:
                break
            made.write(raw)
            piece = b""
        raw = made.getvalue()
        if not decompressor.eof or len(raw) != size:
            raise zstd.ZstdError(f"it does not have the {size} bytes that its header claims")
    except zstd.ZstdError as error:
        raise DamagedRowError(f"a packed row cannot be read: {error}") from error
    return raw


def begun(stored: bytes, length: int) -> tuple[bytes, int]:
    """Return the beginning of the content of a row, and the bytes of all of it; `stored` are the
    row's first bytes, of `length`. Raises DamagedRowError."""
    if not stored.startswith(FRAME):
        return stored[:HEAD_BYTES], length
    from acphold.journal.compression import zstd

    try:
        size = zstd.get_frame_info(stored).decompressed_size
        return zstd.ZstdDecompressor().decompress(stored, HEAD_BYTES), size or 0
    except zstd.ZstdError as error:
        raise DamagedRowError(f"a packed row cannot be read: {error}") from error


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
    from before `old_before` (ms), and long ones, are packed at once. No entry in `apart` is merged
    with later ones.

    `gone` are the segments whose rows are removed, `new` those that get a row. `messages` is the
    number of messages added to the count, `summary` the summary of the session at the end of the
    run, `usage` the reports in it. `snapshots` has the numbers of the updates that the next update
    of their kind makes void. With `is_packed`, the whole run is packed. `ended` is the outcome of
    the last turn that begins or ends in the run, "" if it only begins; None if there is none.
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
        self.new = [
            replace(one, raw=pack(one.raw))
            if one.at < old_before or len(one.raw) > LONG_BYTES
            else one
            for one in compacted
        ]
        kept = {*found} & {*self.new} if stored else set()
        self.gone = [segment for segment in found if segment not in kept] if stored else []
        self.new = [segment for segment in self.new if segment not in kept]
        state = fold((entry for segment in compacted for entry in segment.entries()), before)
        self.messages = messages(state) - messages(before)
        self.summary = state.summary()
        self.snapshots = snapshots(compacted)
        # From what was found: compaction makes some reports void.
        self.usage = token_reports.reports(found)
        self.last_seq = found[-1].last_seq
        self.ended: TurnOutcome | Literal[""] | None = None
        for one in reversed(found):
            if one.kind in (PROMPT, TURN_END):
                last = one.entries()[-1]
                self.ended = turn_end(last.raw, 0).outcome if one.kind == TURN_END else ""
                break
        self.is_packed = all(segment.at < old_before for segment in found)


def messages(state: SessionState) -> int:
    """Count the messages of users and agents, without thoughts."""
    return sum(
        isinstance(item, Message) and item.role in ("user", "agent") for item in state.timeline
    )


def going_on(summary: Summary, state: SessionState = EMPTY) -> SessionState:
    """Return a state to continue folding from: `summary`, with the conversation of `state`."""
    return replace(state, **{name: getattr(summary, name) for name in Summary.__struct_fields__})


END: Final = (1 << 32) - 1
"""No entry has a higher number."""


def new_segments(seq: int, runs: Iterable[Run], at: int) -> list[Segment]:
    """The segments of runs that are appended at this time, numbered from `seq` on."""
    made: list[Segment] = []
    for kind, raws in runs:
        made.append(one := in_one(seq, kind, raws, at))
        seq = one.last_seq + 1
    return made
