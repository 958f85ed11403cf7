"""Packing the rows of old turns: see `journal.frames`."""

from __future__ import annotations

from acphold.journal.frames import PIECE_BYTES, packed
from acphold.journal.sql.tables import Key, Tables

_UNPACKED = "FROM acphold.sessions WHERE packed_through < settled_through AND updated_at < %s"


def newest_unpacked(tables: Tables, before: int) -> Key | None:
    """The next session to pack: the newest of those last active before `before` (ms since the
    epoch)."""
    row = tables.execute(
        f"SELECT {tables.OWN_KEY} {_UNPACKED} ORDER BY updated_at DESC LIMIT 1", (before,)
    ).fetchone()
    return None if row is None else row[0]


def unpacked_sessions(tables: Tables, before: int) -> int:
    """The number of sessions last active before `before` with rows that are not packed."""
    (count,) = tables.execute(f"SELECT count(*) {_UNPACKED}", (before,)).fetchone()
    return int(count)


def pack_piece(tables: Tables, key: Key, before: int | None = None) -> bool:
    """Pack the next settled rows of a session, up to the first from `before` or later (ms).

    False if there were none.
    """
    if (far := _how_far(tables, key)) is None:
        return False
    rows: list[tuple[int, bytes]] = []
    size = 0
    for seq, at, raw in tables.segments(key).stored(*far):
        if (before is not None and at >= before) or size >= PIECE_BYTES:
            break
        rows.append((seq, raw))
        size += len(raw)
    if not rows:
        return False
    changed = [
        (smaller, seq, len(raw)) for seq, raw in rows if len(smaller := packed(raw)) < len(raw)
    ]
    with tables.writing():
        # Another process may have been quicker, or the session was deleted.
        if _how_far(tables, key, tables.LOCKING_ROW) == far:
            # The length is compared because a row may have been emptied meanwhile.
            tables.segments(key).rewrite(changed)
            tables.execute(
                f"UPDATE acphold.sessions SET packed_through = %s WHERE {tables.OWN_KEY} = %s",
                (rows[-1][0], key),
            )
    return True


def _how_far(tables: Tables, key: Key, locking: str = "") -> tuple[int, int] | None:
    """The last packed and the last settled entry of a session; None if nothing is left to pack."""
    row = tables.execute(
        "SELECT packed_through, settled_through FROM acphold.sessions"
        f" WHERE {tables.OWN_KEY} = %s AND packed_through < settled_through{locking}",
        (key,),
    ).fetchone()
    return None if row is None else (row[0], row[1])
