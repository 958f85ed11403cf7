"""The list of sessions, newest first, a page at a time."""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec.structs import replace

from acphold.journal.journal import Archived, ListFilter, ListKey, SessionRow
from acphold.journal.location import resolved_folder
from acphold.journal.sqlite.session_rows import SELECT_ROW, session_row

_INDEXES: Final = {
    (False, False): "listed",
    (True, False): "listed_agent",
    (False, True): "listed_folder",
    (True, True): "listed_both",
}
"""The index to walk, by whether the filter names agents and a folder."""

_SHELVES: Final[dict[Archived, tuple[bool, ...]]] = {
    "exclude": (False,),
    "include": (False, True),
    "only": (True,),
}
"""The values of `archived` in a list, each with a walk of its own."""


def page(
    connection: sqlite3.Connection, filter: ListFilter, after: ListKey | None, limit: int
) -> list[SessionRow]:
    """The next `limit` sessions after the position `after`.

    For each agent, one walk along one index, whatever the position and the filter: rows far down
    the list cost no more than the first.
    """
    if len(filter.agents) > 1:
        each = (replace(filter, agents=(agent,)) for agent in dict.fromkeys(filter.agents))
        of_all = [row for one in each for row in page(connection, one, after, limit)]
        return sorted(of_all, key=lambda row: row.key)[:limit]
    if filter.tenant:
        rows = _shared(connection, filter, after, limit)
        rows += _pages(connection, filter, after, limit)
        return sorted(rows, key=lambda row: row.key)[:limit]
    return _pages(connection, filter, after, limit)


def _pages(
    connection: sqlite3.Connection, filter: ListFilter, after: ListKey | None, limit: int
) -> list[SessionRow]:
    """The same for at most one agent, without sessions shared with the tenant."""
    shelves = _SHELVES[filter.archived]
    if len(shelves) == 1 and not filter.include_unprompted and not filter.held:
        return _walk(connection, filter, after, limit, prompted=True, archived=shelves[0])
    rows: list[SessionRow] = []
    for archived in shelves:
        rows += _walk(connection, filter, after, limit, prompted=True, archived=archived)
        if filter.include_unprompted:
            rows += _walk(connection, filter, after, limit, prompted=False, archived=archived)
        elif filter.held:
            rows += _held(connection, filter, after, archived=archived)
    return sorted(rows, key=lambda row: row.key)[:limit]


def _walk(
    connection: sqlite3.Connection,
    filter: ListFilter,
    after: ListKey | None,
    limit: int,
    *,
    prompted: bool,
    archived: bool,
) -> list[SessionRow]:
    index = f"INDEXED BY {_INDEXES[bool(filter.agents), filter.cwd is not None]}"
    if filter.tenant:
        index = f"INDEXED BY listed_tenant{'_unread' * filter.unread}"
    elif filter.unread:
        index = "INDEXED BY listed_unread"
    conditions, values = _conditions(filter, after)
    rows = connection.execute(
        # The index is named: without statistics the planner may choose another one and sort.
        f"{SELECT_ROW} {index} WHERE prompted = ? AND archived = ?{conditions}"
        " ORDER BY updated_at DESC, session_id DESC LIMIT ?",
        (prompted, archived, *values, limit),
    )
    return [session_row(connection, row) for row in rows.fetchall()]


def _held(
    connection: sqlite3.Connection, filter: ListFilter, after: ListKey | None, *, archived: bool
) -> list[SessionRow]:
    """Open sessions that were never prompted: few, so found by id."""
    conditions, values = _conditions(filter, after)
    marks = ", ".join("?" * len(filter.held))
    rows = connection.execute(
        # The pluses keep SQLite from walking all sessions that were never prompted.
        f"{SELECT_ROW} WHERE +prompted = 0 AND +archived = ? AND session_id IN ({marks})"
        f"{conditions}",
        (archived, *filter.held, *values),
    )
    return [session_row(connection, row) for row in rows.fetchall()]


def _shared(
    connection: sqlite3.Connection, filter: ListFilter, after: ListKey | None, limit: int
) -> list[SessionRow]:
    """Sessions that others share with the tenant: few, so found by id."""
    conditions, values = _conditions(replace(filter, tenant=None), after)
    shelves = ", ".join(str(int(archived)) for archived in _SHELVES[filter.archived])
    held = ", ".join("?" * len(filter.held))
    rows = connection.execute(
        f"{SELECT_ROW} WHERE session_id IN (SELECT session_id FROM shares WHERE tenant = ?)"
        f" AND tenant <> ? AND +archived IN ({shelves})"
        f" AND (+prompted = 1 OR ? OR session_id IN ({held})){conditions}"
        " ORDER BY updated_at DESC, session_id DESC LIMIT ?",
        (
            *(filter.tenant, filter.tenant, filter.include_unprompted, *filter.held),
            *(*values, limit),
        ),
    )
    return [session_row(connection, row) for row in rows.fetchall()]


def _conditions(filter: ListFilter, after: ListKey | None) -> tuple[str, list[str | int]]:
    conditions = ""
    values: list[str | int] = []
    if filter.agents:
        conditions += " AND agent = ?"
        values.append(filter.agents[0])
    if filter.cwd is not None:
        conditions += " AND folder = ?"
        values.append(resolved_folder(filter.cwd))
    if filter.tenant is not None:
        # SQLite uses the partial index of tenants only if the query repeats its condition.
        conditions += " AND tenant = ? AND tenant <> ''" if filter.tenant else " AND tenant = ?"
        values.append(filter.tenant)
    if filter.unread:
        conditions += " AND unread IS NOT NULL"
    if after is not None:
        conditions += " AND (updated_at, session_id) < (?, ?)"
        values += (after.updated_at, after.session_id)
    return conditions, values
