"""Repair of derived data of sessions: counts, summaries, sums of usage, the search index.

All of it can be computed from the entries and the usage reports, which are never changed here.
Repair goes session by session while others use the journal. A result is written only if the session
was not settled again meanwhile.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from acphold.history.compaction import snapshots
from acphold.history.fold import Fold
from acphold.journal import settlement
from acphold.journal.in_file import Repaired
from acphold.journal.sql import settled_rows, usage_rows
from acphold.journal.sqlite import checks, deletion, search_index, segments
from acphold.journal.sqlite.connection import Connection, reading, writing
from acphold.journal.sqlite.tables import SqliteTables
from acphold.journal.stored_history import read_all

TRIES: Final = 5
"""Attempts to count a session that is settled meanwhile, as happens after every turn."""

_ORPHANS: Final = """
    SELECT DISTINCT number FROM (
        SELECT key >> 32 AS number FROM segments
        UNION SELECT entry >> 32 FROM documents
        UNION SELECT session FROM summaries
        UNION SELECT session FROM leases
        UNION SELECT session FROM usage
        UNION SELECT session FROM usage_slots
        UNION SELECT session FROM usage_costs
        UNION SELECT session FROM snapshots
    ) WHERE number NOT IN (SELECT number FROM sessions)
"""


def repair(connection: Connection) -> Repaired:
    """Recount every session, remove rows without a session, and clear the search index.

    Afterwards the index has to catch up.
    """
    known = "SELECT session FROM deleted"
    orphans = connection.execute(f"{_ORPHANS} AND number NOT IN ({known})").fetchall()
    with writing(connection):
        for (number,) in orphans:
            deletion.remove_rows(connection, number)
    for _ in deletion.sweep(connection):
        pass
    numbers = connection.execute("SELECT number, session_id FROM sessions").fetchall()
    miscounted = [
        name
        for number, name in numbers
        if _recounted(connection, number) | _added_up(connection, number)
    ]
    for _ in search_index.forget(connection):
        pass
    return Repaired(tuple(miscounted), len(orphans))


def _added_up(connection: Connection, number: int) -> bool:
    """Correct the sums of usage of a session; True if they were wrong."""
    with reading(connection):
        if usage_rows.has_right_sums(SqliteTables(connection), number):
            return False
    with writing(connection):
        usage_rows.add_up(SqliteTables(connection), number)
    return True


class _Kept(Struct, frozen=True):
    """The stored data of a session: how far it is settled, and its count and state there.

    `state` is None if it is not what was written.
    """

    through: int
    messages: int
    state: settlement.Settled | None


def _recounted(connection: Connection, number: int) -> bool:
    """Correct the count and summary of a session; True if they were wrong."""
    for _ in range(TRIES):
        kept = _kept(connection, number)
        if kept is None or (right := _computed(connection, number, kept.through)) == kept:
            return False
        with writing(connection):
            if _kept(connection, number) != kept or right.state is None:
                continue
            connection.execute(
                "UPDATE sessions SET message_count = ? WHERE number = ?", (right.messages, number)
            )
            SqliteTables(connection).keep_settled_state(number, right.state)
            return True
    return False


def _kept(connection: Connection, number: int) -> _Kept | None:
    row = connection.execute(
        "SELECT settled_through, message_count FROM sessions WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        return None
    is_spoiled = bool(checks.spoiled_summaries(connection, number))
    state = None if is_spoiled else settled_rows.settled_state(SqliteTables(connection), number)
    return _Kept(row[0], row[1], state)


def _computed(connection: Connection, number: int, through: int) -> _Kept:
    folding = Fold()
    newest: dict[str, int] = {}
    for segment in read_all(segments.SqliteSegments(connection, number), 0):
        if segment.last_seq > through:
            break
        newest |= snapshots([segment])
        for entry in segment.entries():
            folding.add(entry)
    state = folding.state()
    return _Kept(through, settlement.messages(state), settlement.Settled(state.summary(), newest))
