"""Packing the rows of old turns in the file: see `journal.packing`.

The functions may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3

from acphold.journal.packing import FRAME, PIECE_BYTES, DamagedRowError, packed, unpacked
from acphold.journal.sqlite.connection import Connection, writing
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK


def newest_unpacked(connection: sqlite3.Connection, before: int) -> int | None:
    """The next session to pack: the newest of those last active before `before` (ms since the
    epoch)."""
    row = connection.execute(
        "SELECT number FROM sessions WHERE packed_through < settled_through AND updated_at < ?"
        " ORDER BY updated_at DESC LIMIT 1",
        (before,),
    ).fetchone()
    return None if row is None else int(row[0])


def unpacked_sessions(connection: sqlite3.Connection, before: int) -> int:
    """The number of sessions last active before `before` with rows that are not packed."""
    (count,) = connection.execute(
        "SELECT count(*) FROM sessions WHERE packed_through < settled_through AND updated_at < ?",
        (before,),
    ).fetchone()
    return int(count)


def pack_piece(connection: Connection, session: int, before: int | None = None) -> bool:
    """Pack the next settled rows of a session, up to the first from `before` or later (ms).

    False if there were none.
    """
    if (far := _how_far(connection, session)) is None:
        return False
    rows = _old_rows(connection, session, *far, before)
    if not rows:
        return False
    changed = [
        (smaller, key, len(raw)) for key, raw in rows if len(smaller := packed(raw)) < len(raw)
    ]
    with writing(connection):
        # Another process may have been quicker, or the session was deleted.
        if _how_far(connection, session) == far:
            # The length is compared because a row may have been emptied meanwhile.
            connection.executemany(
                "UPDATE segments SET raw = ? WHERE key = ? AND length(raw) = ?", changed
            )
            connection.execute(
                "UPDATE sessions SET packed_through = ? WHERE number = ?",
                (rows[-1][0] & SEQ_MASK, session),
            )
    return True


def _how_far(connection: sqlite3.Connection, session: int) -> tuple[int, int] | None:
    """The last packed and the last settled entry of a session; None if nothing is left to pack."""
    row = connection.execute(
        "SELECT packed_through, settled_through FROM sessions"
        " WHERE number = ? AND packed_through < settled_through",
        (session,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def _old_rows(
    connection: sqlite3.Connection, session: int, after: int, through: int, before: int | None
) -> list[tuple[int, bytes]]:
    """The keys and contents of the next rows, up to the first that is not old."""
    rows = connection.execute(
        "SELECT key, at, raw FROM segments WHERE key BETWEEN ? AND ? ORDER BY key",
        (session << SEQ_BITS | after + 1, session << SEQ_BITS | through),
    )
    found: list[tuple[int, bytes]] = []
    size = 0
    for key, at, raw in rows:
        if (before is not None and at >= before) or size >= PIECE_BYTES:
            break
        found.append((key, raw))
        size += len(raw)
    # An unfinished statement would keep the write-ahead log from starting over.
    rows.close()
    return found


def damaged_rows(connection: sqlite3.Connection) -> list[str]:
    """A sentence for each of the first packed rows that cannot be read."""
    found: list[str] = []
    for key, raw in connection.execute(
        "SELECT key, raw FROM segments WHERE substr(raw, 1, 4) = ?", (FRAME,)
    ):
        try:
            unpacked(raw)
        except DamagedRowError as error:
            found.append(f"session number {key >> SEQ_BITS}: {error}")
            if len(found) == 20:
                break
    return found
