"""Adding up the reported tokens and cost.

For most sessions SQLite adds up the sums kept by slots: see `usage_slots`. Sessions that need a
closer look are examined one by one: see `_ODD`. If each session is a group, there may be very many:
only one at a time is in memory in more than packed form.

The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final

from acphold.journal.journal import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.location import resolved_folder
from acphold.journal.sql.usage_rows import SESSION, reports_of
from acphold.journal.sqlite.connection import Connection
from acphold.journal.sqlite.session_rows import OF_AGENTS, as_json
from acphold.journal.sqlite.tables import SqliteTables
from acphold.journal.token_reports import COUNTS, CUMULATIVE, SessionUsage
from acphold.journal.usage_groups import PackedSums, add, by_model, in_order, session_usage
from acphold.journal.usage_slots import SLOT_MS

_WANTED: Final = (
    "prompted AND unread IS NULL AND updated_at >= :since AND (:folder IS NULL OR folder = :folder)"
)
"""Leaves out sessions that an import has only listed: their usage is not known yet."""

_ODD: Final = f"""
    CREATE TEMP TABLE odd AS SELECT number FROM sessions WHERE {_WANTED} AND (
        origins != '[]'
        OR agent IN ({", ".join(f"'{agent}'" for agent in sorted(CUMULATIVE))})
        OR number IN (SELECT session FROM usage WHERE by_turn = {SESSION})
        OR :partial IS NOT NULL AND EXISTS (
            SELECT 1 FROM usage_slots WHERE session = number AND slot = :partial
        )
        OR EXISTS (
            SELECT 1 FROM segments
            WHERE key BETWEEN (number << 32 | settled_through) + 1 AND number << 32 | 4294967295
        )
    )
"""
"""Sessions to examine one by one: several agents held them, or they have a report on the whole
session, or `since` falls inside one of their slots, or they have unsettled entries."""

_DAY: Final = "date({}, 'unixepoch', 'localtime')"
_SLOT_DAY: Final = _DAY.format(f"slot * {SLOT_MS // 1000}")

_USED: Final = f"""
    CREATE TEMP TABLE used AS
    SELECT number, {{day}} AS day, total(told) AS told, total(by_request) AS by_request,
        {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
    FROM sessions LEFT JOIN usage_slots ON session = number AND slot >= :first
    WHERE {_WANTED} AND {OF_AGENTS} AND number NOT IN odd
    GROUP BY number, day
"""
"""A row for each session, or for each of its days."""

_SUMS: Final = f"""
    SELECT {{name}} AS name, count(DISTINCT number), sum(told = 0),
        {", ".join(f"sum({name})" for name in COUNTS)}
    FROM used JOIN sessions USING (number) GROUP BY name
"""

_TOTAL: Final = f"""
    SELECT '', count(*), sum(told = 0), {", ".join(f"sum({name})" for name in COUNTS)}
    FROM (
        SELECT sum(told) AS told, {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
        FROM used GROUP BY number
    )
"""

_CAME: Final = f"""
    CREATE TEMP TABLE came AS SELECT {{name}} AS name, currency, sum(cost) AS cost
    FROM sessions NOT INDEXED CROSS JOIN usage_costs ON session = number AND slot >= :first
    WHERE {_WANTED} AND {OF_AGENTS} AND number NOT IN odd
    GROUP BY name, currency
"""
"""Reads sessions in the order of the table: SQLite would choose an index that has the agents in
order, and look up the costs of each session elsewhere."""

_NAMES: Final[dict[Grouping, str]] = {
    "agent": "agent",
    "day": "day",
    "folder": "cwd",
    "session": "number",
}
"""The group of a row of `used`, in SQL."""

_BY_SESSION: Final = (
    " UNION ALL ".join(
        f"""
            SELECT updated_at, session_id, title, told = 0, {", ".join(COUNTS)}, currency, cost
            FROM sessions CROSS JOIN used USING (number) LEFT JOIN came ON name = number
            WHERE prompted = 1 AND archived = {archived}
        """
        for archived in (0, 1)
    )
    + " ORDER BY updated_at DESC, session_id DESC"
)
"""A row for each session and currency, in the order of an index for each value of `archived`:
sorting would keep all of them in memory."""


def sums(
    connection: Connection,
    by: Grouping,
    agents: tuple[str, ...],
    cwd: str | None,
    since: int,
) -> UsageSums:
    """Like `Index.usage`."""
    if by == "model":  # no sums by model are kept
        return by_model(usage_of(connection, "TRUE", cwd, since, has_models=True), agents)
    values = {
        "agents": as_json(agents),
        "folder": None if cwd is None else resolved_folder(cwd),
        "since": since,
        "first": -(-since // SLOT_MS),  # rounded up: the first whole slot
        "partial": since // SLOT_MS if since % SLOT_MS else None,
    }
    day = f"coalesce({_SLOT_DAY}, {_DAY.format('updated_at / 1000')})" if by == "day" else "NULL"
    try:
        connection.execute(_ODD, values)
        connection.execute(_USED.format(day=day), values)
        name = _SLOT_DAY if by == "day" else _NAMES[by]
        connection.execute(_CAME.format(name=name), values)
        total = _sum(connection.execute(_TOTAL).fetchone())
        total.costs = dict(
            connection.execute("SELECT currency, sum(cost) FROM came GROUP BY currency")
        )
        by_request = {
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT agent FROM used JOIN sessions USING (number) WHERE by_request"
            )
        }
        odd = usage_of(connection, "number IN odd", cwd, since)
        groups: Sequence[UsageSum]
        if by == "session":
            groups = PackedSums.of(_each_session(connection, agents, odd, total, by_request))
        else:
            groups = _groups(connection, by, agents, odd, total, by_request)
    finally:
        for table in ("odd", "used", "came"):
            connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
    return UsageSums(groups, total, frozenset(by_request))


def _groups(
    connection: Connection,
    by: Grouping,
    agents: tuple[str, ...],
    odd: Iterable[SessionUsage],
    total: UsageSum,
    by_request: set[str],
) -> list[UsageSum]:
    """The sums by agent, day or folder; `total` and `by_request` get the shares of the odd
    sessions."""
    groups = {row[0]: _sum(row) for row in connection.execute(_SUMS.format(name=_NAMES[by]))}
    for group, currency, cost in connection.execute("SELECT name, currency, cost FROM came"):
        groups[group].costs[currency] = cost
    for session in odd:
        by_request |= add(session, by, agents, groups, total)
    return in_order(by, groups.values())


def _each_session(
    connection: Connection,
    agents: tuple[str, ...],
    odd: Iterable[SessionUsage],
    total: UsageSum,
    by_request: set[str],
) -> Iterator[UsageSum]:
    """Yield the sums of sessions; `total` and `by_request` get the shares of the odd sessions."""

    def plain_ones() -> Iterator[tuple[tuple[int, str], UsageSum]]:
        # Otherwise SQLite scans them for each session: it does not know how many rows they have.
        connection.execute("CREATE INDEX temp.used_of ON used (number)")
        connection.execute("CREATE INDEX temp.came_of ON came (name)")
        rows = connection.execute(_BY_SESSION)
        for place, of_one in groupby(rows, key=itemgetter(0, 1)):
            rows_of_one = [*of_one]
            _, session_id, title, is_silent, *counts, _, _ = rows_of_one[0]
            costs = {currency: cost for *_, currency, cost in rows_of_one if cost is not None}
            yield place, UsageSum(session_id, title, 1, is_silent, Tokens(*counts), costs)

    def odd_ones() -> Iterator[tuple[tuple[int, str], UsageSum]]:
        for session in odd:
            its: dict[str, UsageSum] = {}
            by_request.update(add(session, "session", agents, its, total))
            for sum_ in its.values():
                yield (session.updated_at, session.session_id), sum_

    newest_first = merge(plain_ones(), odd_ones(), key=itemgetter(0), reverse=True)
    return (sum_ for _, sum_ in newest_first)


def _sum(row: tuple[str, int, int | None, *tuple[int | None, ...]]) -> UsageSum:
    name, sessions, not_reported, *counts = row
    return UsageSum(name, None, sessions, not_reported or 0, Tokens(*counts))


# -- a closer look -----------------------------------------------------------------------------


_SESSIONS: Final = """
    SELECT number, session_id, agent, cwd, title, updated_at, origins, settled_through FROM sessions
    WHERE prompted AND unread IS NULL AND updated_at >= ?1 AND (?2 IS NULL OR folder = ?2)
        AND {which}
    ORDER BY updated_at DESC, session_id DESC
"""


def usage_of(
    connection: Connection,
    sessions: str,
    cwd: str | None,
    since: int,
    *,
    has_models: bool = False,
) -> Iterator[SessionUsage]:
    """The usage reported since `since` in each session that was active since, of those chosen by a
    condition in SQL; newest sessions first, one at a time, with models only if `has_models`."""
    folder = None if cwd is None else resolved_folder(cwd)
    tables = SqliteTables(connection)
    rows = connection.execute(_SESSIONS.format(which=sessions), (since, folder))
    for number, *session, settled in rows:
        kept = reports_of(tables, number)
        yield session_usage(
            session, kept, tables.segments(number), settled, since, has_models=has_models
        )
