"""Sessions that an import has listed, and whose transcripts it has not read to their end yet.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row says where the transcript is, in words of the import's that the journal does not look into.
Whoever needs such a session has it read first: see `journal.transcripts`.

The functions with a connection may raise sqlite3 errors; those with a Connection make a transaction
of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from acphold.errors import SessionExistsError
from acphold.journal.journal import Listed
from acphold.journal.sqlite import session_rows
from acphold.journal.sqlite.connection import Connection, writing


def enlist(connection: Connection, found: Sequence[Listed]) -> None:
    """Make the rows of sessions, but of those that are known, or were deleted."""
    with writing(connection):
        for listed in found:
            agent, downstream_id = listed.new.agent, listed.downstream_id
            if session_rows.linked(connection, agent, [downstream_id]):
                continue
            try:
                number = session_rows.create(connection, listed.new)
            except SessionExistsError:
                continue
            connection.execute(
                "UPDATE sessions SET prompted = 1, updated_at = ?, unread = ? WHERE number = ?",
                (listed.updated_at, listed.source, number),
            )
            session_rows.link(connection, agent, downstream_id, number)


def sources(connection: sqlite3.Connection, session_id: str | None) -> dict[str, bytes]:
    """Where the transcripts of unread sessions are, by the sessions' ids; of one, or of all."""
    rows = connection.execute(
        "SELECT session_id, unread FROM sessions WHERE unread IS NOT NULL"
        + ("" if session_id is None else " AND session_id = ?"),
        () if session_id is None else (session_id,),
    )
    return {found: bytes(where) for found, where in rows.fetchall()}


def give_up(connection: Connection, session_id: str) -> None:
    """Nothing more of this session can be read: what there is of it is all; without any it goes."""
    with writing(connection):
        row = connection.execute(
            f"{session_rows.SELECT_ROW} WHERE session_id = ? AND unread IS NOT NULL", (session_id,)
        ).fetchone()
        if row is None:
            return
        number, last_seq = row[10], row[9]
        if last_seq:
            connection.execute("UPDATE sessions SET unread = NULL WHERE number = ?", (number,))
            return
        for table, column in (("links", "session"), ("leases", "session"), ("sessions", "number")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
