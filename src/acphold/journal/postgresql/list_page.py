"""The list of sessions, newest first, a page at a time."""

from __future__ import annotations

from typing import Any, Final

from acphold.journal.journal import Archived, ListFilter, ListKey, SessionRow
from acphold.journal.location import resolved_folder
from acphold.journal.postgresql.migrations import Line
from acphold.journal.postgresql.session_rows import SELECT_ROW, session_row

_SHELVES: Final[dict[Archived, tuple[bool, ...]]] = {
    "exclude": (False,),
    "include": (False, True),
    "only": (True,),
}
"""The values of `archived` in a list, each with a walk of its own."""


def page(line: Line, filter: ListFilter, after: ListKey | None, limit: int) -> list[SessionRow]:
    """The next `limit` sessions after the position `after`.

    One walk along one index for each agent and each value of the indexed columns, so that rows far
    down cost no more than the first; the results of the walks are merged.
    """
    limit = min(limit, 1 << 31)
    walks: list[str] = []
    values: list[Any] = []

    def walk(condition: str, *its: Any) -> None:
        narrower, more = _conditions(filter, after)
        walks.append(
            f"(SELECT session_id, updated_at FROM acphold.sessions WHERE {condition}{narrower}"
            " ORDER BY updated_at DESC, session_id DESC LIMIT %s)"
        )
        values.extend([*its, *more, limit])

    for archived in _SHELVES[filter.archived]:
        for agent in dict.fromkeys(filter.agents) or (None,):
            of_agent, named = (" AND agent = %s", [agent]) if agent is not None else ("", [])
            shelf = f"archived = %s{of_agent}"
            tenant = "" if filter.tenant is None else " AND tenant = %s"
            theirs = [] if filter.tenant is None else [filter.tenant]
            if filter.tenant:  # the partial index of tenants needs the second condition
                tenant += " AND tenant <> ''"
            walk(f"prompted AND {shelf}{tenant}", archived, *named, *theirs)
            if filter.include_unprompted:
                walk(f"NOT prompted AND {shelf}{tenant}", archived, *named, *theirs)
            elif filter.held:
                walk(
                    f"NOT prompted AND {shelf}{tenant} AND session_id = ANY(%s)",
                    *(archived, *named, *theirs, [*filter.held]),
                )
            if filter.tenant:  # sessions that others share with them: few, so found by id
                walk(
                    f"{shelf} AND tenant <> %s AND (prompted OR %s OR session_id = ANY(%s))"
                    " AND session_id IN (SELECT session_id FROM acphold.shares WHERE tenant = %s)",
                    *(archived, *named, filter.tenant, filter.include_unprompted),
                    *([*filter.held], filter.tenant),
                )
    rows = line.execute(
        f"{SELECT_ROW} JOIN (SELECT session_id FROM ({' UNION ALL '.join(walks)}) AS found"
        " ORDER BY updated_at DESC, session_id DESC LIMIT %s) AS page USING (session_id)"
        " ORDER BY updated_at DESC, sessions.session_id DESC",
        (*values, limit),
    ).fetchall()
    return [session_row(line, row) for row in rows]


def _conditions(filter: ListFilter, after: ListKey | None) -> tuple[str, list[Any]]:
    conditions = ""
    values: list[Any] = []
    if filter.cwd is not None:
        conditions += " AND folder = %s"
        values.append(resolved_folder(filter.cwd))
    if filter.unread:
        conditions += " AND unread IS NOT NULL"
    if after is not None:
        conditions += " AND (updated_at, session_id) < (%s, %s)"
        values += (after.updated_at, after.session_id)
    return conditions, values
