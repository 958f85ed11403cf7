"""Packing: rows of old turns are compressed, and unpacked when they are read.

A packed row begins with the four magic bytes of a Zstandard frame (RFC 8878, 3.1.1), which no JSON
begins with. Each row is a frame of its own, without a dictionary: a dictionary trained on
conversations would still contain words of deleted ones.

New rows are not packed, so that a live session never waits for it. (In PostgreSQL long ones are,
because sending them takes longer than packing: see `segments` there.) Each session has a number up
to which it is packed. Later rows are packed in pieces: rows that are a day old; and all settled
rows, once nobody has continued the session for a day.
"""

# See docs/decisions.md, 13.

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from acphold.history.entries import Segment

if TYPE_CHECKING:
    from acphold.journal.compression import zstd

OLD_MS: Final = 24 * 60 * 60 * 1000
"""Age at which a turn is old: it is rarely replayed any more."""

LEVEL: Final = 3
"""The level of compression, of 1 to 22; the next levels take two to six times as long for 1 % of
size."""

WORTH_PACKING: Final = 200
"""Packing saves nothing on rows of fewer bytes."""

LARGEST: Final = 1 << 30
"""Rows of more bytes are not unpacked; no store keeps larger ones."""

PIECE_BYTES: Final = 512 << 10
"""Bytes packed in one transaction (beyond one row)."""

FRAME: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of a packed row."""

_kept = threading.local()


class DamagedRowError(ValueError):
    """A packed row differs from what was written."""


def plain(raw: bytes) -> bytes:
    """Return the content of a row, packed or not; raises DamagedRowError."""
    return unpacked(raw) if raw.startswith(FRAME) else raw


def packed(raw: bytes) -> bytes:
    """Return the row packed; or unchanged if packing saves less than a tenth."""
    if len(raw) < WORTH_PACKING or raw.startswith(FRAME):
        return raw
    compressor = _compressor()
    smaller = compressor.compress(raw, compressor.FLUSH_FRAME)
    return smaller if len(smaller) * 10 < len(raw) * 9 else raw


def as_kept(segment: Segment, old_before: int) -> Segment:
    """Return a segment as its row stores it: packed if it is older than `old_before` (ms)."""
    if segment.at >= old_before:
        return segment
    return replace(segment, raw=packed(segment.raw))


def unpacked(frame: bytes) -> bytes:
    """Return the content of a packed row; raises DamagedRowError."""
    from acphold.journal.compression import zstd

    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > LARGEST:
            raise zstd.ZstdError(f"it claims {size} bytes")
        decompressor = zstd.ZstdDecompressor()
        raw = decompressor.decompress(frame, size + 1)  # one more byte, to read the frame's end
        if not decompressor.eof or len(raw) != size:
            raise zstd.ZstdError(f"it does not have the {size} bytes that it claims")
    except zstd.ZstdError as error:
        raise DamagedRowError(f"a packed row cannot be read: {error}") from error
    return raw


def _compressor() -> zstd.ZstdCompressor:
    """The compressor of this thread: two threads must not use one at the same time."""
    if (found := getattr(_kept, "compressor", None)) is None:
        from acphold.journal.compression import zstd

        option = zstd.CompressionParameter
        # SQLite has no checksums of its own; here they cost four bytes.
        options: dict[int, int] = {option.compression_level: LEVEL, option.checksum_flag: 1}
        found = _kept.compressor = zstd.ZstdCompressor(options=options)
    made: zstd.ZstdCompressor = found
    return made
