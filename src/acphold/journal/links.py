"""Which ids the agents themselves know our sessions by, and which of their ids to forget.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import islice
from typing import Final

from acphold.journal.sessions import number_of

_IDS_AT_ONCE: Final = 500


def link(connection: sqlite3.Connection, agent: str, downstream_id: str, session_id: str) -> None:
    """Make `downstream_id` the newest id of the session; raises UnknownSessionError."""
    _put(connection, agent, downstream_id, number_of(connection, session_id))


def forget(connection: sqlite3.Connection, agent: str, downstream_id: str) -> None:
    """Turn the id into a tombstone."""
    _put(connection, agent, downstream_id, None)


def _put(
    connection: sqlite3.Connection, agent: str, downstream_id: str, session: int | None
) -> None:
    # Replaced, not updated: a new row gets the highest number, which makes it the newest.
    connection.execute(
        "INSERT OR REPLACE INTO links (agent, downstream_id, session) VALUES (?, ?, ?)",
        (agent, downstream_id, session),
    )


def forget_session(connection: sqlite3.Connection, number: int) -> None:
    """Turn all ids of a session into tombstones."""
    connection.execute("UPDATE links SET session = NULL WHERE session = ?", (number,))


def downstream(connection: sqlite3.Connection, session_id: str) -> str | None:
    """The newest id the agent knows the session by."""
    row = connection.execute(
        "SELECT downstream_id FROM links WHERE session ="
        " (SELECT number FROM sessions WHERE session_id = ?) ORDER BY number DESC LIMIT 1",
        (session_id,),
    ).fetchone()
    return None if row is None else str(row[0])


def session_of(connection: sqlite3.Connection, agent: str, downstream_id: str) -> str | None:
    """The session behind an id of the agent."""
    row = connection.execute(
        "SELECT session_id FROM links JOIN sessions ON sessions.number = links.session"
        " WHERE links.agent = ? AND downstream_id = ?",
        (agent, downstream_id),
    ).fetchone()
    return None if row is None else str(row[0])


def is_forgotten(connection: sqlite3.Connection, agent: str, downstream_id: str) -> bool:
    """Whether the id is a tombstone."""
    row = connection.execute(
        "SELECT 1 FROM links WHERE agent = ? AND downstream_id = ? AND session IS NULL",
        (agent, downstream_id),
    ).fetchone()
    return row is not None


def linked(connection: sqlite3.Connection, agent: str, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that have a row, be it a link or a tombstone."""
    found: set[str] = set()
    remaining = iter(ids)
    while some := tuple(islice(remaining, _IDS_AT_ONCE)):
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            f"SELECT downstream_id FROM links WHERE agent = ? AND downstream_id IN ({marks})",
            (agent, *some),
        )
        found.update(downstream_id for (downstream_id,) in rows)
    return found
