"""Rows of old turns take less room: what stands in them is packed, and unpacked when it is read.

A packed row begins with the four bytes of a Zstandard frame (RFC 8878, 3.1.1), which no JSON begins
with. Each row is a frame of its own, made without a dictionary: one that had learned from
conversations would still have words of those that were deleted.

What is new stays as it is, so that a live session never waits for this (but in PostgreSQL, to which
it takes longer to send something long than to pack it: see `segments` there). Each session has a
number up to which it is packed; what came behind it is packed in pieces: all that is settled once
nobody went on with the session for a day, and before that what is a day old.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from acphold.history.entries import Segment

if TYPE_CHECKING:
    from acphold.journal.compression import zstd

OLD_MS: Final = 24 * 60 * 60 * 1000
"""Age at which a turn is old: it is hardly replayed any more."""

LEVEL: Final = 3
"""Of 1 to 22; the next ones take two to six times as long for 1 % of the size."""

WORTH_PACKING: Final = 200
"""Bytes of a row below which packing saves nothing."""

LARGEST: Final = 1 << 30
"""Bytes of a row that are unpacked at most: no store keeps larger ones."""

PIECE_BYTES: Final = 512 << 10
"""How much is packed in one transaction (beyond one row)."""

FRAME: Final = b"\x28\xb5\x2f\xfd"
"""What a packed row begins with."""

_kept = threading.local()


class DamagedRowError(ValueError):
    """A packed row is not what was written."""


def plain(raw: bytes) -> bytes:
    """What a row says, packed or not; raises DamagedRowError."""
    return unpacked(raw) if raw.startswith(FRAME) else raw


def packed(raw: bytes) -> bytes:
    """A row as it takes less room; as it is, where that saves less than a tenth."""
    if len(raw) < WORTH_PACKING or raw.startswith(FRAME):
        return raw
    compressor = _compressor()
    smaller = compressor.compress(raw, compressor.FLUSH_FRAME)
    return smaller if len(smaller) * 10 < len(raw) * 9 else raw


def as_kept(segment: Segment, old_before: int) -> Segment:
    """A segment as its row has it: packed if it is of a time before `old_before` (ms)."""
    if segment.at >= old_before:
        return segment
    return replace(segment, raw=packed(segment.raw))


def unpacked(frame: bytes) -> bytes:
    """What a packed row says; raises DamagedRowError."""
    from acphold.journal.compression import zstd

    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > LARGEST:
            raise zstd.ZstdError(f"it claims {size} bytes")
        decompressor = zstd.ZstdDecompressor()
        raw = decompressor.decompress(frame, size + 1)  # one more, so that the end is read, too
        if not decompressor.eof or len(raw) != size:
            raise zstd.ZstdError(f"it does not have the {size} bytes that it claims")
    except zstd.ZstdError as error:
        raise DamagedRowError(f"a packed row cannot be read: {error}") from error
    return raw


def _compressor() -> zstd.ZstdCompressor:
    """One for each thread: they must not be used by two at once."""
    if (found := getattr(_kept, "compressor", None)) is None:
        from acphold.journal.compression import zstd

        option = zstd.CompressionParameter
        # SQLite has no checksums of its own; here they cost four bytes.
        options: dict[int, int] = {option.compression_level: LEVEL, option.checksum_flag: 1}
        found = _kept.compressor = zstd.ZstdCompressor(options=options)
    made: zstd.ZstdCompressor = found
    return made
