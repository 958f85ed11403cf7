"""How a session stands, kept with what is settled, so that nobody folds a long history to know."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from acphold.journal import history, sessions
from acphold.journal.fold import SessionState, fold
from acphold.journal.interface import READ_BYTES, Standing

_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.Decoder(Standing).decode


def now(connection: sqlite3.Connection, session_id: str) -> Standing:
    """How the session stands: what was kept, and what came behind it; UnknownSessionError."""
    number = sessions.number_of(connection, session_id)
    (after,) = connection.execute(
        "SELECT settled_through FROM sessions WHERE number = ?", (number,)
    ).fetchone()
    kept = settled(connection, number)
    state = SessionState(settings=kept.settings, turn=kept.turn)
    while segments := history.read(connection, number, after, READ_BYTES):
        state = fold((entry for segment in segments for entry in segment.entries()), state)
        state = SessionState(settings=state.settings, turn=state.turn)
        after = segments[-1].last_seq
    return Standing(state.settings, state.turn)


def settled(connection: sqlite3.Connection, session: int) -> Standing:
    """How the session stood at `settled_through`."""
    row = connection.execute(
        "SELECT standing FROM standings WHERE session = ?", (session,)
    ).fetchone()
    return Standing() if row is None else _decode(row[0])


def keep(connection: sqlite3.Connection, session: int, standing: Standing) -> None:
    """Note how the session stands at what is to be its `settled_through`."""
    connection.execute(
        "INSERT OR REPLACE INTO standings VALUES (?, ?)", (session, _encode(standing))
    )


def drop(connection: sqlite3.Connection, session: int) -> None:
    """The session is deleted."""
    connection.execute("DELETE FROM standings WHERE session = ?", (session,))
