"""The blocks of sums of usage in a database: all are of one position in the log of changes.

`meta` has the position. A block holds if no transaction that the position has not seen, whenever it
began, has changed one of its sessions. The upkeep of one process at a time drops those that do not
hold, makes the next one, and moves the position, all in one transaction that sees one moment.
A deletion leaves the numbers of its sessions until the upkeep has seen it; so nobody who deletes
waits for another one, or for the upkeep.
"""

from __future__ import annotations

from psycopg.errors import LockNotAvailable

from acphold.errors import RewrittenError
from acphold.journal.postgresql import changes
from acphold.journal.postgresql.session_rows import PostgresqlTables
from acphold.journal.seams import Grouping
from acphold.journal.sql import usage_blocks, usage_rows
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import PlainSums, Span


def kept_sums(
    tables: Tables, by: Grouping, agents: tuple[str, ...] = ()
) -> tuple[list[PlainSums], list[Span]]:
    """The sums of the blocks that hold, and the spans of numbers outside of them."""
    return usage_blocks.kept_sums(_holding(tables, f"by_{by}"), by, agents)


def make_next(tables: PostgresqlTables) -> bool:
    """Add up one session whose sums are missing, else make one of the blocks that are due; False if
    nothing is left, or another process is at it."""
    if usage_rows.add_up_next(tables):
        return True
    try:
        with tables.upkeep("usage_blocks"):
            holding = usage_blocks.readable(_holding(tables, "by_agent"))
            its = {"highest": [highest for _, highest in holding]}
            tables.execute(
                "DELETE FROM acphold.usage_blocks WHERE highest <> ALL(%(highest)s::bigint[])", its
            )
            tables.execute("DELETE FROM acphold.usage_ends")
            tables.execute(
                "INSERT INTO acphold.meta (name, value) VALUES ('usage_blocks', %s)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (changes.changes(tables, None).last.encode(),),
            )
            due = usage_blocks.next_due(tables, holding)
            if due is not None:
                usage_blocks.insert(tables, usage_blocks.columns(tables, due))
    except LockNotAvailable:
        return False
    return due is not None


def _holding(tables: Tables, column: str) -> list[tuple[Span, bytes]]:
    """The blocks with sums that hold, and a column of each, in the order of their numbers."""
    row = tables.execute("SELECT value FROM acphold.meta WHERE name = 'usage_blocks'").fetchone()
    if row is None:
        return []
    try:
        changed = changes.changed_numbers(tables, bytes(row[0]).decode())
    except RewrittenError:
        return []
    rows = tables.execute(
        f"SELECT lowest, highest, {column} FROM acphold.usage_blocks ORDER BY highest"
    ).fetchall()
    ended = tables.execute("SELECT number FROM acphold.usage_ends").fetchall()
    spans = [(lowest, highest) for lowest, highest, _ in rows]
    stale = {usage_blocks.place_of(it, spans) for it in (*changed, *(it for (it,) in ended))}
    return [(spans[place], row[2]) for place, row in enumerate(rows) if place not in stale]
