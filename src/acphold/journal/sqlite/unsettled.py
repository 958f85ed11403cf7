"""Searching the unsettled ends of the newest sessions, which are not in the index.

A session is unsettled while a turn runs, while it rests for a client that may come back, or if its
process was killed. Such ends are few and short; a search goes through them with an index made for
it.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from acphold.history.compaction import compact
from acphold.history.entries import Entry
from acphold.journal.hits import Held
from acphold.journal.journal import Sought
from acphold.journal.location import resolved_folder
from acphold.journal.sqlite import segments
from acphold.journal.sqlite.session_rows import SHARED_WITH
from acphold.journal.stored_history import tail
from acphold.journal.words_in_memory import fitting

SESSIONS_AT_MOST: Final = 20
"""The number of newest sessions whose ends are searched."""

TAIL_BYTES: Final = 256 << 10
"""Bytes searched at the end of one session: indexing them takes 50 ms."""

_TAILED: Final = """
    SELECT updated_at, number, settled_through, session_id, agent, cwd, title FROM (
        SELECT * FROM sessions WHERE {filters}
        ORDER BY updated_at DESC LIMIT :most
    ) WHERE EXISTS (
        SELECT 1 FROM segments
        WHERE key BETWEEN (number << 32 | settled_through) + 1 AND (number << 32 | 4294967295)
    )
"""


def matching(
    connection: sqlite3.Connection, sought: Sought, query: str
) -> list[tuple[Held, Entry]]:
    """The entries that match an FTS5 query, newest first, at most `sought.limit`."""
    values = {
        "most": SESSIONS_AT_MOST,
        "folder": None if sought.cwd is None else resolved_folder(sought.cwd),
        "session": sought.session_id,
        "tenant": sought.tenant,
    }
    # Only the filters that are set: for each of them there is an index, used by the list.
    filters = "prompted = 1 AND archived = 0"
    if sought.cwd is not None:
        filters += " AND folder = :folder"
    if sought.session_id is not None:
        filters += " AND session_id = :session"
    if sought.agents:
        filters += " AND agent = :agent"
    either = [filters]
    if sought.tenant is not None:
        own = "tenant = :tenant AND tenant <> ''" if sought.tenant else "tenant = ''"
        # The pluses keep SQLite from walking all sessions to find a few.
        few = filters.replace("prompted", "+prompted").replace("archived", "+archived")
        either = [f"{filters} AND {own}", f"{few} AND tenant <> :tenant AND {SHARED_WITH}"]
    walks = [
        connection.execute(_TAILED.format(filters=one), {**values, "agent": agent})
        for agent in sought.agents or (None,)
        for one in either
    ]
    rows = sorted((row for walk in walks for row in walk), reverse=True)[:SESSIONS_AT_MOST]
    candidates = [
        (Held(session_id, agent, cwd, title, archived=False), entry)
        for _, number, settled, session_id, agent, cwd, title in rows
        for segment in compact(tail(segments.Of(connection, number), settled, TAIL_BYTES))
        for entry in segment.entries()
        if entry.at >= sought.since
    ]
    if not candidates:
        return []
    candidates.sort(key=lambda candidate: (-candidate[1].at, -candidate[1].seq))
    return [candidates[place] for place in fitting([entry for _, entry in candidates], query)][
        : sought.limit
    ]
