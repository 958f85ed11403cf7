"""The table of deeds: who did what; see `journal.access`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from acphold.journal.access import KEPT_DEEDS, KEPT_DEEDS_MS, Deed

COLUMNS = "at, deed, name, token, session_id, address, transport"


def read(connection: sqlite3.Connection, since: int, limit: int) -> list[Deed]:
    """The last `limit` deeds since `since`, oldest first."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM deeds WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?",
        (since, limit),
    )
    return [
        Deed(
            at=at,
            deed=deed,
            name=name,
            token=token,
            session_id=session_id,
            address=address,
            transport=transport,
        )
        for at, deed, name, token, session_id, address, transport in reversed(rows.fetchall())
    ]


def keep(connection: sqlite3.Connection, deeds: Sequence[Deed]) -> None:
    """Add deeds, and forget those beyond the limits."""
    connection.executemany(
        f"INSERT INTO deeds ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (it.at, it.deed, it.name, it.token, it.session_id, it.address, it.transport)
            for it in deeds
        ],
    )
    for token in {it.token for it in deeds}:
        connection.execute(
            "DELETE FROM deeds WHERE token = ?1 AND id <= (SELECT id FROM deeds WHERE token = ?1"
            " ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            (token, KEPT_DEEDS),
        )
    newest = max(it.at for it in deeds)
    connection.execute("DELETE FROM deeds WHERE at < ?", (newest - KEPT_DEEDS_MS,))
