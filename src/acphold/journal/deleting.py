"""Deleting a session for good: gone at once, its rows and its words soon after.

The rows go in pieces, so that appends of other sessions wait a few milliseconds at most. What a
crash leaves over is remembered, and goes with the next sweep.
"""

from __future__ import annotations

import sqlite3
import threading

from acphold.journal import history, links, search, standings
from acphold.journal.opening import writing
from acphold.journal.settling import PIECE_BYTES


def delete(connection: sqlite3.Connection, session_id: str, alone: threading.Lock) -> bool:
    """Delete a session, whoever holds it; False when there is none."""
    with alone, writing(connection):
        row = connection.execute(
            "SELECT number FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchone()
        if row is not None:
            links.forget_session(connection, row[0])
            connection.execute("DELETE FROM sessions WHERE number = ?", row)
            connection.execute("DELETE FROM leases WHERE session = ?", row)
            standings.drop(connection, row[0])
            connection.execute("INSERT INTO deleted VALUES (?)", row)
    sweep(connection, alone)
    return row is not None


def sweep(connection: sqlite3.Connection, alone: threading.Lock) -> None:
    """Remove what is left of deleted sessions."""
    for (session,) in connection.execute("SELECT session FROM deleted").fetchall():
        while segments := history.read(connection, session, 0, PIECE_BYTES):
            documents = search.documents(segments)
            with alone, writing(connection):
                search.unindex(connection, session, documents)
                history.remove(connection, session, segments)
        while _purged(connection, alone):
            pass
        with alone, writing(connection):
            connection.execute("DELETE FROM deleted WHERE session = ?", (session,))


def _purged(connection: sqlite3.Connection, alone: threading.Lock) -> bool:
    with alone, writing(connection):
        return search.purge(connection)
