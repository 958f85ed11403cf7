"""The tables of sessions and of links to the agents' own ids.

The functions run inside a transaction of the caller, or are one by themselves, and may raise
psycopg errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

from acphold.errors import RewrittenError, SessionExistsError
from acphold.history.entries import PROMPT, TURN_END
from acphold.journal.journal import NewSession, RowChange, RowChanges
from acphold.journal.postgresql import segments
from acphold.journal.postgresql.leases import CHANGED, ERA, HERE
from acphold.journal.postgresql.migrations import Line
from acphold.journal.sql import session_columns
from acphold.journal.sql.history import BEHIND_A_TURN
from acphold.journal.sql.tables import LastOfTurns

LAST_SEQ: Final = (
    "(SELECT last_seq FROM acphold.segments WHERE segments.session_id = sessions.session_id"
    " ORDER BY last_seq DESC LIMIT 1)"
)

SELECT_ROW: Final = session_columns.select(
    "acphold.sessions",
    {
        "last_seq": f"coalesce({LAST_SEQ}, 0)",
        "downstream_id": "(SELECT downstream_id FROM acphold.links"
        " WHERE links.session_id = sessions.session_id ORDER BY links.number DESC LIMIT 1)",
        "shared_with": "(SELECT coalesce(json_object_agg(shares.tenant, prompts)::text, '{}')"
        " FROM acphold.shares WHERE shares.session_id = sessions.session_id)",
        "lineage": ERA,
    },
)


def create(line: Line, new: NewSession, number: int) -> None:
    """Insert a session without an owner; raises SessionExistsError."""
    row = session_columns.new_row(new, None) | {"number": number}
    marks = [_VALUES.get(name, "%s") for name in row]
    done = line.execute(
        f"INSERT INTO acphold.sessions ({', '.join(row)}) VALUES ({', '.join(marks)})"
        " ON CONFLICT DO NOTHING",
        [*row.values()],
    )
    if not done.rowcount:
        raise SessionExistsError(f"there is a session {new.session_id!r} already")
    line.execute("INSERT INTO acphold.leases VALUES (%s, '', 0, false)", (new.session_id,))


_VALUES: Final = dict.fromkeys(
    ("created_at", "updated_at"), f"coalesce(%s::bigint, {segments.NOW_MS})"
)


def assignments(change: RowChange | None) -> tuple[str, list[Any]]:
    """The values set in `change`, as SQL assignments; "" if none is."""
    parts, values = session_columns.assignments(change, "%s")
    return ", ".join([*parts, CHANGED] if parts else []), values


# -- what is new ------------------------------------------------------------------------------


def changes(line: Line, after: int | None, limit: int) -> RowChanges:
    """Like `Journal.changes`.

    A change is numbered by its transaction, plus a mark of the server in the high bits: a server
    that replaces another repeats the numbers. Only changes below the oldest open transaction are
    returned. Otherwise a transaction with a lower number that commits later would be missed.
    """
    row = line.execute(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
        f" pg_snapshot_xmax(pg_current_snapshot())::text::bigint, {HERE}"
    ).fetchone()
    assert row is not None
    oldest, next_one, here = row
    mark = crc32(here) << _NUMBER_BITS
    if after is None:
        return RowChanges((), mark | oldest - 1)
    if after >> _NUMBER_BITS << _NUMBER_BITS != mark:
        raise RewrittenError("the database may have gone back since these changes were told")
    after -= mark
    rows = line.execute(
        "SELECT session_id, changed::text::bigint FROM ("
        " SELECT session_id, changed FROM acphold.sessions WHERE changed > %s::text::xid8"
        " UNION ALL"
        " SELECT session_id, changed FROM acphold.gone WHERE changed > %s::text::xid8"
        ") AS news WHERE changed < %s::text::xid8"
        " ORDER BY changed FETCH FIRST %s ROWS WITH TIES",
        (str(after), str(after), str(oldest), limit + 1),
    ).fetchall()
    is_more = len(rows) > limit
    if is_more:  # leave out a transaction of which only a part fits
        last = rows[limit][1]
        whole = [row for row in rows if row[1] < last]
        rows = whole or rows
    through = rows[-1][1] if is_more else max(after, oldest - 1)
    late = False
    if oldest < next_one:
        row = line.execute(
            "SELECT EXISTS (SELECT FROM acphold.sessions WHERE changed >= %s::text::xid8)"
            " OR EXISTS (SELECT FROM acphold.gone WHERE changed >= %s::text::xid8)",
            (str(oldest), str(oldest)),
        ).fetchone()
        late = row is not None and row[0]
    ids = [*dict.fromkeys(session_id for session_id, _ in rows)]
    return RowChanges(ids, mark | through, is_more, late)


_NUMBER_BITS: Final = 64
"""Bits of a transaction's number."""


_LAST_OF_TURNS: Final = """
    SELECT sessions.session_id, settled_through, prompted, last.kind, last.raw
    FROM acphold.sessions LEFT JOIN LATERAL (
        SELECT kind, raw FROM (
            SELECT last_seq, kind, raw FROM acphold.segments
            WHERE segments.session_id = sessions.session_id ORDER BY last_seq DESC LIMIT %s
        ) AS behind WHERE kind IN (%s, %s) ORDER BY last_seq DESC LIMIT 1
    ) AS last ON true
    WHERE sessions.session_id = ANY(%s)
"""


def last_of_turns(line: Line, session_ids: Iterable[str]) -> Iterator[LastOfTurns]:
    """Yield the ends of the last turns of those sessions that there are."""
    rows = line.execute(_LAST_OF_TURNS, (BEHIND_A_TURN, PROMPT, TURN_END, [*session_ids]))
    for session_id, settled, prompted, kind, raw in rows.fetchall():
        its = segments.PostgresqlSegments(line, session_id)
        end = raw if kind == TURN_END else None
        yield LastOfTurns(session_id, end, prompted, settled, its)


_WITHOUT_SESSION: Final = """
    WITH RECURSIVE ids AS (
        (SELECT session_id FROM acphold.segments ORDER BY session_id LIMIT 1)
        UNION ALL
        SELECT (SELECT segments.session_id FROM acphold.segments
            WHERE segments.session_id > ids.session_id ORDER BY segments.session_id LIMIT 1)
        FROM ids WHERE ids.session_id IS NOT NULL
    )
    SELECT session_id FROM ids WHERE session_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM acphold.sessions WHERE sessions.session_id = ids.session_id)
    LIMIT 20
"""
"""Jumps from one session to the next: one step each, however many entries it has."""


def without_session(line: Line) -> list[str]:
    """Some of the ids that have entries but no session."""
    return [session_id for (session_id,) in line.execute(_WITHOUT_SESSION).fetchall()]


# -- deleting ---------------------------------------------------------------------------------

OF_A_SESSION: Final = (
    "leases",
    "segments",
    "summaries",
    "documents",
    "usage",
    "usage_slots",
    "usage_costs",
    "shares",
    "snapshots",
    "sessions",
)
"""The tables whose rows are deleted with a session."""


DELETED_AT_ONCE: Final = 50
"""Sessions deleted in one transaction: anybody who opens one of them waits for it."""


def lock(line: Line, session_ids: Sequence[str], idle_since: int | None) -> list[str]:
    """Lock sessions against changes until the transaction ends; return those that exist.

    With `idle_since`, only those last active by then.
    """
    # First the leases, then the rows, as appends do; both sorted by id. So two deletions cannot
    # deadlock.
    asked = {"ids": [*session_ids], "since": idle_since}
    line.execute(
        "SELECT FROM acphold.leases WHERE session_id = ANY(%(ids)s) ORDER BY session_id FOR UPDATE",
        asked,
    )
    rows = line.execute(
        "SELECT session_id FROM acphold.sessions WHERE session_id = ANY(%(ids)s)"
        " AND (%(since)s::bigint IS NULL OR updated_at <= %(since)s)"
        " ORDER BY session_id FOR UPDATE",
        asked,
    )
    return [session_id for (session_id,) in rows.fetchall()]


def delete(line: Line, session_ids: Sequence[str], *, as_if_never: bool) -> None:
    """Delete all rows of sessions; their links stay as tombstones unless `as_if_never`."""
    its = ([*session_ids],)
    if as_if_never:
        line.execute("DELETE FROM acphold.links WHERE session_id = ANY(%s)", its)
    else:
        line.execute("UPDATE acphold.links SET session_id = NULL WHERE session_id = ANY(%s)", its)
    for table in OF_A_SESSION:
        line.execute(f"DELETE FROM acphold.{table} WHERE session_id = ANY(%s)", its)
    line.execute("INSERT INTO acphold.gone (session_id) SELECT unnest(%s::text[])", its)
