"""The SQLite that this Python uses: for `acphold doctor`."""

from __future__ import annotations

import sqlite3
from contextlib import closing


def version() -> str:
    """Its name and version."""
    return f"SQLite {sqlite3.sqlite_version}"


def has_search() -> bool:
    """True if it has the full-text search (FTS5) that a journal needs."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
        except sqlite3.OperationalError:
            return False
    return True
