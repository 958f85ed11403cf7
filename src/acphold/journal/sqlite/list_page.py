"""The list of sessions, newest first, a page at a time."""

from __future__ import annotations

from typing import Final

from acphold.journal.journal import ListFilter, ListKey, SessionRow
from acphold.journal.sql.list_filters import walks
from acphold.journal.sql.session_rows import select
from acphold.journal.sqlite.connection import Connection
from acphold.journal.sqlite.tables import SqliteTables

_INDEXES: Final = {
    (False, False): "listed",
    (True, False): "listed_agent",
    (False, True): "listed_folder",
    (True, True): "listed_both",
}
"""The index to walk, by whether the filter names agents and a folder."""


def page(
    connection: Connection, filter: ListFilter, after: ListKey | None, limit: int
) -> list[SessionRow]:
    """The next `limit` sessions after the position `after`."""
    tables = SqliteTables(connection)
    found = [
        select(
            tables,
            # The index is named: without statistics the planner may choose another one and sort.
            f"{'' if walk.by_id else _index(filter)} WHERE {walk.condition}"
            " ORDER BY updated_at DESC, session_id DESC LIMIT %s",
            (*walk.values, limit),
        )
        for walk in walks(filter, after)
    ]
    if len(found) == 1:
        return found[0]
    return sorted((row for rows in found for row in rows), key=lambda row: row.key)[:limit]


def _index(filter: ListFilter) -> str:
    if filter.tenant:
        return f"INDEXED BY listed_tenant{'_unread' * filter.unread}"
    if filter.queued:
        return "INDEXED BY with_queue"
    if filter.unread:
        return "INDEXED BY listed_unread"
    return f"INDEXED BY {_INDEXES[bool(filter.agents), filter.cwd is not None]}"
