"""Rows of old turns take less room: what stands in them is packed, and unpacked when it is read.

A packed row begins with the four bytes of a Zstandard frame (RFC 8878, 3.1.1), which no JSON begins
with. Each row is a frame of its own, made without a dictionary: one that had learned from
conversations would still have words of those that were deleted.

What is new stays as it is, so that a live session never waits for this. Each session has a number
up to which it is packed, `packed_through`; what came behind it is packed in pieces: all that is
settled once nobody went on with the session for a day, and before that what is a day old.

The functions may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from acphold.history.entries import Segment
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

OLD_MS: Final = 24 * 60 * 60 * 1000
"""Age at which a turn is old: it is hardly replayed any more."""

LEVEL: Final = 3
"""Of 1 to 22; the next ones take two to six times as long for 1 % of the size."""

WORTH_PACKING: Final = 200
"""Bytes of a row below which packing saves nothing."""

LARGEST: Final = 1 << 30
"""Bytes of a row that are unpacked at most: SQLite itself keeps no larger ones."""

PIECE_BYTES: Final = 512 << 10
"""How much is packed in one transaction (beyond one row)."""

_FRAME: Final = b"\x28\xb5\x2f\xfd"

_kept = threading.local()


def plain(raw: bytes) -> bytes:
    """What a row says, packed or not; raises sqlite3.DatabaseError for a damaged one."""
    return unpacked(raw) if raw.startswith(_FRAME) else raw


def packed(raw: bytes) -> bytes:
    """A row as it takes less room; as it is, where that saves less than a tenth."""
    if len(raw) < WORTH_PACKING or raw.startswith(_FRAME):
        return raw
    smaller = _compressor().compress(raw)
    return smaller if len(smaller) * 10 < len(raw) * 9 else raw


def as_kept(segment: Segment, old_before: int) -> Segment:
    """A segment as its row has it: packed if it is of a time before `old_before` (ms)."""
    if segment.at >= old_before:
        return segment
    return replace(segment, raw=packed(segment.raw))


def unpacked(frame: bytes) -> bytes:
    """What a packed row says; raises sqlite3.DatabaseError."""
    import zstandard

    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= LARGEST:
            raise zstandard.ZstdError(f"it claims {size} bytes")
        return _decompressor().decompress(frame)
    except zstandard.ZstdError as error:
        damage = sqlite3.DatabaseError(f"a packed row cannot be read: {error}")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error


def _compressor() -> ZstdCompressor:
    """One for each thread: they must not be used by two at once."""
    if (found := getattr(_kept, "compressor", None)) is None:
        import zstandard

        # SQLite has no checksums of its own; here they cost four bytes.
        found = _kept.compressor = zstandard.ZstdCompressor(LEVEL, write_checksum=True)
    made: ZstdCompressor = found
    return made


def _decompressor() -> ZstdDecompressor:
    if (found := getattr(_kept, "decompressor", None)) is None:
        import zstandard

        found = _kept.decompressor = zstandard.ZstdDecompressor()
    made: ZstdDecompressor = found
    return made


# -- what is old by now -------------------------------------------------------------------------


def newest_unpacked(connection: sqlite3.Connection, before: int) -> int | None:
    """The session to go on with: the newest of those last active before (ms since the epoch)."""
    row = connection.execute(
        "SELECT number FROM sessions WHERE packed_through < settled_through AND updated_at < ?"
        " ORDER BY updated_at DESC LIMIT 1",
        (before,),
    ).fetchone()
    return None if row is None else int(row[0])


def unpacked_sessions(connection: sqlite3.Connection, before: int) -> int:
    """How many sessions that were last active before have rows that are not packed."""
    (count,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE packed_through < settled_through AND updated_at < ?",
        (before,),
    ).fetchone()
    return int(count)


def pack_piece(connection: Connection, session: int, before: int | None = None) -> bool:
    """Pack the next settled rows of a session, up to one that is not of a time before (ms).

    False when there was none.
    """
    if (far := _how_far(connection, session)) is None:
        return False
    rows = _old_rows(connection, session, *far, before)
    if not rows:
        return False
    changed = [
        (smaller, key, len(raw)) for key, raw in rows if len(smaller := packed(raw)) < len(raw)
    ]
    with writing(connection):
        # Another process may have been quicker, or the session was deleted.
        if _how_far(connection, session) == far:
            # A row of another length was made void meanwhile.
            connection.executemany(
                "UPDATE segments SET raw = ? WHERE key = ? AND length(raw) = ?", changed
            )
            connection.execute(
                "UPDATE sessions SET packed_through = ? WHERE number = ?",
                (rows[-1][0] & SEQ_MASK, session),
            )
    return True


def _how_far(connection: sqlite3.Connection, session: int) -> tuple[int, int] | None:
    """How far a session is packed and settled; None when nothing is left."""
    row = connection.execute(
        "SELECT packed_through, settled_through FROM sessions"
        " WHERE number = ? AND packed_through < settled_through",
        (session,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def _old_rows(
    connection: sqlite3.Connection, session: int, after: int, through: int, before: int | None
) -> list[tuple[int, bytes]]:
    """Keys and raws of the next rows, up to the first that is not old."""
    rows = connection.execute(
        "SELECT key, at, raw FROM segments WHERE key BETWEEN ? AND ? ORDER BY key",
        (session << SEQ_BITS | after + 1, session << SEQ_BITS | through),
    )
    found: list[tuple[int, bytes]] = []
    size = 0
    for key, at, raw in rows:
        if (before is not None and at >= before) or size >= PIECE_BYTES:
            break
        found.append((key, raw))
        size += len(raw)
    # A statement left in the middle would keep the write-ahead log from starting over.
    rows.close()
    return found


def damaged_rows(connection: sqlite3.Connection) -> list[str]:
    """A sentence for each of the first packed rows that cannot be read."""
    found: list[str] = []
    for key, raw in connection.execute(
        "SELECT key, raw FROM segments WHERE substr(raw, 1, 4) = ?", (_FRAME,)
    ):
        try:
            unpacked(raw)
        except sqlite3.DatabaseError as error:
            found.append(f"session number {key >> SEQ_BITS}: {error}")
            if len(found) == 20:
                break
    return found
