"""The table of segments: inserting rows, reading from a position, and deleting.

The functions run inside a transaction of the caller, or are one by themselves, and may raise
psycopg errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from acphold.history.entries import UPDATE, Segment
from acphold.history.raw_update import CHUNK_STARTS
from acphold.journal.frames import packed, plain
from acphold.journal.journal import Lease
from acphold.journal.postgresql.migrations import Line
from acphold.journal.stored_history import END

COLUMNS: Final = "last_seq, first_seq, at, kind, raw"

NOW_MS: Final = "(extract(epoch FROM now()) * 1000)::bigint"
"""The time of the transaction, by the clock of the database."""

_ROWS_AT_ONCE: Final = 2048

LONG_BYTES: Final = 2000
"""Longer values are packed before they are sent: the server would write them elsewhere, cut into
rows of their own. Packed, 50 pieces of a message take a fifth, in the server's log, too."""

TOO_LONG_BYTES: Final = 32 << 10
"""Longer values are sent unpacked, and packed once they are old: packing one of this size takes the
event loop 0.1 ms."""

_SIZE: Final = """
    CASE
        WHEN octet_length(raw) < 7 OR substr(raw, 1, 4) <> '\\x28b52ffd' THEN octet_length(raw)
        WHEN get_byte(raw, 4) >> 5 = 3 THEN 256 + get_byte(raw, 5) + (get_byte(raw, 6) << 8)
        ELSE octet_length(raw)
    END::bigint
"""
"""The unpacked bytes of a row; a packed one of up to 64 KiB has them in its header.

Source: RFC 8878, 3.1.1.1.
"""

_READ: Final = f"""
    SELECT {COLUMNS} FROM (
        SELECT *, sum(size) OVER (ORDER BY last_seq ROWS UNBOUNDED PRECEDING) - size AS before
        FROM (
            SELECT {COLUMNS}, {_SIZE} AS size FROM acphold.segments
            WHERE session_id = %(session)s AND last_seq > %(after)s AND last_seq <= %(through)s
                {{}}
            ORDER BY last_seq LIMIT {_ROWS_AT_ONCE}
        ) AS next_ones
    ) AS counted WHERE before < %(limit)s ORDER BY last_seq
"""
"""The next rows up to a number of bytes, without visiting the rows after them."""

_NO_CHUNKS: Final = "AND NOT (kind = '{}' AND position('\\x0a'::bytea IN raw) = 0 AND ({}))".format(
    UPDATE,
    " OR ".join(
        f"raw BETWEEN '\\x{start.hex()}'::bytea AND '\\x{start.hex()}ff'::bytea"
        for start in CHUNK_STARTS
    ),
)
"""Leaves out rows that hold a single chunk."""


class PostgresqlSegments:
    """The segments of one session."""

    def __init__(self, line: Line, session_id: str) -> None:
        self._line = line
        self._session_id = session_id

    def read(
        self, after: int, limit_bytes: int, through: int = END, *, chunks: bool = True
    ) -> list[Segment]:
        statement = _READ.format("" if chunks else _NO_CHUNKS)
        found: list[Segment] = []
        while limit_bytes > 0:
            values = {
                "session": self._session_id,
                "after": after,
                "through": through,
                "limit": limit_bytes,
            }
            rows = self._line.execute(statement, values, binary=True).fetchall()
            some = [of_row(*row) for row in rows]
            found += some
            if len(some) < _ROWS_AT_ONCE:
                break
            limit_bytes -= sum(len(segment.raw) for segment in some)
            after = some[-1].last_seq
        return found

    def read_back(self, through: int, limit: int, kinds: Sequence[str] = ()) -> list[Segment]:
        of_kinds = " AND kind = ANY(%(kinds)s)" if kinds else ""
        rows = self._line.execute(
            f"SELECT {COLUMNS} FROM acphold.segments WHERE session_id = %(session)s"
            f" AND last_seq <= %(through)s{of_kinds} ORDER BY last_seq DESC LIMIT %(limit)s",
            {
                "session": self._session_id,
                "through": through,
                "kinds": [*kinds],
                "limit": limit,
            },
            binary=True,
        ).fetchall()
        return [of_row(*row) for row in reversed(rows)]

    def is_alone(self, seq: int) -> bool:
        row = self._line.execute(
            "SELECT first_seq FROM acphold.segments WHERE session_id = %s AND last_seq = %s",
            (self._session_id, seq),
        ).fetchone()
        return row is not None and row[0] == seq

    def insert(self, segments: Iterable[Segment]) -> None:
        with self._line.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO acphold.segments (session_id, {COLUMNS})"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    (self._session_id, s.last_seq, s.first_seq, s.at, s.kind, s.raw)
                    for s in segments
                ],
            )

    def remove(self, segments: Iterable[Segment]) -> None:
        if last_seqs := [segment.last_seq for segment in segments]:
            self._line.execute(
                "DELETE FROM acphold.segments WHERE session_id = %s AND last_seq = ANY(%s)",
                (self._session_id, last_seqs),
            )

    def row_with(self, seq: int) -> tuple[int, int, bytes]:
        row = self._line.execute(
            "SELECT last_seq, first_seq, raw FROM acphold.segments"
            " WHERE session_id = %s AND last_seq >= %s ORDER BY last_seq LIMIT 1 FOR UPDATE",
            (self._session_id, seq),
            binary=True,
        ).fetchone()
        assert row is not None
        return row[0], row[1], row[2]

    def stored(self, after: int, through: int) -> Iterator[tuple[int, int, bytes]]:
        yield from self._line.execute(
            "SELECT last_seq, at, raw FROM acphold.segments WHERE session_id = %s"
            " AND last_seq > %s AND last_seq <= %s ORDER BY last_seq LIMIT 512",
            (self._session_id, after, through),
            binary=True,
        ).fetchall()

    def rewrite(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        with self._line.cursor() as cursor:
            cursor.executemany(
                "UPDATE acphold.segments SET raw = %s"
                " WHERE session_id = %s AND last_seq = %s AND octet_length(raw) = %s",
                [(raw, self._session_id, seq, length) for raw, seq, length in rows],
            )


def of_row(last: int, first: int, at: int, kind: str, raw: bytes) -> Segment:
    """The segment in the COLUMNS of a row."""
    return Segment(first, last, kind, at, plain(raw))


# -- appending --------------------------------------------------------------------------------


HELD: Final = (
    "WITH held AS MATERIALIZED (SELECT 1 FROM acphold.leases"
    " WHERE session_id = %s AND epoch = %s AND (%s = 0::bigint OR EXISTS ("
    "SELECT FROM acphold.segments WHERE session_id = leases.session_id AND last_seq = %s))"
    " FOR SHARE)"
)
"""Selects the lease if it stands, and locks it until the transaction ends: a process that takes it
over waits for that, and later appends under it find that it is lost. It also selects nothing if the
entry before is missing, because the database has gone back. The primary key of the segments is the
second line of defence."""


@cache
def appending(number: int, assignments: str = "") -> str:
    """The statement that appends this many segments if the lease stands, and updates the session's
    row with them; it is a transaction by itself."""
    row = f"(%s::bigint, %s::bigint, {NOW_MS}, %s::text, %s::bytea)"
    changed = (
        f", changed AS (UPDATE acphold.sessions SET {assignments}"
        " WHERE session_id = %s AND EXISTS (SELECT FROM held))"
    )
    return (
        f"{HELD}{changed if assignments else ''}"
        f" INSERT INTO acphold.segments (session_id, {COLUMNS})"
        f" SELECT %s, entries.* FROM (VALUES {', '.join([row] * number)}) AS entries"
        " WHERE EXISTS (SELECT FROM held) RETURNING at"
    )


def appended(
    lease: Lease, segments: Sequence[Segment], assignments: str, values: Sequence[Any]
) -> tuple[str, list[Any]]:
    """The statement that appends new segments, with its values. It returns the time (ms since the
    epoch), or no row if the lease is lost."""
    before = segments[0].first_seq - 1
    parameters: list[Any] = [lease.session_id, lease.epoch, before, before]
    if assignments:
        parameters += [*values, lease.session_id]
    parameters.append(lease.session_id)
    for one in segments:
        raw = packed(one.raw) if LONG_BYTES < len(one.raw) <= TOO_LONG_BYTES else one.raw
        parameters += (one.last_seq, one.first_seq, one.kind, raw)
    return appending(len(segments), assignments), parameters


def is_written(line: Line, lease: Lease, segments: Sequence[Segment]) -> int | None:
    """The time at which exactly these segments were written under this lease; None if they were
    not."""
    rows = line.execute(
        f"SELECT {COLUMNS} FROM acphold.segments WHERE session_id = %s AND last_seq >= %s"
        " AND EXISTS (SELECT FROM acphold.leases WHERE session_id = %s AND epoch = %s)"
        " ORDER BY last_seq LIMIT %s",
        (lease.session_id, lease.next_seq, lease.session_id, lease.epoch, len(segments)),
        binary=True,
    ).fetchall()
    found = [of_row(*row) for row in rows]
    wanted = [(one.first_seq, one.last_seq, one.kind, one.raw) for one in segments]
    if [(one.first_seq, one.last_seq, one.kind, one.raw) for one in found] != wanted:
        return None
    return found[0].at
