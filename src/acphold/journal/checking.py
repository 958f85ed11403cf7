"""Looking a whole journal over: is every page sound, and every history complete?"""

from __future__ import annotations

import sqlite3
from typing import Final

_GAPS: Final = """
    SELECT session_id, before, first_seq FROM (
        SELECT key >> 32 AS number, first_seq,
            lag(key & 4294967295, 1, 0) OVER (PARTITION BY key >> 32 ORDER BY key) AS before
        FROM segments
    ) JOIN sessions USING (number) WHERE first_seq != before + 1
"""


def damage(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the journal, a sentence each; empty when it is whole.

    Reads all of it: about a second for a gigabyte.
    """
    try:
        pages = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
        if pages != ["ok"]:
            return pages
        rows = connection.execute(_GAPS).fetchall()
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return [
        f"session {session_id!r}: entry {first_seq} follows {before}"
        for session_id, before, first_seq in rows
    ]
