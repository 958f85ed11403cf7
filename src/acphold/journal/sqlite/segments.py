"""The table of segments: inserting rows, reading from a position, and deleting.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

# See docs/decisions.md, 10.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from acphold.history.entries import KINDS, UPDATE, Segment
from acphold.history.raw_update import CHUNK_STARTS
from acphold.journal.frames import plain
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


class SqliteSegments:
    """The segments of one session, by its number."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def _key(self, seq: int) -> int:
        return self._number << SEQ_BITS | seq

    def read(
        self, after: int, limit_bytes: int, through: int = SEQ_MASK, *, chunks: bool = True
    ) -> list[Segment]:
        select = _SELECT if chunks else _SELECT + _NO_CHUNKS
        rows = self._connection.execute(
            f"{select} ORDER BY key", (self._key(after + 1), self._key(through))
        )
        segments: list[Segment] = []
        for row in rows:
            segments.append(of_row(*row))
            limit_bytes -= len(segments[-1].raw)
            if limit_bytes <= 0:
                break
        # An unfinished statement would keep the write-ahead log from starting over.
        rows.close()
        return segments

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        of_kinds = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        rows = self._connection.execute(
            f"{_SELECT}{of_kinds} ORDER BY key DESC LIMIT ?",
            (
                *(self._key(0), self._key(through)),
                *(CODES.get(kind, kind) for kind in kinds),
                limit,
            ),
        ).fetchall()
        return [of_row(*row) for row in reversed(rows)]

    def size(self, after: int) -> int:
        """The bytes of the segments that end above `after`."""
        (found,) = self._connection.execute(
            "SELECT coalesce(sum(length(raw)), 0) FROM segments WHERE key BETWEEN ? AND ?",
            (self._key(after + 1), self._key(SEQ_MASK)),
        ).fetchone()
        return int(found)

    def is_alone(self, seq: int) -> bool:
        row = self._connection.execute(
            "SELECT first_seq FROM segments WHERE key = ?", (self._key(seq),)
        ).fetchone()
        return row is not None and row[0] == seq

    def insert(self, segments: Iterable[Segment]) -> None:
        self._connection.executemany(
            "INSERT INTO segments (key, first_seq, at, kind, raw) VALUES (?, ?, ?, ?, ?)",
            [
                (self._key(s.last_seq), s.first_seq, s.at, CODES.get(s.kind, s.kind), s.raw)
                for s in segments
            ],
        )

    def remove(self, segments: Iterable[Segment]) -> None:
        self._connection.executemany(
            "DELETE FROM segments WHERE key = ?", [(self._key(s.last_seq),) for s in segments]
        )

    def row_with(self, seq: int) -> tuple[int, int, bytes]:
        last_seq, first_seq, _, _, raw = self._connection.execute(
            f"{_SELECT} ORDER BY key LIMIT 1", (self._key(seq), self._key(SEQ_MASK))
        ).fetchone()
        return last_seq, first_seq, raw

    def stored(self, after: int, through: int) -> Iterator[tuple[int, int, bytes]]:
        rows = self._connection.execute(
            f"{_SELECT} ORDER BY key", (self._key(after + 1), self._key(through))
        )
        try:
            for last_seq, _, at, _, raw in rows:
                yield last_seq, at, raw
        finally:
            # An unfinished statement would keep the write-ahead log from starting over.
            rows.close()

    def rewrite(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        self._connection.executemany(
            "UPDATE segments SET raw = ? WHERE key = ? AND length(raw) = ?",
            [(raw, self._key(seq), length) for raw, seq, length in rows],
        )


def of_row(last: int, first: int, at: int, kind: Any, raw: bytes) -> Segment:
    """The segment in the COLUMNS of a row."""
    return Segment(first, last, NAMES.get(kind, kind), at, plain(raw))


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
