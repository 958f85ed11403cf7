"""The rows of sessions and of their leases: SQL, and what its rows mean.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from acphold.errors import (
    AmbiguousIdError,
    LeaseLostError,
    SessionExistsError,
    UnknownSessionError,
)
from acphold.journal import counting
from acphold.journal.interface import (
    LEASE_SECONDS,
    Holder,
    Lease,
    NewSession,
    SessionRow,
)
from acphold.journal.migrations import SEQ_BITS, SEQ_MASK

_LAST_KEY: Final = (
    "(SELECT key FROM segments WHERE key BETWEEN (sessions.number << 32)"
    " AND (sessions.number << 32 | 4294967295) ORDER BY key DESC LIMIT 1)"
)

SELECT_ROW: Final = (
    "SELECT session_id, agent, cwd, additional_directories, title, created_at, updated_at,"
    f" message_count, prompted, coalesce({_LAST_KEY} & 4294967295, 0),"
    " number, settled_through FROM sessions"
)
"""The columns `session_row` reads."""

Row = tuple[str, str, str, str, str | None, int, int, int, int, int, int, int]

_decode_directories = msgspec.json.Decoder(tuple[str, ...]).decode


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def session_row(connection: sqlite3.Connection, row: Row) -> SessionRow:
    """What a row of SELECT_ROW says."""
    session_id, agent, cwd, directories, title, created, updated, messages = row[:8]
    prompted, last, number, settled = row[8:]
    if last > settled and prompted:
        messages += counting.unsettled(connection, number, settled)
    return SessionRow(
        session_id,
        agent,
        cwd,
        () if directories == "[]" else _decode_directories(directories),
        title,
        created,
        updated,
        messages,
        bool(prompted),
        last,
    )


def find(connection: sqlite3.Connection, session_id: str) -> SessionRow:
    """The row of a session; raises UnknownSessionError."""
    row = connection.execute(f"{SELECT_ROW} WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return session_row(connection, row)


def resolve(connection: sqlite3.Connection, prefix: str) -> SessionRow:
    """The session with this id or this beginning; UnknownSessionError, AmbiguousIdError."""
    try:
        return find(connection, prefix)
    except UnknownSessionError:
        if not prefix:
            raise
    # A range, not LIKE: exact in case, blind to wildcards, and a walk along the index.
    matches = connection.execute(
        "SELECT session_id FROM sessions WHERE session_id BETWEEN ? AND ? ORDER BY 1 LIMIT 4",
        (prefix, f"{prefix}\U0010ffff"),
    ).fetchall()
    if not matches:
        raise UnknownSessionError(prefix, f"no session id begins with {prefix!r}")
    if len(matches) > 1:
        raise AmbiguousIdError(prefix, tuple(match for (match,) in matches))
    return find(connection, matches[0][0])


def number_of(connection: sqlite3.Connection, session_id: str) -> int:
    """The journal's own key of a session; raises UnknownSessionError."""
    row = connection.execute(
        "SELECT number FROM sessions WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return int(row[0])


def create(connection: sqlite3.Connection, new: NewSession, owner: str) -> Lease:
    """Insert a session and its lease; raises SessionExistsError."""
    at = now_ms()
    created = at if new.created_at is None else new.created_at
    directories = msgspec.json.encode(new.additional_directories).decode()
    columns = (new.session_id, new.agent, new.cwd, directories, storable(new.title))
    try:
        number = connection.execute(
            "INSERT INTO sessions (session_id, agent, cwd, additional_directories, title,"
            " created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*columns, created, created),
        ).lastrowid
    except sqlite3.IntegrityError as error:
        raise SessionExistsError(f"there is a session {new.session_id!r} already") from error
    assert number is not None
    expires = at + round(LEASE_SECONDS * 1000)
    connection.execute("INSERT INTO leases VALUES (?, ?, 1, ?)", (number, owner, expires))
    return Lease(new.session_id, number, owner, epoch=1, next_seq=1)


def acquire(connection: sqlite3.Connection, session_id: str, owner: str) -> Lease:
    """Take the lease over with a new epoch; raises UnknownSessionError."""
    number = number_of(connection, session_id)
    expires = now_ms() + round(LEASE_SECONDS * 1000)
    connection.execute(
        "UPDATE leases SET owner = ?, epoch = epoch + 1, expires_at = ? WHERE session = ?",
        (owner, expires, number),
    )
    (epoch,) = connection.execute(
        "SELECT epoch FROM leases WHERE session = ?", (number,)
    ).fetchone()
    return Lease(session_id, number, owner, epoch, _repair(connection, number) + 1)


def _repair(connection: sqlite3.Connection, number: int) -> int:
    """The last seq of a session whose last owner may have died before it touched the row."""
    last = connection.execute(
        "SELECT key, at FROM segments WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << SEQ_BITS, number << SEQ_BITS | SEQ_MASK),
    ).fetchone()
    if last is None:
        return 0
    key, at = last
    connection.execute(
        "UPDATE sessions SET updated_at = ? WHERE number = ? AND updated_at < ?", (at, number, at)
    )
    return int(key) & SEQ_MASK


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


def touch(
    connection: sqlite3.Connection,
    lease: Lease,
    title: str | UnsetType | None,
    updated_at: int | UnsetType,
    prompted: bool | UnsetType,
) -> None:
    """Write what is set into the session's row; raises LeaseLostError."""
    require(connection, lease)
    changes: dict[str, str | int | None] = {}
    if title is not UNSET:
        changes["title"] = storable(title)
    if updated_at is not UNSET:
        changes["updated_at"] = updated_at
    if prompted is not UNSET:
        changes["prompted"] = int(prompted)
    if changes:
        columns = ", ".join(f"{column} = ?" for column in changes)
        connection.execute(
            f"UPDATE sessions SET {columns} WHERE number = ?", (*changes.values(), lease.number)
        )


def require(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease still stands."""
    row = connection.execute(
        "SELECT 1 FROM leases WHERE session = ? AND epoch = ?", (lease.number, lease.epoch)
    ).fetchone()
    if row is None:
        raise LeaseLostError(lease.session_id)


def rename(connection: sqlite3.Connection, session_id: str, title: str | None) -> None:
    """Set the title; raises UnknownSessionError."""
    done = connection.execute(
        "UPDATE sessions SET title = ? WHERE session_id = ?", (storable(title), session_id)
    )
    if not done.rowcount:
        raise UnknownSessionError(session_id)


def storable(text: str | None) -> str | None:
    """`text` with a question mark for each half of a broken surrogate pair.

    JavaScript sends such halves when it cuts a string in the middle; UTF-8 cannot hold them.
    """
    return None if text is None else text.encode(errors="replace").decode()
