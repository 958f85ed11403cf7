"""Adding up the reported tokens and cost, on one moment of the journal.

The database adds up the sums that are kept of each session: see `usage_rows`; those of many are
kept, too: see `usage_blocks`. Sessions that need a closer look, because a turn runs in them, or the
time in question begins inside of a slot, are gone through one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, overload

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.entries import TURN_END, clamp_moment
from acphold.journal import bounds
from acphold.journal.seams import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.sql.tables import Key, Tables, batches
from acphold.journal.sql.usage_rows import COLUMNS, report
from acphold.journal.stored_history import END
from acphold.journal.token_reports import (
    COUNTS,
    SLOT_MS,
    CountedReplies,
    SessionUsage,
    UsageReport,
    holders,
    increases,
    models_since,
    reports,
)

MOST_TOKENS: Final = 10**18
MOST_COST: Final = 1e300
"""The largest sums that are told: any program can add two of these."""


_SUMMED: Final = ", ".join(f"CAST(sum({name}) AS bigint)" for name in COUNTS)

_PAID_IN: Final = "CASE WHEN cost IS NOT NULL THEN currency END"

_GROUPS: Final = f"""
    SELECT {{name}}, {{title}}, count(DISTINCT sessions.{{own_key}}),
        count(DISTINCT CASE WHEN told > 0 THEN sessions.{{own_key}} END),
        min({_PAID_IN}), max({_PAID_IN}), sum(cost), {_SUMMED}
    FROM {{used}} GROUP BY {{at}}
"""
"""The groups: sessions, those that reported tokens, the first and last currency, the sums. By one
column alone: a database sorts what it groups, and by one that is done in half the time."""

_COSTS: Final = """
    SELECT {name}, currency, sum(cost) FROM {used} AND cost IS NOT NULL GROUP BY {at}, 2 ORDER BY 2
"""

_USED: Final = """acphold.sessions LEFT JOIN acphold.usage_sums
    ON usage_sums.{key} = sessions.{own_key} AND slot >= %(first)s{by_agents}
    WHERE {plain}{of_agents}"""
"""The sums of each session, and those without any."""

_TOTAL: Final = """
    SELECT count(*), count(CASE WHEN EXISTS (SELECT 1 {its} AND told > 0) THEN 1 END)
    FROM acphold.sessions WHERE {plain}{of_agents}
"""
"""The number of sessions, and of those that reported tokens."""

_BY_REQUEST: Final = """
    SELECT agent FROM (
        SELECT DISTINCT agent FROM acphold.usage_sums
        WHERE by_request > 0 AND slot >= %(first)s{by_agents}
    ) AS those WHERE EXISTS (
        SELECT 1 FROM acphold.usage_sums CROSS JOIN acphold.sessions
        WHERE usage_sums.agent = those.agent AND by_request > 0 AND slot >= %(first)s
            AND sessions.{own_key} = usage_sums.{key} AND {plain}
    )
"""
"""The agents with reports of requests. One report is enough, so few sessions are looked at."""

_BY_REQUEST_OF_FEW: Final = """
    SELECT DISTINCT usage_sums.agent FROM acphold.sessions CROSS JOIN acphold.usage_sums
    WHERE usage_sums.{key} = sessions.{own_key} AND by_request > 0 AND slot >= %(first)s{by_agents}
        AND {plain}
"""
"""The same from the sessions since a time, of a folder, or in a span: they are few."""

_NAMES: Final[dict[Grouping, str]] = {
    "agent": "coalesce(usage_sums.agent, sessions.agent)",
    "folder": "cwd",
    "model": "coalesce(model, '')",
    "session": "sessions.session_id",
}
"""The group of a row, in SQL."""

_WANTED: Final = "prompted AND unread IS NULL AND updated_at >= %(since)s"
"""The sessions in question. Those that an import has only listed are left out: their usage is not
known yet."""


class PackedGroups(MutableMapping[str, UsageSum]):
    """Groups by their names, each packed: those of 100,000 sessions take a third of the memory.

    What is read is a copy.
    """

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> UsageSum:
        return _unpack(self._packed[name])

    def __setitem__(self, name: str, sum_: UsageSum) -> None:
        self._packed[name] = msgspec.msgpack.encode(sum_)

    def __delitem__(self, name: str) -> None:
        del self._packed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def pop_packed(self, name: str) -> bytes | None:
        """Remove a group, and return it as it is kept."""
        return self._packed.pop(name, None)


class PlainSums(Struct, array_like=True):
    """The sums of plain sessions by the names of the groups, and of all; the agents with reports of
    requests; and the keys of `odd` sessions beside these: see `SumsQuery`."""

    groups: MutableMapping[str, UsageSum]
    total: UsageSum
    by_request: set[str]
    odd: list[Key]


Span = tuple[int, int]
"""The lowest and the highest of some numbers of sessions."""

KeptSums = Callable[[Tables, Grouping, tuple[str, ...]], tuple[list[PlainSums], list[Span]]]


class SumsQuery:
    """The sums that are asked for, as parts of statements with `values`.

    For `plain` sessions, the sums by whole slots have all that they have reported; `odd` ones have
    to be gone through. Both are among those that are `wanted`, and in the `span` if one is given.
    """

    def __init__(
        self,
        tables: Tables,
        by: Grouping,
        agents: tuple[str, ...] = (),
        cwd: str | None = None,
        since: int = 0,
        *,
        span: Span | None = None,
    ) -> None:
        self.wanted, self.values = _WANTED, dict[str, Any](since=since, first=-(-since // SLOT_MS))
        is_theirs = tables.among("sessions.agent", "agents")
        if agents:
            self.values["agents"] = tables.array(agents)
        # In a span are few sessions of others.
        is_narrow = bool(agents and tables.HANDED_ON) and span is None
        # Along an index; all are read faster without.
        recent = " AND prompted = TRUE AND archived IN (FALSE, TRUE)" if since else ""
        if cwd is not None:
            self.values["folder"] = resolve_folder(cwd)
            recent += " AND folder = %(folder)s"
        if is_narrow:
            at = " AND updated_at >= %(since)s" if since else ""
            keys = f"SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE"
            self.wanted += (
                f" AND sessions.{tables.OWN_KEY} IN ({keys} {is_theirs}{recent}{at}"
                f" UNION ALL {keys} {tables.HANDED_ON})"
            )
            recent = "" if cwd is None else " AND folder || '' = %(folder)s"  # not along its index
        self.wanted += recent
        summed = "summed_at >= 0 AND summed_at = updated_at"
        if since % SLOT_MS:
            self.values["slot"] = since // SLOT_MS
            its = f"{tables.KEY} = sessions.{tables.OWN_KEY} AND slot = %(slot)s"
            # Not NOT EXISTS: PostgreSQL would read the sums of all sessions for that.
            summed += f" AND (SELECT 1 FROM acphold.usage_sums WHERE {its} LIMIT 1) IS NULL"
        asked = self.wanted
        if span is not None:
            asked += " AND sessions.number BETWEEN %(lowest)s AND %(highest)s"
            self.values["lowest"], self.values["highest"] = span
        self._odd = (
            f"SELECT {tables.OWN_KEY} FROM acphold.sessions WHERE {asked} AND NOT ({summed})"
        )
        own = {"key": tables.KEY, "own_key": tables.OWN_KEY}
        plain, by_agents, of_agents, used_by = f"{asked} AND {summed}", "", "", ""
        its = (
            "FROM acphold.usage_sums"
            f" WHERE {tables.KEY} = sessions.{tables.OWN_KEY} AND slot >= %(first)s"
        )
        if agents:
            by_agents = f" AND {tables.among('usage_sums.agent', 'agents')}"
            of_agents = f" AND (usage_sums.agent IS NOT NULL OR {is_theirs})"
            used_by = f" AND (EXISTS (SELECT 1 {its}{by_agents}) OR {is_theirs})"
        used = _USED.format(**own, plain=plain, by_agents=by_agents, of_agents=of_agents)
        name = _NAMES.get(by, "")
        self._names: Mapping[str, str] = {}
        if by == "day":
            name, self._names = tables.day(asked, self.values)
        # By its key a session is grouped without sorting.
        at = f"sessions.{tables.OWN_KEY}" if by == "session" else "1"
        title = "min(title)" if by == "session" else "NULL"
        self._groups = _GROUPS.format(**own, name=name, title=title, used=used, at=at)
        self._costs = _COSTS.format(name=name, used=used, at=at)
        self._total = _TOTAL.format(its=its + by_agents, plain=plain, of_agents=used_by)
        self._by_request = (
            _BY_REQUEST_OF_FEW if since or span or cwd is not None or is_narrow else _BY_REQUEST
        ).format(**own, plain=plain, by_agents=by_agents)
        self._is_in_one = by in ("folder", "session")
        self._is_long = by == "session"
        self._tables = tables

    def _rows(self, statement: str) -> list[Any]:
        return self._tables.execute(statement, self.values).fetchall()

    def ask(self) -> PlainSums:
        """The sums."""
        groups: MutableMapping[str, UsageSum] = PackedGroups() if self._is_long else {}
        is_mixed, total = False, UsageSum("")
        found = self._tables.execute(self._groups, self.values)
        for rows in batches(found, bounds.SUMS_AT_ONCE):
            told: list[Tokens] = []
            for name, title, sessions, telling, first, last, cost, *counts in rows:
                is_mixed |= first != last
                its = self._names.get(name, name)
                costs = {} if cost is None or first != last else {first: cost}
                told.append(tokens := Tokens(*counts))
                groups[its] = UsageSum(its, title, sessions, sessions - telling, tokens, costs)
                total.sessions += sessions
                total.not_reported += sessions - telling
                if costs:
                    _pay(total, first, cost)
            _add(total, told)
        if is_mixed:
            total.costs.clear()
            for name, currency, cost in self._rows(self._costs):
                sum_ = groups[its := self._names.get(name, name)]
                sum_.costs[currency] = cost
                groups[its] = sum_
                _pay(total, currency, cost)
        if not self._is_in_one:
            ((total.sessions, telling),) = self._rows(self._total)
            total.not_reported = total.sessions - telling
        by_request = {agent for (agent,) in self._rows(self._by_request)}
        return PlainSums(groups, total, by_request, [key for (key,) in self._rows(self._odd)])


def sums(
    tables: Tables,
    by: Grouping,
    agents: tuple[str, ...],
    cwd: str | None,
    since: int,
    kept_sums: KeptSums = lambda *_: ([], []),
) -> UsageSums:
    """Like `Index.usage`; `kept_sums` gives those that are kept for many sessions, of all agents or
    of some, and the spans of numbers of all others."""
    are_kept = by != "session" and not (cwd or since)
    parts, spans = kept_sums(tables, by, agents) if are_kept else ([], [])
    queries = [
        SumsQuery(tables, by, agents, cwd, since, span=span)
        for span in (spans if parts else [None])
    ]
    first, *others = [*parts, *(it.ask() for it in queries)]
    groups, total, by_request, odd = first.groups, first.total, first.by_request, first.odd
    for part in others:
        for name, its in part.groups.items():
            _add_all(groups.setdefault(name, UsageSum(name)), its)
        _add_all(total, part.total)
        by_request |= part.by_request
        odd += part.odd
    counted = CountedReplies()
    is_odd, keys = tables.among(tables.OWN_KEY, "odd"), {"odd": tables.array(odd)}
    for session in sessions(tables, since, is_odd, keys, has_models=by == "model"):
        own = (one for one in session.reports if not agents or one.agent in agents)
        told = [*counted.rest(own)]
        if not told and agents and session.agent not in agents:
            continue
        named: dict[str, list[UsageReport]] = {}
        for one in told:
            named.setdefault(_group(session, by, one), []).append(one)
        # A session without reports counts in its group all the same.
        for name, its_own in (named or {_group(session, by, None): []}).items():
            sum_ = groups.get(name) or UsageSum(name, session.title if by == "session" else None)
            tokens = [one.tokens for one in its_own if one.tokens is not None]
            costs = [(one.currency, one.cost) for one in its_own if one.cost is not None]
            _add(sum_, tokens, costs)
            _add(total, tokens, costs)
            sum_.sessions += 1
            sum_.not_reported += not tokens
            groups[name] = sum_
        by_request.update([one.agent for one in told if not one.by_turn])
        total.sessions += 1
        total.not_reported += all(one.tokens is None for one in told)
    if not isinstance(groups, PackedGroups):
        return UsageSums(in_order(by, groups.values()), total, frozenset(by_request))
    in_list = tables.execute(
        f"SELECT session_id FROM acphold.sessions WHERE {queries[0].wanted}"
        " ORDER BY updated_at DESC, session_id DESC",
        queries[0].values,
    )
    packed = [it for (name,) in in_list if (it := groups.pop_packed(name)) is not None]
    return UsageSums(PackedSums(packed), total, frozenset(by_request))


def sessions(
    tables: Tables,
    since: int,
    which: str,
    values: Mapping[str, Any],
    *,
    has_models: bool = False,
) -> Iterator[SessionUsage]:
    """The usage reported since `since` in each of the sessions that a condition with `values`
    finds; newest sessions first, with models only if `has_models`.

    After the settled reports come those of a turn that is running, has just ended or was cut off.
    """
    rows = tables.execute(
        f"SELECT {tables.OWN_KEY}, session_id, agent, cwd, title, updated_at, origins,"
        f" settled_through, settled_through < {tables.last_seq()} FROM acphold.sessions"
        f" WHERE {which} ORDER BY updated_at DESC, session_id DESC",
        values,
    )
    for some in batches(rows):
        keys = {"keys": tables.array(row[0] for row in some)}
        of_these = f"WHERE {tables.among(tables.KEY, 'keys')}"
        replies = {
            (key, seq): reply
            for key, seq, reply in tables.execute(
                f"SELECT {tables.KEY}, seq, reply FROM acphold.replies {of_these}", keys
            ).fetchall()
        }
        found = tables.execute(
            f"SELECT {tables.KEY}, {COLUMNS} FROM acphold.usage {of_these}"
            f" ORDER BY {tables.KEY}, seq",
            keys,
        ).fetchall()
        by_key = {
            key: [report(*row[1:], reply=replies.get((key, row[1]), 0)) for row in same]
            for key, same in groupby(found, itemgetter(0))
        }
        for key, session_id, agent, folder, title, updated_at, origins, settled, is_open in some:
            told, rows_of_key = by_key.get(key, []), tables.segments(key)
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

    def __iter__(self) -> Iterator[UsageSum]:
        return map(_unpack, self._packed)


_unpack: Final = msgspec.msgpack.Decoder(UsageSum).decode


def _add(sum_: UsageSum, tokens: Iterable[Tokens], costs: Iterable[tuple[str, float]] = ()) -> None:
    columns = zip(*map(astuple, (sum_.tokens, *tokens)), strict=True)
    sum_.tokens = Tokens(
        *(
            min(sum(filter(None, column)), MOST_TOKENS) if {*column} != {None} else None
            for column in columns
        )
    )
    for currency, cost in costs:
        _pay(sum_, currency, cost)


def _pay(sum_: UsageSum, currency: str, cost: float) -> None:
    sum_.costs[currency] = min(sum_.costs.get(currency, 0.0) + cost, MOST_COST)


def _add_all(sum_: UsageSum, more: UsageSum) -> None:
    sum_.sessions += more.sessions
    sum_.not_reported += more.not_reported
    _add(sum_, [more.tokens], more.costs.items())


def _group(session: SessionUsage, by: Grouping, told: UsageReport | None) -> str:
    match by:
        case "agent":
            return session.agent if told is None else told.agent
        case "day":
            at = session.updated_at if told is None else told.at
            return datetime.fromtimestamp(clamp_moment(at) / 1000).date().isoformat()
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
