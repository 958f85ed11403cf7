"""Adding up the reported tokens and cost.

For most sessions the database adds up the sums kept by slots: see `usage_slots`. Sessions that need
a closer look are examined one by one: see `_ODD`.

The functions run inside a transaction of the caller and may raise psycopg errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from acphold.journal.journal import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.location import resolved_folder
from acphold.journal.postgresql import segments
from acphold.journal.postgresql.migrations import Line
from acphold.journal.sql.usage_rows import COLUMNS, report
from acphold.journal.token_reports import (
    COUNTS,
    CUMULATIVE,
    SessionUsage,
)
from acphold.journal.usage_groups import PackedSums, add, by_model, in_order, session_usage
from acphold.journal.usage_slots import SLOT_MS

_WANTED: Final = """
    prompted AND unread IS NULL AND updated_at >= %(since)s
    AND (%(folder)s::text IS NULL OR folder = %(folder)s)
"""
"""Leaves out sessions that an import has only listed: their usage is not known yet."""

_LAST: Final = """
    coalesce((
        SELECT last_seq FROM acphold.segments WHERE segments.session_id = sessions.session_id
        ORDER BY last_seq DESC LIMIT 1
    ), 0)
"""

_ODD: Final = f"""
    (origins <> '[]' OR agent = ANY(%(cumulative)s) OR settled_through < {_LAST}
        OR session_id IN (SELECT session_id FROM acphold.usage WHERE by_turn = 2)
        OR %(partial)s::bigint IS NOT NULL AND EXISTS (
            SELECT FROM acphold.usage_slots AS its
            WHERE its.session_id = sessions.session_id AND slot = %(partial)s
        ))
"""
"""Sessions to examine one by one: several agents held them, or they have a report on the whole
session, or `since` falls inside one of their slots, or they have unsettled entries."""

_SESSIONS: Final = f"""
    SELECT session_id, agent, cwd, title, updated_at, origins, settled_through,
        settled_through < {_LAST}
    FROM acphold.sessions WHERE {_WANTED} AND {{which}}
    ORDER BY updated_at DESC, session_id DESC
"""

_ROWS: Final = (
    f"SELECT session_id, {COLUMNS} FROM acphold.usage WHERE session_id = ANY(%s)"
    " ORDER BY session_id, seq"
)

_AT_ONCE: Final = 500

_PLAIN: Final = f"""
    wanted AS MATERIALIZED (
        SELECT session_id, agent, cwd, updated_at FROM acphold.sessions
        WHERE {_WANTED} AND session_id <> ALL(%(odd)s)
            AND (cardinality(%(agents)s::text[]) = 0 OR agent = ANY(%(agents)s))
    )
"""

_ADDED_UP: Final = f"""
    count(*), sum((told = 0)::int), {", ".join(f"sum({name})::bigint" for name in COUNTS)}
"""

_SUMS: Final = f"""
    WITH {_PLAIN}, used AS MATERIALIZED (
        SELECT session_id, agent AS who, {{name}} AS name, coalesce(sum(told), 0) AS told,
            bool_or(by_request > 0) AS by_request,
            {", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)}
        FROM wanted LEFT JOIN (SELECT * FROM acphold.usage_slots WHERE slot >= %(first)s) AS its
            USING (session_id)
        GROUP BY session_id, who, 3
    )
    SELECT name, NULL, {_ADDED_UP} FROM used GROUP BY name
    UNION ALL
    SELECT NULL, array_agg(DISTINCT who) FILTER (WHERE by_request), {_ADDED_UP} FROM (
        SELECT who, sum(told) AS told, bool_or(by_request) AS by_request,
            {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
        FROM used GROUP BY session_id, who
    ) AS whole
"""
"""A row for each group; and one without a name for the total, with the agents that reported by
request. A session may be in several days."""

_COSTS: Final = f"""
    WITH {_PLAIN}
    SELECT {{name}} AS name, currency, sum(cost) FROM wanted JOIN acphold.usage_costs
        USING (session_id) WHERE slot >= %(first)s GROUP BY 1, 2
"""

_NEWEST: Final = f"""
    SELECT session_id, title FROM acphold.sessions WHERE {_WANTED}
    ORDER BY updated_at DESC, session_id DESC
"""

_SLOTS: Final = f"""
    SELECT slot FROM acphold.usage_slots WHERE slot >= %(first)s
    UNION SELECT updated_at / {SLOT_MS} FROM acphold.sessions WHERE {_WANTED}
"""
"""Slots with any report, even in sessions that are not asked for: excluding these takes longer than
adding up a few empty days."""

_MEMORY: Final = "SET LOCAL work_mem = '32MB'"
"""With PostgreSQL's default of 4 MB it writes the sums of 20,000 sessions to disk, and reads them
back."""

_DAY: Final = f"width_bucket(coalesce(slot * {SLOT_MS}, updated_at), %(midnights)s::bigint[])"
"""The place of a day among those that begin at these midnights, from 1 on."""


def sums(
    line: Line, by: Grouping, agents: tuple[str, ...], cwd: str | None, since: int
) -> UsageSums:
    """Like `Index.usage`."""
    with line.transaction():
        line.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # one moment for all
        line.execute(_MEMORY)
        if by == "model":
            return by_model(sessions(line, cwd, since, has_models=True), agents)
        odd = [*sessions(line, cwd, since, which=_ODD)]
        values: dict[str, Any] = {
            "since": since,
            "first": -(-since // SLOT_MS),  # rounded up: the first whole slot
            "folder": None if cwd is None else resolved_folder(cwd),
            "agents": [*agents],
            "odd": [session.session_id for session in odd],
        }
        days = _days(line, values) if by == "day" else []
        name = {"agent": "agent", "folder": "cwd", "day": _DAY, "session": "session_id"}[by]
        found = line.execute(_SUMS.format(name=name), values).fetchall()
        newest = line.execute(_NEWEST, values).fetchall() if by == "session" else []
        costs = line.execute(_COSTS.format(name=name), values).fetchall()

    def named(group: str | int) -> str:
        return days[group - 1].isoformat() if isinstance(group, int) else group

    groups = {
        named(group): _sum(named(group), *rest) for group, _, *rest in found if group is not None
    }
    [(who, *of_all)] = [rest for group, *rest in found if group is None]
    total = _sum("", *of_all)
    by_request = {*(who or ())}
    for group, currency, cost in costs:
        groups[named(group)].costs[currency] = cost
        total.costs[currency] = total.costs.get(currency, 0.0) + cost
    for session in odd:
        by_request |= add(session, by, agents, groups, total)
    if by != "session":
        return UsageSums(in_order(by, groups.values()), total, frozenset(by_request))
    packed = PackedSums.of(
        replace(groups[name], title=title) for name, title in newest if name in groups
    )
    return UsageSums(packed, total, frozenset(by_request))


def _sum(name: str, sessions: int, not_reported: int | None, *counts: int | None) -> UsageSum:
    return UsageSum(name, None, sessions, not_reported or 0, Tokens(*counts), {})


def _days(line: Line, values: dict[str, Any]) -> list[date]:
    """The days with any usage, as this process counts them; puts their midnights into `values`."""
    found = line.execute(_SLOTS, values).fetchall()
    days = sorted({datetime.fromtimestamp(slot * SLOT_MS / 1000).date() for (slot,) in found})
    values["midnights"] = [int(datetime.combine(day, time()).timestamp() * 1000) for day in days]
    return days


def sessions(
    line: Line, cwd: str | None, since: int, *, which: str = "true", has_models: bool = False
) -> Iterator[SessionUsage]:
    """The usage reported since `since` in each session that was active since; newest sessions
    first, with models only if `has_models`."""
    folder = None if cwd is None else resolved_folder(cwd)
    values = {
        "since": since,
        "partial": since // SLOT_MS if since % SLOT_MS else None,
        "folder": folder,
        "cumulative": [*CUMULATIVE],
    }
    rows = line.execute(_SESSIONS.format(which=which), values).fetchall()
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        found = line.execute(_ROWS, ([row[0] for row in some],)).fetchall()
        told = {name: [*its] for name, its in groupby(found, key=itemgetter(0))}
        for *session, settled, is_open in some:
            its = [report(*row[1:]) for row in told.get(session[0], [])]
            yield session_usage(
                session,
                its,
                segments.Of(line, session[0]),
                settled if is_open else None,
                since,
                has_models=has_models,
            )
