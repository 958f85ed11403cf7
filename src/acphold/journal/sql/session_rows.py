"""The rows of sessions: finding and changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acphold.errors import UnknownSessionError
from acphold.journal import id_prefixes
from acphold.journal.journal import Lease, RowChange, SessionRow
from acphold.journal.location import resolved_folder
from acphold.journal.sql import lease_rows, session_columns
from acphold.journal.sql.tables import Tables, batches


def select(
    tables: Tables, rest: str, values: Sequence[Any], *, counted: bool = True
) -> list[SessionRow]:
    """The rows that a condition in SQL finds, with unsettled messages if `counted`."""
    rows = tables.execute(f"{tables.SELECT_ROW} {rest}", values).fetchall()
    return session_columns.decoded(rows, tables.segments_of if counted else None)


def find(tables: Tables, session_id: str, *, counted: bool = False) -> SessionRow:
    """Like `Journal.session`."""
    for row in select(tables, "WHERE session_id = %s", (session_id,), counted=counted):
        return row
    raise UnknownSessionError(session_id)


def count(tables: Tables) -> int:
    """The number of sessions."""
    return int(tables.execute("SELECT count(*) FROM acphold.sessions").fetchone()[0])


def unindexed(tables: Tables, cwd: str | None = None) -> int:
    """The number of sessions, in a folder or in all, that are not fully indexed."""
    of_folder = "" if cwd is None else " AND folder = %s"
    rows = tables.execute(
        "SELECT count(*) FROM acphold.sessions WHERE indexed_through < settled_through" + of_folder,
        () if cwd is None else (resolved_folder(cwd),),
    )
    return int(rows.fetchone()[0])


def resolve(tables: Tables, prefix: str, cwd: str | None = None) -> SessionRow:
    """Like `Journal.resolve`."""
    of_folder = "" if cwd is None else " AND folder = %s"
    found = tables.execute(
        f"SELECT session_id FROM acphold.sessions WHERE session_id BETWEEN %s AND %s{of_folder}"
        " ORDER BY 1 LIMIT %s",
        (
            *id_prefixes.span(prefix),
            *(() if cwd is None else (resolved_folder(cwd),)),
            id_prefixes.MATCHES + 1,
        ),
    )
    only_one = id_prefixes.only_one(prefix, [match for (match,) in found.fetchall()])
    return find(tables, only_one, counted=True)


def short_ids(tables: Tables, session_ids: Sequence[str], least: int) -> list[str]:
    """Like `Journal.short_ids`."""
    short: dict[str, str] = {}
    for some in batches(session_ids):
        rows = tables.execute(
            f"WITH wanted(it) AS (VALUES {', '.join(['(%s)'] * len(some))})"
            " SELECT it, (SELECT max(session_id) FROM acphold.sessions WHERE session_id < it),"
            " (SELECT min(session_id) FROM acphold.sessions WHERE session_id > it) FROM wanted",
            some,
        )
        for session_id, *neighbours in rows.fetchall():
            short[session_id] = id_prefixes.shortest(session_id, neighbours, least)
    return [short[session_id] for session_id in session_ids]


def change(tables: Tables, session: Lease | str, change: RowChange) -> None:
    """Like `Journal.change`."""
    if isinstance(session, Lease):
        lease_rows.require(tables, session)
        key = tables.key(session)
    else:
        key = tables.key_of(session)
    tables.update(key, *session_columns.assignments(change, "%s"))
