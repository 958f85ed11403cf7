"""Adding up the reported tokens and cost.

For most sessions the database adds up the sums kept by slots: see `token_reports`. Sessions that
need a closer look are examined one by one, in Python: see `_odd`.

The functions run on one moment of the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, overload

import msgspec

from acphold.journal_location import resolve_folder
from acphold.record.history.entries import TURN_END
from acphold.record.journal import bounds
from acphold.record.journal.seams import Grouping, Tokens, UsageSum, UsageSums
from acphold.record.journal.sql.tables import Tables
from acphold.record.journal.sql.usage_rows import COLUMNS, SESSION, report
from acphold.record.journal.stored_history import END
from acphold.record.journal.token_reports import (
    COUNTS,
    CUMULATIVE,
    SLOT_MS,
    SessionUsage,
    UsageReport,
    holders,
    increases,
    models_since,
    reports,
)

_SUMMED: Final = ", ".join(f"sum({name}) AS {name}" for name in COUNTS)

_ADDED_UP: Final = "count(*), sum(CASE WHEN told = 0 THEN 1 ELSE 0 END), " + ", ".join(
    f"CAST(sum({name}) AS bigint)" for name in COUNTS
)

_SUMS: Final = f"""
    WITH used AS MATERIALIZED (
        SELECT sessions.{{own_key}} AS its, agent AS who, {{name}} AS name,
            coalesce(sum(told), 0) AS told, coalesce(sum(by_request), 0) AS by_request, {_SUMMED}
        FROM acphold.sessions LEFT JOIN acphold.usage_slots
            ON usage_slots.{{key}} = sessions.{{own_key}} AND slot >= %(first)s
        WHERE {{plain}} GROUP BY sessions.{{own_key}}{{by_day}}
    )
    SELECT 'group', name, {_ADDED_UP} FROM used GROUP BY name
    UNION ALL
    SELECT 'total', '', {_ADDED_UP} FROM {{whole}}
    UNION ALL
    SELECT 'by request', who, 0, 0, {", ".join(["0"] * len(COUNTS))}
        FROM used WHERE by_request > 0 GROUP BY who
"""
"""A row for each group, one for the total, and one for each agent that reported by request."""

_WHOLE: Final = f"(SELECT sum(told) AS told, {_SUMMED} FROM used GROUP BY its) AS whole"
"""A row for each session, which may be in several days."""

_COSTS: Final = """
    SELECT {name} AS name, currency, sum(cost) FROM acphold.sessions JOIN acphold.usage_costs
        ON usage_costs.{key} = sessions.{own_key} AND slot >= %(first)s
    WHERE {plain} GROUP BY 1, 2
"""

_NAMES: Final[dict[Grouping, str]] = {
    "agent": "agent",
    "folder": "cwd",
    "session": "sessions.session_id",
}
"""The group of a session, in SQL."""


def _condition(cwd: str | None) -> str:
    """A condition that leaves out sessions that an import has only listed: their usage is not known
    yet."""
    of_folder = "" if cwd is None else " AND folder = %(folder)s"
    return f"prompted AND unread IS NULL AND updated_at >= %(since)s{of_folder}"


def _values(cwd: str | None, since: int) -> dict[str, Any]:
    return {
        "since": since,
        "first": -(-since // SLOT_MS),  # rounded up: the first whole slot
        "partial": since // SLOT_MS,
        "folder": None if cwd is None else resolve_folder(cwd),
    }


def _odd(tables: Tables, since: int) -> str:
    """A condition for sessions to examine one by one: several agents held them, or they have a
    report on the whole session, or `since` falls inside one of their slots, or they have unsettled
    entries."""
    cumulative = ", ".join(f"'{agent}'" for agent in sorted(CUMULATIVE))
    of_session = f"SELECT {tables.KEY} FROM acphold.usage WHERE by_turn = {SESSION}"
    in_slot = f"SELECT {tables.KEY} FROM acphold.usage_slots WHERE slot = %(partial)s"
    return (
        f"(origins <> '[]' OR agent IN ({cumulative}) OR settled_through < {tables.last_seq()}"
        f" OR {tables.OWN_KEY} IN ({of_session})"
        f"{f' OR {tables.OWN_KEY} IN ({in_slot})' if since % SLOT_MS else ''})"
    )


def sums(
    tables: Tables, by: Grouping, agents: tuple[str, ...], cwd: str | None, since: int
) -> UsageSums:
    """Like `Index.usage`."""
    groups: dict[str, UsageSum] = {}
    total, by_request = UsageSum(""), set[str]()
    if by == "model":  # no sums by model are kept, and its name is "" if it is unknown
        for session in sessions(tables, cwd, since, has_models=True):
            by_request |= _add(session, by, agents, groups, total)
        return UsageSums(in_order(by, groups.values()), total, frozenset(by_request))
    odd = [*sessions(tables, cwd, since, which=_odd(tables, since))]
    wanted, values = _condition(cwd), _values(cwd, since)
    names: dict[str, str] = {}
    name = tables.day(wanted, values, names) if by == "day" else _NAMES[by]
    plain = f"{wanted} AND NOT {tables.among('sessions.session_id', 'odd')}"
    values["odd"] = tables.array(session.session_id for session in odd)
    if agents:
        plain += f" AND {tables.among('agent', 'agents')}"
        values["agents"] = tables.array(agents)
    parts = {"plain": plain, "name": name, "key": tables.KEY, "own_key": tables.OWN_KEY}
    parts |= (
        {"by_day": ", name", "whole": _WHOLE} if by == "day" else {"by_day": "", "whole": "used"}
    )
    for kind, group, count, silent, *counts in tables.execute(
        _SUMS.format(**parts), values
    ).fetchall():
        if kind == "by request":
            by_request.add(group)
            continue
        sum_ = UsageSum(names.get(group, group), None, count, silent or 0, Tokens(*counts), {})
        if kind == "total":
            total = sum_
        else:
            groups[sum_.name] = sum_
    for group, currency, cost in tables.execute(_COSTS.format(**parts), values).fetchall():
        groups[names.get(group, group)].costs[currency] = cost
        total.costs[currency] = total.costs.get(currency, 0.0) + cost
    for session in odd:
        by_request |= _add(session, by, agents, groups, total)
    if by != "session":
        return UsageSums(in_order(by, groups.values()), total, frozenset(by_request))
    newest = tables.execute(
        f"SELECT session_id, title FROM acphold.sessions WHERE {wanted}"
        " ORDER BY updated_at DESC, session_id DESC",
        values,
    )
    packed: list[bytes] = []
    for session_id, title in newest.fetchall():
        if (one := groups.pop(session_id, None)) is not None:
            one.title = title
            packed.append(msgspec.msgpack.encode(one))
    return UsageSums(PackedSums(packed), total, frozenset(by_request))


def sessions(
    tables: Tables, cwd: str | None, since: int, *, which: str = "true", has_models: bool = False
) -> Iterator[SessionUsage]:
    """The usage reported since `since` in each session that was active since, of those chosen by a
    condition; newest sessions first, with models only if `has_models`.

    After the settled reports come those of a turn that is running, has just ended or was cut off.
    """
    rows = tables.execute(
        f"SELECT {tables.OWN_KEY}, session_id, agent, cwd, title, updated_at, origins,"
        f" settled_through, settled_through < {tables.last_seq()} FROM acphold.sessions"
        f" WHERE {_condition(cwd)} AND {which} ORDER BY updated_at DESC, session_id DESC",
        _values(cwd, since),
    ).fetchall()
    for start in range(0, len(rows), bounds.IDS_AT_ONCE):
        some = rows[start : start + bounds.IDS_AT_ONCE]
        found = tables.execute(
            f"SELECT {tables.KEY}, {COLUMNS} FROM acphold.usage"
            f" WHERE {tables.among(tables.KEY, 'keys')} ORDER BY {tables.KEY}, seq",
            {"keys": tables.array(row[0] for row in some)},
        ).fetchall()
        by_key = {
            key: [report(*row[1:]) for row in same] for key, same in groupby(found, itemgetter(0))
        }
        for key, session_id, agent, folder, title, updated_at, origins, settled, is_open in some:
            rows_of_key = tables.segments(key)
            told = by_key.get(key, [])
            if is_open:
                told += reports(rows_of_key.tail(settled, bounds.UNSETTLED_BYTES))
            turn_ends = rows_of_key.backwards(END, [TURN_END])
            answered = models_since(told, turn_ends, since) if has_models else ()
            every = increases(told, holders(session_id, agent, origins), answered)
            recent = tuple(one for one in every if one.at >= since)
            yield SessionUsage(session_id, agent, folder, title, updated_at, recent)


class PackedSums(Sequence[UsageSum]):
    """Sums kept packed, each decoded whenever it is asked for: a long list takes little memory."""

    def __init__(self, packed: list[bytes]) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, place: int) -> UsageSum: ...
    @overload
    def __getitem__(self, place: slice) -> PackedSums: ...
    def __getitem__(self, place: int | slice) -> UsageSum | PackedSums:
        if isinstance(place, slice):
            return PackedSums(self._packed[place])
        return _unpack(self._packed[place])


_unpack: Final = msgspec.msgpack.Decoder(UsageSum).decode


def _add(
    session: SessionUsage,
    by: Grouping,
    agents: tuple[str, ...],
    groups: dict[str, UsageSum],
    total: UsageSum,
) -> set[str]:
    """Add one session to its groups; return the agents that reported by request in it."""
    told = [one for one in session.reports if not agents or one.agent in agents]
    if not told and agents and session.agent not in agents:
        return set()
    parts: dict[str, list[UsageReport]] = {}
    for one in told:
        parts.setdefault(_group(session, by, one), []).append(one)
    # A session without reports counts in its group all the same.
    for name, part in (parts or {_group(session, by, None): []}).items():
        title = session.title if by == "session" else None
        _count(groups.setdefault(name, UsageSum(name, title)), part)
    _count(total, told)
    return {one.agent for one in told if not one.by_turn}


def _count(sum_: UsageSum, told: Iterable[UsageReport]) -> None:
    """Add one more session to a sum, with the reports in it."""
    counts = {name: getattr(sum_.tokens, name) for name in COUNTS}
    costs = dict(sum_.costs)
    has_tokens = False
    for one in told:
        if one.tokens is not None:
            has_tokens = True
            for name in COUNTS:
                if (count := getattr(one.tokens, name)) is not None:
                    counts[name] = (counts[name] or 0) + count
        if one.cost is not None:
            costs[one.currency] = costs.get(one.currency, 0.0) + one.cost
    sum_.sessions += 1
    sum_.not_reported += not has_tokens
    sum_.tokens, sum_.costs = Tokens(**counts), costs


def _group(session: SessionUsage, by: Grouping, told: UsageReport | None) -> str:
    match by:
        case "agent":
            return session.agent if told is None else told.agent
        case "day":
            at = session.updated_at if told is None else told.at
            return datetime.fromtimestamp(at / 1000).date().isoformat()
        case "folder":
            return session.cwd
        case "model":
            return "" if told is None else told.model
        case "session":
            return session.session_id


def in_order(by: Grouping, groups: Iterable[UsageSum]) -> list[UsageSum]:
    """Sort the groups: days newest first, others by most tokens, then by most sessions."""
    if by == "day":
        return sorted(groups, key=lambda sum_: sum_.name, reverse=True)
    return sorted(groups, key=lambda sum_: (-(sum_.tokens.total or 0), -sum_.sessions, sum_.name))
