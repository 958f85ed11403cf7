"""The table of segments: inserting rows, reading from a position, and deleting.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

# See docs/decisions.md, 10.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from acphold.history.entries import KINDS, UPDATE, Segment
from acphold.history.raw_update import CHUNK_STARTS
from acphold.journal.packing import plain
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

CODES: Final = {kind: code for code, kind in enumerate(KINDS)}
"""The number of a kind in its row; 0, for updates, takes no byte at all, and nearly every row is
one."""

NAMES: Final = dict(enumerate(KINDS))
"""The reverse of CODES; a row of any other kind has its name instead of a number."""

COLUMNS: Final = "key & 4294967295, first_seq, at, kind, raw"

_SELECT: Final = f"SELECT {COLUMNS} FROM segments WHERE key BETWEEN ? AND ?"

_NO_CHUNKS: Final = " AND NOT (kind = {} AND instr(raw, x'0a') = 0 AND ({}))".format(
    CODES[UPDATE],
    " OR ".join(f"raw BETWEEN x'{start.hex()}' AND x'{start.hex()}ff'" for start in CHUNK_STARTS),
)
"""Leaves out rows that hold a single chunk: SQLite skips them in a fifth of the time."""


def read(
    connection: sqlite3.Connection,
    session: int,
    after: int,
    limit_bytes: int,
    through: int = SEQ_MASK,
    *,
    chunks: bool = True,
) -> list[Segment]:
    """Return segments that end above `after` and not above `through`, oldest first.

    Returns about `limit_bytes`, but at least one segment if there is one. With `chunks=False`, most
    segments that hold only text are left out.
    """
    first_key = session << SEQ_BITS | after + 1
    select = _SELECT if chunks else _SELECT + _NO_CHUNKS
    rows = connection.execute(f"{select} ORDER BY key", (first_key, session << SEQ_BITS | through))
    segments: list[Segment] = []
    for row in rows:
        segments.append(of_row(*row))
        limit_bytes -= len(segments[-1].raw)
        if limit_bytes <= 0:
            break
    # An unfinished statement would keep the write-ahead log from starting over.
    rows.close()
    return segments


def read_back(
    connection: sqlite3.Connection,
    session: int,
    through: int,
    limit: int,
    kinds: Sequence[str] = (),
) -> list[Segment]:
    """Return the last `limit` segments that end by `through`, oldest first; of these kinds, if any
    are named."""
    of_kinds = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(
        f"{_SELECT}{of_kinds} ORDER BY key DESC LIMIT ?",
        (
            *(session << SEQ_BITS, session << SEQ_BITS | through),
            *(CODES.get(kind, kind) for kind in kinds),
            limit,
        ),
    ).fetchall()
    return [of_row(*row) for row in reversed(rows)]


class Of:
    """The segments of one session, by its number."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def read(
        self, after: int, limit_bytes: int, through: int = SEQ_MASK, *, chunks: bool = True
    ) -> list[Segment]:
        return read(self._connection, self._number, after, limit_bytes, through, chunks=chunks)

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        return read_back(self._connection, self._number, through, limit, kinds)


def of_row(last: int, first: int, at: int, kind: Any, raw: bytes) -> Segment:
    """The segment in the COLUMNS of a row."""
    return Segment(first, last, NAMES.get(kind, kind), at, plain(raw))


def is_alone(connection: sqlite3.Connection, session: int, seq: int) -> bool:
    """True if an entry has a row to itself, and stands for no other number."""
    row = connection.execute(
        "SELECT first_seq FROM segments WHERE key = ?", (session << SEQ_BITS | seq,)
    ).fetchone()
    return row is not None and row[0] == seq


def size(connection: sqlite3.Connection, session: int, after: int) -> int:
    """The bytes of the segments that end above `after`."""
    (found,) = connection.execute(
        "SELECT coalesce(sum(length(raw)), 0) FROM segments WHERE key BETWEEN ? AND ?",
        (session << SEQ_BITS | after + 1, session << SEQ_BITS | SEQ_MASK),
    ).fetchone()
    return int(found)


def insert(connection: sqlite3.Connection, session: int, segments: Iterable[Segment]) -> None:
    """Write the rows of segments."""
    connection.executemany(
        "INSERT INTO segments (key, first_seq, at, kind, raw) VALUES (?, ?, ?, ?, ?)",
        [
            (session << SEQ_BITS | s.last_seq, s.first_seq, s.at, CODES.get(s.kind, s.kind), s.raw)
            for s in segments
        ],
    )


def empty(connection: sqlite3.Connection, session: int, seq: int) -> None:
    """Remove the content of an entry, keeping its number."""
    first_key = session << SEQ_BITS | seq
    (key, first_seq, raw) = connection.execute(
        "SELECT key, first_seq, raw FROM segments WHERE key >= ? ORDER BY key LIMIT 1", (first_key,)
    ).fetchone()
    raws = plain(raw).split(b"\n")
    # A merged entry, which stands for several numbers, is alone in its row.
    raws[seq - first_seq if len(raws) > 1 else 0] = b""
    connection.execute("UPDATE segments SET raw = ? WHERE key = ?", (b"\n".join(raws), key))


def extent(
    connection: sqlite3.Connection, session: int, after: int, limit_bytes: int
) -> tuple[int, int]:
    """The end of the next rows above `after`, and their bytes: about `limit_bytes` of them.

    (0, 0) if there are none.
    """
    rows = connection.execute(
        "SELECT key & 4294967295, length(raw) FROM segments WHERE key BETWEEN ? AND ? ORDER BY key",
        (session << SEQ_BITS | after + 1, session << SEQ_BITS | SEQ_MASK),
    )
    through = size = 0
    for last, length in rows:
        through, size = last, size + length
        if size >= limit_bytes:
            break
    rows.close()
    return through, size


def remove_through(connection: sqlite3.Connection, session: int, through: int) -> None:
    """Delete all rows of a session that end by `through`."""
    connection.execute(
        "DELETE FROM segments WHERE key BETWEEN ? AND ?",
        (session << SEQ_BITS, session << SEQ_BITS | through),
    )


def remove(connection: sqlite3.Connection, session: int, segments: Iterable[Segment]) -> None:
    """Delete the rows of segments."""
    connection.executemany(
        "DELETE FROM segments WHERE key = ?",
        [(session << SEQ_BITS | segment.last_seq,) for segment in segments],
    )
