"""Sessions that an import has listed, without reading their transcripts to the end yet.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row has the place of the transcript in a form that only the import knows; only the import gives
a session up.

If somebody needs such a session, it is read first: see `journal.transcripts`.

The function may raise sqlite3 errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from acphold.errors import SessionExistsError
from acphold.journal.journal import Listed
from acphold.journal.sqlite import session_rows
from acphold.journal.sqlite.connection import Connection, writing


def enlist(connection: Connection, found: Sequence[Listed]) -> None:
    """Add rows for sessions, except for known and deleted ones."""
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
