"""The list of sessions, newest first, a page at a time."""

from __future__ import annotations

from typing import Any

from acphold.journal.journal import ListFilter, ListKey, SessionRow
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.tables import PostgresqlTables
from acphold.journal.sql.list_filters import walks
from acphold.journal.sql.session_rows import select


def page(line: Line, filter: ListFilter, after: ListKey | None, limit: int) -> list[SessionRow]:
    """The next `limit` sessions after the position `after`: one statement merges the walks."""
    limit = min(limit, 1 << 31)
    parts: list[str] = []
    values: list[Any] = []
    for walk in walks(filter, after):
        parts.append(
            f"(SELECT session_id, updated_at FROM acphold.sessions WHERE {walk.condition}"
            " ORDER BY updated_at DESC, session_id DESC LIMIT %s)"
        )
        values += (*walk.values, limit)
    return select(
        PostgresqlTables(line),
        f"JOIN (SELECT session_id FROM ({' UNION ALL '.join(parts)}) AS found"
        " ORDER BY updated_at DESC, session_id DESC LIMIT %s) AS page USING (session_id)"
        " ORDER BY updated_at DESC, sessions.session_id DESC",
        (*values, limit),
    )
