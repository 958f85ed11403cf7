"""What agents reported of tokens and cost, added up.

Of most sessions SQLite adds it up, which takes a second for a hundred thousand. Those that need
more thought are looked at one by one: see `_ODD`.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from acphold.journal.journal import (
    Grouping,
    SessionUsage,
    Tokens,
    UsageReport,
    UsageSum,
    UsageSums,
)
from acphold.journal.location import resolved_folder
from acphold.journal.sqlite.token_usage import COUNTS, CUMULATIVE, SESSION, usage_of

_WANTED: Final = "prompted AND updated_at >= :since AND (:folder IS NULL OR folder = :folder)"

_ODD: Final = f"""
    CREATE TEMP TABLE odd AS SELECT number FROM sessions WHERE {_WANTED} AND (
        origins != '[]'
        OR agent IN ({", ".join(f"'{agent}'" for agent in sorted(CUMULATIVE))})
        OR number IN (SELECT session FROM usage WHERE by_turn = {SESSION})
        OR EXISTS (
            SELECT 1 FROM segments
            WHERE key BETWEEN (number << 32 | settled_through) + 1 AND number << 32 | 4294967295
        )
    )
"""
"""Sessions that several agents held, or in which something was told of the whole session, or that
have something that is not settled."""

_DAY: Final = "date({} / 1000, 'unixepoch', 'localtime')"

_USED: Final = f"""
    CREATE TEMP TABLE used AS
    SELECT number, {{day}} AS day, count(total) AS told, max(by_turn = 0) AS by_request,
        {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
    FROM sessions LEFT JOIN usage ON session = number AND at >= :since
    WHERE {_WANTED} AND (:agent IS NULL OR agent = :agent) AND number NOT IN odd
    GROUP BY number, day
"""
"""A row for each session, or for each of its days."""

_SUMS: Final = f"""
    SELECT {{name}} AS name, {{title}}, count(DISTINCT number), sum(told = 0),
        {", ".join(f"sum({name})" for name in COUNTS)}
    FROM used JOIN sessions USING (number) GROUP BY name
"""

_TOTAL: Final = f"""
    SELECT '', NULL, count(*), sum(told = 0), {", ".join(f"sum({name})" for name in COUNTS)}
    FROM (
        SELECT sum(told) AS told, {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
        FROM used GROUP BY number
    )
"""

_COSTS: Final = f"""
    SELECT {{name}} AS name, currency, sum(iif(cost >= before, cost - before, cost)) FROM (
        SELECT session, at, currency, cost,
            lag(cost, 1, 0.0) OVER (PARTITION BY session, currency ORDER BY seq) AS before
        FROM usage WHERE cost IS NOT NULL
    ) JOIN sessions ON number = session
    WHERE {_WANTED} AND at >= :since AND (:agent IS NULL OR agent = :agent) AND number NOT IN odd
    GROUP BY name, currency
"""
"""What came to the cost of a session with each report, as in `token_usage`."""

_NAMES: Final[dict[Grouping, str]] = {
    "agent": "agent",
    "day": "day",
    "folder": "cwd",
    "session": "session_id",
}
"""The group of a row of `used`, in SQL."""


def sums(
    connection: sqlite3.Connection, by: Grouping, agent: str | None, cwd: str | None, since: int
) -> UsageSums:
    """As `Journal.usage_sums`."""
    values = {
        "agent": agent,
        "folder": None if cwd is None else resolved_folder(cwd),
        "since": since,
    }
    day = f"coalesce({_DAY.format('at')}, {_DAY.format('updated_at')})" if by == "day" else "NULL"
    try:
        connection.execute(_ODD, values)
        connection.execute(_USED.format(day=day), values)
        title = "title" if by == "session" else "NULL"
        rows = connection.execute(_SUMS.format(name=_NAMES[by], title=title))
        groups = {row[0]: _sum(row) for row in rows}
        total = _sum(connection.execute(_TOTAL).fetchone())
        name = _DAY.format("at") if by == "day" else _NAMES[by]
        for group, currency, cost in connection.execute(_COSTS.format(name=name), values):
            for sum_ in (groups[group], total):
                sum_.costs = {**sum_.costs, currency: sum_.costs.get(currency, 0.0) + cost}
        by_request = {
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT agent FROM used JOIN sessions USING (number) WHERE by_request"
            )
        }
        for session in usage_of(connection, "number IN odd", cwd, since):
            by_request |= _add(session, by, agent, groups, total)
        order = _order(connection, by, groups)
    finally:
        for table in ("odd", "used"):
            connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    return UsageSums(order, total, frozenset(by_request))


def _order(
    connection: sqlite3.Connection, by: Grouping, groups: dict[str, UsageSum]
) -> list[UsageSum]:
    if by == "session":
        rows = connection.execute(
            "SELECT session_id FROM sessions WHERE prompted"
            " ORDER BY updated_at DESC, session_id DESC"
        )
        return [groups[session_id] for (session_id,) in rows if session_id in groups]
    if by == "day":
        return sorted(groups.values(), key=lambda sum_: sum_.name, reverse=True)
    return sorted(groups.values(), key=lambda sum_: (-(sum_.tokens.total or 0), sum_.name))


def _sum(row: tuple[str, str | None, int, int | None, *tuple[int | None, ...]]) -> UsageSum:
    name, title, sessions, not_reported, *counts = row
    return UsageSum(name, title, sessions, not_reported or 0, Tokens(*counts))


def _add(
    session: SessionUsage,
    by: Grouping,
    agent: str | None,
    groups: dict[str, UsageSum],
    total: UsageSum,
) -> set[str]:
    """Add one session to its groups; the agents that reported by request in it."""
    reports = [report for report in session.reports if agent in (None, report.agent)]
    if not reports and agent not in (None, session.agent):
        return set()
    parts: dict[str, list[UsageReport]] = {}
    for report in reports:
        parts.setdefault(_group(session, by, report), []).append(report)
    # What reported nothing is counted where it belongs all the same.
    for name, part in (parts or {_group(session, by, None): []}).items():
        title = session.title if by == "session" else None
        _count(groups.setdefault(name, UsageSum(name, title)), part)
    _count(total, reports)
    return {report.agent for report in reports if not report.by_turn}


def _count(sum_: UsageSum, reports: Iterable[UsageReport]) -> None:
    """One more session, with what was reported in it."""
    counts = {name: getattr(sum_.tokens, name) for name in COUNTS}
    costs = dict(sum_.costs)
    is_told = False
    for report in reports:
        if report.tokens is not None:
            is_told = True
            for name in COUNTS:
                if (count := getattr(report.tokens, name)) is not None:
                    counts[name] = (counts[name] or 0) + count
        if report.cost is not None:
            costs[report.currency] = costs.get(report.currency, 0.0) + report.cost
    sum_.sessions += 1
    sum_.not_reported += not is_told
    sum_.tokens, sum_.costs = Tokens(**counts), costs


def _group(session: SessionUsage, by: Grouping, report: UsageReport | None) -> str:
    match by:
        case "agent":
            return session.agent if report is None else report.agent
        case "day":
            at = session.updated_at if report is None else report.at
            return datetime.fromtimestamp(at / 1000).date().isoformat()
        case "folder":
            return session.cwd
        case "session":
            return session.session_id
