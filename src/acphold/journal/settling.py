"""What follows a turn: its entries are compacted, counted and indexed.

That runs in the background thread, in pieces: the thinking happens outside of the transactions,
so that they are short, and appends of other sessions wait a few milliseconds at most. Whatever
else that thread is asked for, checkpoints above all, has its turn between two pieces.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Final

from msgspec.structs import replace

from acphold.journal import counting, history, search, standings
from acphold.journal.compaction import compact
from acphold.journal.entries import Segment
from acphold.journal.fold import SessionState, fold
from acphold.journal.interface import Lease, Standing
from acphold.journal.opening import writing

PIECE_BYTES: Final = 512 << 10
"""How much history one transaction rewrites, or removes, at most (beyond one segment)."""


def settle_piece(
    connection: sqlite3.Connection, lease: Lease, through: int, alone: threading.Lock
) -> bool:
    """Settle the next entries up to `through`; whether there may be more, False without a lease."""
    settled = _settled_through(connection, lease)
    if settled is None or settled >= through:
        return False
    segments = history.read(connection, lease.number, settled, PIECE_BYTES, through)
    if not segments:
        return False
    standing = standings.settled(connection, lease.number)
    context = replace(
        counting.context(connection, lease.number, settled),
        settings=standing.settings,
        turn=standing.turn,
    )
    piece = _Piece(segments, context)
    with alone, writing(connection):
        if _settled_through(connection, lease) != settled:
            return False
        piece.write(connection, lease.number)
    return True


class _Piece:
    """A run of segments and what becomes of them."""

    def __init__(self, segments: list[Segment], context: SessionState) -> None:
        compacted = compact(segments)
        kept = {*segments} & {*compacted}
        self._gone = [segment for segment in segments if segment not in kept]
        self._new = [segment for segment in compacted if segment not in kept]
        self._documents = search.documents(compacted)
        entries = (entry for segment in compacted for entry in segment.entries())
        state = fold(entries, context)
        self._messages = counting.messages(state) - counting.messages(context)
        self._standing = Standing(state.settings, state.turn)
        self._last_seq = segments[-1].last_seq

    def write(self, connection: sqlite3.Connection, session: int) -> None:
        history.remove(connection, session, self._gone)
        history.insert(connection, session, self._new)
        search.index(connection, session, self._documents)
        standings.keep(connection, session, self._standing)
        connection.execute(
            "UPDATE sessions SET settled_through = ?, message_count = message_count + ?"
            " WHERE number = ?",
            (self._last_seq, self._messages, session),
        )


def _settled_through(connection: sqlite3.Connection, lease: Lease) -> int | None:
    """How far the session is settled; None when the lease is lost."""
    row = connection.execute(
        "SELECT settled_through FROM sessions JOIN leases ON leases.session = sessions.number"
        " WHERE number = ? AND epoch = ?",
        (lease.number, lease.epoch),
    ).fetchone()
    return None if row is None else int(row[0])
