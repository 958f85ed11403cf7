"""Leases: which process may write to a session.

    granted ──acquire by anybody──▶ granted to them, with a higher epoch
    granted ──release───────────▶ expired: it still counts until somebody acquires
    granted ──delete────────────▶ gone: nothing under it is written any more

Epochs come from one counter of the journal, so none is given out twice: not even to a session
that has the id of a deleted one. The functions run inside a transaction of the caller's and may
raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3

from acphold.errors import HeldElsewhereError, LeaseLostError, UnknownSessionError
from acphold.journal.journal import LEASE_SECONDS, Holder, Lease
from acphold.journal.session_rows import now_ms, number_of, updated_by_last_entry


def grant(connection: sqlite3.Connection, session_id: str, number: int, owner: str) -> Lease:
    """Give the session to `owner`, whoever had it."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
    (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    expires = now_ms() + round(LEASE_SECONDS * 1000)
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", (number, owner, epoch, expires)
    )
    return Lease(session_id, number, owner, epoch, updated_by_last_entry(connection, number) + 1)


def acquire(
    connection: sqlite3.Connection, session_id: str, owner: str, seen: int | None = None
) -> Lease:
    """Take the session over; raises UnknownSessionError.

    HeldElsewhereError when `seen` is given and not the epoch of the lease any more: somebody was
    quicker.
    """
    number = number_of(connection, session_id)
    if seen is not None and (now := holder(connection, session_id)).epoch != seen:
        raise HeldElsewhereError(session_id, now.owner, now.epoch)
    return grant(connection, session_id, number, owner)


def holder(connection: sqlite3.Connection, session_id: str) -> Holder:
    """Who has the lease; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT owner, epoch, expires_at FROM leases WHERE session ="
        " (SELECT number FROM sessions WHERE session_id = ?)",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return Holder(*row)


def expire(connection: sqlite3.Connection, lease: Lease, at: int) -> bool:
    """Let the lease end at `at` (ms since the epoch); False when it is lost."""
    done = connection.execute(
        "UPDATE leases SET expires_at = ? WHERE session = ? AND epoch = ?",
        (at, lease.number, lease.epoch),
    )
    return done.rowcount == 1


def require(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease still stands."""
    row = connection.execute(
        "SELECT 1 FROM leases WHERE session = ? AND epoch = ?", (lease.number, lease.epoch)
    ).fetchone()
    if row is None:
        raise lost(connection, lease)


def lost(connection: sqlite3.Connection, lease: Lease) -> LeaseLostError:
    """Who holds the session instead: another process, or nobody, for it was deleted."""
    found = connection.execute(
        "SELECT 1 FROM sessions WHERE number = ?", (lease.number,)
    ).fetchone()
    return LeaseLostError(lease.session_id, deleted=found is None)
