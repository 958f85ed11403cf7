"""The size of the journal, and of its parts: for `acphold doctor`."""

from __future__ import annotations

import sqlite3
from typing import Final

from acphold.journal.in_file import Large, Sizes

_LARGEST: Final = """
    SELECT session_id, title, (
        SELECT coalesce(sum(length(raw)), 0) FROM segments
        WHERE key BETWEEN number << 32 AND number << 32 | 4294967295
    ) AS bytes FROM sessions ORDER BY bytes DESC LIMIT ?
"""
# Session by session: to group all rows, SQLite would sort them in memory.

_PAGES: Final = """
    SELECT coalesce(sum(pgsize) FILTER (WHERE name = 'segments'), 0),
        coalesce(sum(pgsize) FILTER (WHERE name LIKE 'words%' OR name LIKE '%documents%'), 0)
    FROM dbstat WHERE aggregate = TRUE
"""


def sizes(connection: sqlite3.Connection, largest: int) -> Sizes:
    """The sizes, and this many of the largest sessions; reads the whole file."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    try:
        conversations, index = connection.execute(_PAGES).fetchone()
    except sqlite3.OperationalError:  # built without dbstat
        conversations = index = None
    rows = connection.execute(_LARGEST, (largest,)).fetchall()
    return Sizes(conversations, index, free * page_size, tuple(Large(*row) for row in rows))
