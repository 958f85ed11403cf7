"""The tables of sessions and of links to the agents' own ids.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from acphold.errors import SessionExistsError
from acphold.history.entries import PROMPT, TURN_END
from acphold.history.times import now_ms
from acphold.journal.journal import NewSession, RowChanges
from acphold.journal.sql import session_columns
from acphold.journal.sql.history import BEHIND_A_TURN
from acphold.journal.sql.tables import LastOfTurns
from acphold.journal.sqlite import segments
from acphold.journal.sqlite.migrations import SEQ_BITS, SEQ_MASK

LAST_KEY: Final = (
    "(SELECT key FROM segments WHERE key BETWEEN ({0} << 32)"
    " AND ({0} << 32 | 4294967295) ORDER BY key DESC LIMIT 1)"
)
"""The last segment of a session; format it with the SQL of the session's number."""

LAST_SEQ: Final = f"coalesce({LAST_KEY.format('sessions.number')} & 4294967295, 0)"

SELECT_ROW: Final = session_columns.select(
    "sessions",
    {
        "last_seq": LAST_SEQ,
        "downstream_id": "(SELECT downstream_id FROM links WHERE session = sessions.number"
        " ORDER BY links.number DESC LIMIT 1)",
        "shared_with": "(SELECT json_group_object(tenant, prompts) FROM shares"
        " WHERE shares.session_id = sessions.session_id)",
        "lineage": "(SELECT substr(value, 1, instr(value, ' ') - 1) FROM meta WHERE name = 'era')",
    },
)


OF_AGENTS: Final = "(:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents)))"
"""True for sessions of the agents that `as_json` encoded."""


def as_json(agents: tuple[str, ...]) -> str | None:
    """The agents as a parameter for OF_AGENTS; None means all."""
    return msgspec.json.encode(agents).decode() if agents else None


SHARED_WITH: Final = "session_id IN (SELECT session_id FROM shares WHERE tenant = :tenant)"
"""Sessions that others share with a tenant, as SQL."""

THERE_FOR: Final = f"(tenant = :tenant OR {SHARED_WITH})"
"""`SessionRow.is_there_for` a tenant, as SQL: for checking a row, not for finding rows."""


def create(connection: sqlite3.Connection, new: NewSession) -> int:
    """Insert a session and return its number; raises SessionExistsError."""
    row = session_columns.new_row(new, now_ms())
    try:
        number = connection.execute(
            f"INSERT INTO sessions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            [*row.values()],
        ).lastrowid
    except sqlite3.IntegrityError as error:
        raise SessionExistsError(f"there is a session {new.session_id!r} already") from error
    assert number is not None
    return number


def updated_by_last_entry(connection: sqlite3.Connection, number: int) -> int:
    """Return the last seq of a session, and bring the row's time up to it: its last owner may have
    died before updating the row."""
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


# -- what is new ------------------------------------------------------------------------------


def changes(connection: sqlite3.Connection, after: int | None, limit: int) -> RowChanges:
    """Like `Journal.changes`."""
    if after is None:
        (last,) = connection.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        return RowChanges((), last)
    rows = connection.execute(
        "SELECT session_id, revision FROM changes WHERE revision > ? ORDER BY revision LIMIT ?",
        (after, limit + 1),
    ).fetchall()
    shown = rows[:limit]
    last = shown[-1][1] if shown else after
    return RowChanges([session_id for session_id, _ in shown], last, len(rows) > limit)


_LAST_OF_TURNS: Final = (
    "SELECT kind, raw FROM (SELECT key, kind, raw FROM segments"
    " WHERE key BETWEEN ?1 << 32 AND (?1 << 32 | 4294967295) ORDER BY key DESC LIMIT ?2)"
    f" WHERE kind IN ({segments.CODES[PROMPT]}, {segments.CODES[TURN_END]})"
    " ORDER BY key DESC LIMIT 1"
)


def last_of_turns(
    connection: sqlite3.Connection, session_ids: Iterable[str]
) -> Iterator[LastOfTurns]:
    """Yield the ends of the last turns of those sessions that there are."""
    for session_id in session_ids:
        row = connection.execute(
            "SELECT number, settled_through, prompted FROM sessions WHERE session_id = ?",
            (session_id,),
        ).fetchone()
        if row is not None:
            number, settled, prompted = row
            last = connection.execute(_LAST_OF_TURNS, (number, BEHIND_A_TURN)).fetchone()
            is_end = last is not None and last[0] == segments.CODES[TURN_END]
            its = segments.SqliteSegments(connection, number)
            yield LastOfTurns(session_id, last[1] if is_end else None, prompted, settled, its)
