"""Sums of usage that are kept for many sessions together, so that `usage` does not go through all.

The upkeep makes a block of SUMMED_TOGETHER numbers of sessions, once the next ones have begun: the
sums by each grouping, and the `revision` of the log of changes that they are of. They hold as long
as the log tells no later change of one of the sessions, so whoever writes pays nothing; a trigger
drops a block with its first deleted session. Days are those of a time zone: see `_midnights`.
See docs/decisions.md, 22.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from acphold.journal import bounds
from acphold.journal.seams import Grouping
from acphold.journal.sql import usage_rows
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import PlainSums, Span, SumsQuery

_KEPT: Final[tuple[Grouping, ...]] = ("agent", "day", "folder", "model")
"""The groupings, each of which has a column."""


class _Kept(Struct, array_like=True):
    """The content of a column."""

    sums: PlainSums
    midnights: list[tuple[float, float]]


_decode: Final = msgspec.msgpack.Decoder(_Kept).decode


def kept_sums(tables: Tables, by: Grouping) -> tuple[list[PlainSums], list[Span]]:
    """The sums of the blocks that hold, and the spans of numbers outside of them."""
    kept: list[PlainSums] = []
    spans: list[Span] = []
    begin = 0
    for (lowest, highest), row in _holding(tables, f"by_{by}"):
        with suppress(msgspec.DecodeError):
            found = _decode(row)
            if by == "day" and found.midnights != _midnights(found.sums.groups):
                continue
            kept.append(found.sums)
            if begin < lowest:
                spans.append((begin, lowest - 1))
            begin = highest + 1
    return kept, [*spans, (begin, (1 << 63) - 1)]


def make_next(tables: Tables) -> bool:
    """Add up one session whose sums are missing, else make one of the blocks that are due; False if
    nothing is left, or a session was deleted meanwhile."""
    if usage_rows.add_up_next(tables):
        return True
    size = bounds.SUMMED_TOGETHER
    with tables.reading():
        (newest,) = tables.execute("SELECT coalesce(max(number), 0) FROM sessions").fetchone()
        spans = [(begin, begin + size - 1) for begin in range(0, newest - size + 1, size)]
        holding = {span for span, _ in _holding(tables, "NULL")}
        due = next((span for span in reversed(spans) if span not in holding), None)
        if due is None:
            return False
        revision = _revision(tables)
        columns = [_sums_of(tables, by, due) for by in _KEPT]
    with tables.writing():
        gone = tables.execute(
            "SELECT 1 FROM changes LEFT JOIN sessions USING (session_id)"
            " WHERE revision > %s AND number IS NULL UNION ALL SELECT 1 FROM meta"
            " WHERE name = 'forgotten' AND CAST(value AS INTEGER) > %s",
            (revision, revision),
        ).fetchone()
        if gone is None:
            marks = ", ".join(["%s"] * (3 + len(columns)))
            names = ", ".join(f"by_{by}" for by in _KEPT)
            tables.execute(
                f"INSERT OR REPLACE INTO usage_blocks (lowest, highest, revision, {names})"
                f" VALUES ({marks})",
                (*due, revision, *columns),
            )
    return gone is None


def _sums_of(tables: Tables, by: Grouping, span: Span) -> bytes:
    found = SumsQuery(tables, by, in_spans=True).ask(span)
    midnights = _midnights(found.groups) if by == "day" else []
    return msgspec.msgpack.encode(_Kept(found, midnights))


def _holding(tables: Tables, column: str) -> list[tuple[Span, bytes]]:
    """The blocks with sums that hold, and a column of each, in the order of their numbers."""
    rows = tables.execute(
        f"SELECT lowest, highest, revision, {column} FROM usage_blocks ORDER BY highest"
    ).fetchall()
    if not rows:
        return []
    ends = [highest for _, highest, _, _ in rows]
    changed = tables.execute(
        "SELECT number, revision FROM changes CROSS JOIN sessions USING (session_id)"
        " WHERE revision > %s",
        (min(revision for _, _, revision, _ in rows),),
    )
    stale = set()
    for number, revision in changed.fetchall():
        place = bisect_left(ends, number)
        if place < len(rows) and number >= rows[place][0] and revision > rows[place][2]:
            stale.add(place)
    return [
        ((lowest, highest), its)
        for place, (lowest, highest, _, its) in enumerate(rows)
        if place not in stale
    ]


def _revision(tables: Tables) -> int:
    return int(tables.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()[0])


def _midnights(days: Iterable[str]) -> list[tuple[float, float]]:
    """The beginning and the end of each of these days here: sums by day hold wherever these are the
    same moments."""
    begin = [datetime.fromisoformat(name) for name in days]
    return [(it.timestamp(), (it + timedelta(1)).timestamp()) for it in begin]
