"""Sessions that an import has listed, and whose transcripts it has not read to their end yet.

    no row ──listed──▶ unread ──its last piece is taken in──▶ read
                          └─given up─▶ no row; or read, where some of it is there

The row says where the transcript is, in words of the import's that the journal does not look into;
and it is the import that gives one up.
Whoever needs such a session has it read first: see `journal.transcripts`.

The function may raise sqlite3 errors.
"""

from __future__ import annotations

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
