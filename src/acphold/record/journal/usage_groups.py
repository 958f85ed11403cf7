"""Sums of the reported tokens and cost, in Python: for sessions examined one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, overload

import msgspec

from acphold.record.history.entries import TURN_END
from acphold.record.journal import bounds
from acphold.record.journal.seams import Grouping, Tokens, UsageSum, UsageSums
from acphold.record.journal.stored_history import END, StoredSegments, backwards, tail
from acphold.record.journal.token_reports import (
    COUNTS,
    Report,
    SessionUsage,
    UsageReport,
    holders,
    increases,
    models_since,
    reports,
)


def session_usage(
    facts: Sequence[Any],
    kept: Iterable[Report],
    rows: StoredSegments,
    settled: int | None,
    since: int,
    *,
    has_models: bool = False,
) -> SessionUsage:
    """The usage since `since` in a session, of its id, agent, folder, title, time and origins.

    `kept` are its settled reports. Those of a turn that is running, has just ended or was cut off
    come after the entry `settled`, which is None if there are none.
    """
    found = [*kept]
    if settled is not None:
        found += reports(tail(rows, settled, bounds.UNSETTLED_BYTES))
    turn_ends = backwards(rows, END, [TURN_END])
    answered = models_since(found, turn_ends, since) if has_models else ()
    session_id, agent, cwd, title, updated_at, origins = facts
    held_by = holders(session_id, agent, origins)
    recent = tuple(report for report in increases(found, held_by, answered) if report.at >= since)
    return SessionUsage(session_id, agent, cwd, title, updated_at, recent)


class PackedSums(Sequence[UsageSum]):
    """Sums kept packed, each decoded whenever it is asked for: a long list takes little memory."""

    def __init__(self, packed: list[bytes]) -> None:
        self._packed = packed

    @classmethod
    def of(cls, found: Iterable[UsageSum]) -> PackedSums:
        return cls([msgspec.msgpack.encode(sum_) for sum_ in found])

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


def add(
    session: SessionUsage,
    by: Grouping,
    agents: tuple[str, ...],
    groups: dict[str, UsageSum],
    total: UsageSum,
) -> set[str]:
    """Add one session to its groups; return the agents that reported by request in it."""
    reports = [report for report in session.reports if not agents or report.agent in agents]
    if not reports and agents and session.agent not in agents:
        return set()
    parts: dict[str, list[UsageReport]] = {}
    for report in reports:
        parts.setdefault(_group(session, by, report), []).append(report)
    # A session without reports counts in its group all the same.
    for name, part in (parts or {_group(session, by, None): []}).items():
        title = session.title if by == "session" else None
        _count(groups.setdefault(name, UsageSum(name, title)), part)
    _count(total, reports)
    return {report.agent for report in reports if not report.by_turn}


def _count(sum_: UsageSum, reports: Iterable[UsageReport]) -> None:
    """Add one more session to a sum, with the reports in it."""
    counts = {name: getattr(sum_.tokens, name) for name in COUNTS}
    costs = dict(sum_.costs)
    has_tokens = False
    for report in reports:
        if report.tokens is not None:
            has_tokens = True
            for name in COUNTS:
                if (count := getattr(report.tokens, name)) is not None:
                    counts[name] = (counts[name] or 0) + count
        if report.cost is not None:
            costs[report.currency] = costs.get(report.currency, 0.0) + report.cost
    sum_.sessions += 1
    sum_.not_reported += not has_tokens
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
        case "model":
            return "" if report is None else report.model
        case "session":
            return session.session_id


def by_model(sessions: Iterable[SessionUsage], agents: tuple[str, ...]) -> UsageSums:
    """Add up sessions by the models that answered; "" is the name of those that are unknown."""
    groups: dict[str, UsageSum] = {}
    total, by_request = UsageSum(""), set[str]()
    for session in sessions:
        by_request |= add(session, "model", agents, groups, total)
    return UsageSums(in_order("model", groups.values()), total, frozenset(by_request))


def in_order(by: Grouping, groups: Iterable[UsageSum]) -> list[UsageSum]:
    """Sort the groups: days newest first, others by most tokens, then by most sessions."""
    if by == "day":
        return sorted(groups, key=lambda sum_: sum_.name, reverse=True)
    return sorted(groups, key=lambda sum_: (-(sum_.tokens.total or 0), -sum_.sessions, sum_.name))
