"""Adding up the reported tokens and cost, session by session, on one moment of the journal.

The sums of 100,000 turns take half a second. See `token_reports`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Final, overload

import msgspec
from msgspec.structs import astuple

from acp_wire.surroundings import resolve_folder
from acphold.conversation.history.entries import TURN_END, clamp_moment
from acphold.journal import bounds
from acphold.journal.seams import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.sql.tables import Tables, batches
from acphold.journal.sql.usage_rows import COLUMNS, copied, report
from acphold.journal.stored_history import END
from acphold.journal.token_reports import (
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


def sums(
    tables: Tables, by: Grouping, agents: tuple[str, ...], cwd: str | None, since: int
) -> UsageSums:
    """Like `Index.usage`."""
    groups: dict[str, UsageSum] = {}
    total, by_request, packed = UsageSum(""), set[str](), list[bytes]()
    counted = CountedReplies()
    for session in sessions(tables, cwd, since, has_models=by == "model"):
        told = [counted.rest(one) for one in session.reports if not agents or one.agent in agents]
        if not told and agents and session.agent not in agents:
            continue
        parts: dict[str, list[UsageReport]] = {}
        for one in told:
            parts.setdefault(_group(session, by, one), []).append(one)
        # A session without reports counts in its group all the same.
        for name, part in (parts or {_group(session, by, None): []}).items():
            title = session.title if by == "session" else None
            sum_ = groups.setdefault(name, UsageSum(name, title))
            tokens = [one.tokens for one in part if one.tokens is not None]
            costs = [(one.currency, one.cost) for one in part if one.cost is not None]
            _add(sum_, tokens, costs)
            _add(total, tokens, costs)
            sum_.sessions += 1
            sum_.not_reported += not tokens
        by_request.update([one.agent for one in told if not one.by_turn])
        total.sessions += 1
        total.not_reported += all(one.tokens is None for one in told)
        if by == "session":
            packed.append(msgspec.msgpack.encode(groups.pop(session.session_id)))
    found = PackedSums(packed) if by == "session" else in_order(by, groups.values())
    return UsageSums(found, total, frozenset(by_request))


def sessions(
    tables: Tables, cwd: str | None, since: int, *, has_models: bool = False
) -> Iterator[SessionUsage]:
    """The usage reported since `since` in each session that was active since; newest sessions
    first, with models only if `has_models`. Sessions that an import has only listed are left out:
    their usage is not known yet.

    After the settled reports come those of a turn that is running, has just ended or was cut off.
    """
    rows = tables.execute(
        f"SELECT {tables.OWN_KEY}, session_id, agent, cwd, title, updated_at, origins,"
        f" settled_through, settled_through < {tables.last_seq()} FROM acphold.sessions"
        " WHERE prompted AND unread IS NULL AND updated_at >= %s"
        f"{'' if cwd is None else ' AND folder = %s'} ORDER BY updated_at DESC, session_id DESC",
        (since, *(() if cwd is None else (resolve_folder(cwd),))),
    )
    copies = copied(tables)
    for some in batches(rows):
        found = tables.execute(
            f"SELECT {tables.KEY}, {COLUMNS} FROM acphold.usage"
            f" WHERE {tables.among(tables.KEY, 'keys')} ORDER BY {tables.KEY}, seq",
            {"keys": tables.array(row[0] for row in some)},
        ).fetchall()
        by_key = {
            key: [report(*row[1:], reply=copies.get((key, row[1]), 0)) for row in same]
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


_unpack: Final = msgspec.msgpack.Decoder(UsageSum).decode


def _add(sum_: UsageSum, tokens: Iterable[Tokens], costs: Iterable[tuple[str, float]]) -> None:
    columns = zip(*map(astuple, (sum_.tokens, *tokens)), strict=True)
    known = ([count for count in column if count is not None] for column in columns)
    sum_.tokens = Tokens(*(min(sum(some), MOST_TOKENS) if some else None for some in known))
    for currency, cost in costs:
        sum_.costs[currency] = min(sum_.costs.get(currency, 0.0) + cost, MOST_COST)


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
