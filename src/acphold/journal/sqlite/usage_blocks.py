"""The blocks of sums of usage in a file.

Each is of a `revision` of the log of changes, and holds as long as that tells no later change of
its sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acphold.journal import bounds
from acphold.journal.seams import Grouping
from acphold.journal.sql import usage_blocks, usage_rows
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import PlainSums, Span
from acphold.journal.sqlite import row_texts


def kept_sums(
    tables: Tables, by: Grouping, agents: tuple[str, ...] = ()
) -> tuple[list[PlainSums], list[Span]]:
    """The sums of the blocks that hold, and the spans of numbers outside of them."""
    return usage_blocks.kept_sums(_holding(tables, f"by_{by}"), by, agents)


def make_next(tables: Tables) -> bool:
    """Add up one session whose sums are missing, else make one of the blocks that are due; False if
    nothing is left, or a session was deleted meanwhile, or another process made newer blocks."""
    if usage_rows.add_up_next(tables):
        return True
    with tables.reading():
        holding = usage_blocks.readable(
            _holding(tables, "by_agent", " JOIN row_texts USING (highest)")
        )
        due = usage_blocks.next_due(tables, holding)
        (revision,) = tables.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        if due is not None:
            block = usage_blocks.columns(tables, due)
            texts = row_texts.of_span(tables, due)
    if due is None:
        _note_holding(tables, holding, revision)
        return False
    with tables.writing():
        is_late = tables.execute(_IS_LATE, (revision, *due, revision, *due, revision)).fetchone()
        if is_late is None:
            usage_blocks.insert(tables, block | {"revision": revision})
            row_texts.keep(tables, due[1], texts)
    return is_late is None


# The note of a later revision would hold for a block of an earlier one, too.
_IS_LATE: Final = """
    SELECT 1 FROM changes LEFT JOIN sessions USING (session_id)
    WHERE revision > %s AND (number IS NULL OR number BETWEEN %s AND %s)
    UNION ALL SELECT 1 FROM meta
    WHERE name IN ('forgotten', 'usage_blocks') AND CAST(value AS INTEGER) > %s
    UNION ALL SELECT 1 FROM usage_blocks WHERE highest >= %s AND lowest <= %s AND revision > %s
"""


def _note_holding(tables: Tables, holding: Sequence[Span], revision: int) -> None:
    """Note that these blocks hold at this revision, so that none goes through the changes before
    it again, and drop all others. Not if it would spare few changes."""
    noted = tables.execute("SELECT value FROM meta WHERE name = 'usage_blocks'").fetchone()
    if not holding or revision < (noted[0] if noted else 0) + bounds.SUMMED_TOGETHER:
        return
    with tables.writing():
        tables.execute(
            f"DELETE FROM usage_blocks WHERE NOT {tables.among('highest', 'holding')}"
            " AND revision <= %(revision)s",
            {"holding": tables.array(highest for _, highest in holding), "revision": revision},
        )
        tables.execute(
            "INSERT OR REPLACE INTO meta (name, value) VALUES ('usage_blocks', %s)", (revision,)
        )


def _holding(tables: Tables, column: str, joined: str = "") -> list[tuple[Span, bytes]]:
    """The blocks with sums that hold, and a column of each, in the order of their numbers."""
    rows = tables.execute(
        f"SELECT lowest, highest, {row_texts.EFFECTIVE}, {column} FROM usage_blocks{joined}"
        " ORDER BY highest"
    ).fetchall()
    if not rows:
        return []
    spans = [(lowest, highest) for lowest, highest, _, _ in rows]
    changed = tables.execute(
        "SELECT number, revision FROM changes CROSS JOIN sessions USING (session_id)"
        " WHERE revision > %s",
        (min(revision for _, _, revision, _ in rows),),
    )
    stale = set()
    for number, revision in changed.fetchall():
        place = usage_blocks.place_of(number, spans)
        if place is not None and revision > rows[place][2]:
            stale.add(place)
    return [(spans[place], row[3]) for place, row in enumerate(rows) if place not in stale]
