"""Sums of usage that are kept for many sessions together, so that `usage` does not go through all.

The upkeep makes a block of SUMMED_TOGETHER sessions, in the order of their numbers, once the next
one has begun: the sums by each grouping, of all agents and of each one. They hold as long as none
of the sessions has changed, so whoever writes pays nothing; a block is dropped with its first
deleted session. Which ones have changed since is for each store to say. Days are those of a time
zone: see `_midnights`.
See docs/decisions.md, 22.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from acphold.journal import bounds
from acphold.journal.seams import Grouping, UsageSum
from acphold.journal.sql.tables import Tables
from acphold.journal.sql.usage_sums import PlainSums, Span, SumsQuery

_KEPT: Final[tuple[Grouping, ...]] = ("agent", "day", "folder", "model")
"""The groupings, each of which has a column."""

_LAST: Final = (1 << 63) - 1
"""The highest number that there may be."""


class _Kept(Struct, array_like=True):
    """The sums by a grouping, of all or of an agent."""

    sums: PlainSums
    midnights: list[tuple[float, float]]


_decode: Final = msgspec.msgpack.Decoder(_Kept).decode

_by_agent: Final = msgspec.msgpack.Decoder(dict[str | None, msgspec.Raw]).decode
"""Reads a column: those of each agent, and of all under None."""


def kept_sums(
    holding: Iterable[tuple[Span, bytes]], by: Grouping, agents: tuple[str, ...]
) -> tuple[list[PlainSums], list[Span]]:
    """The sums of the blocks that hold, in the order of their numbers, from the columns of this
    grouping; and the spans of numbers outside of them."""
    kept: list[PlainSums] = []
    spans: list[Span] = []
    for span, row in holding:
        with suppress(msgspec.DecodeError):
            column = _by_agent(row)
            named = [name for name in agents if name in column]
            # Of several, one session may have reports; of too many, none are kept.
            if len(named) > 1 or (agents and len(column) == 1):
                continue
            found = _decode(column[named[0] if named else None])
            if by == "day" and found.midnights != _midnights(found.sums.groups):
                continue
            is_empty = bool(agents) and not named
            kept.append(
                PlainSums({}, UsageSum(""), set(), found.sums.odd) if is_empty else found.sums
            )
            spans.append(span)
    return kept, spans_outside(spans)


def spans_outside(spans: Iterable[Span]) -> list[Span]:
    """The spans of numbers between some, and behind them."""
    outside: list[Span] = []
    begin = 0
    for lowest, highest in spans:
        if begin < lowest:
            outside.append((begin, lowest - 1))
        begin = highest + 1
    return [*outside, (begin, _LAST)]


def readable(holding: Iterable[tuple[Span, bytes]]) -> list[Span]:
    """Those of these blocks that can be read, by one of their columns: an earlier version kept no
    sums of agents."""
    spans: list[Span] = []
    for span, row in holding:
        with suppress(msgspec.DecodeError):
            _by_agent(row)
            spans.append(span)
    return spans


def next_due(tables: Tables, holding: Iterable[Span]) -> Span | None:
    """The first numbers outside of the blocks that hold, of as many sessions as a block has; None
    if only the last are left, which are too few yet."""
    begin = 0
    for lowest, highest in (*holding, (_LAST, _LAST)):
        if begin < lowest:
            row = tables.execute(
                "SELECT number FROM acphold.sessions WHERE number >= %s AND number < %s"
                " ORDER BY number LIMIT 1 OFFSET %s",
                (begin, lowest, bounds.SUMMED_TOGETHER),
            ).fetchone()
            if row is not None:
                return begin, max(begin, row[0] - 1)
            return None if lowest == _LAST else (begin, lowest - 1)
        begin = highest + 1
    return None


def columns(tables: Tables, span: Span) -> dict[str, object]:
    """The columns of a new block."""
    lowest, highest = span
    rows = tables.execute(_AGENTS.format(tables), (lowest, highest, lowest, highest))
    agents = [agent for (agent,) in rows.fetchall()]
    if len(agents) > bounds.AGENTS_OF_A_BLOCK:
        agents = []
    return {"lowest": lowest, "highest": highest} | {
        f"by_{by}": _sums_of(tables, by, span, agents) for by in _KEPT
    }


_AGENTS: Final = f"""
    SELECT agent FROM acphold.sessions WHERE number BETWEEN %s AND %s UNION
    SELECT usage_sums.agent FROM acphold.sessions
    JOIN acphold.usage_sums ON usage_sums.{{0.KEY}} = sessions.{{0.OWN_KEY}}
    WHERE number BETWEEN %s AND %s
    LIMIT {bounds.AGENTS_OF_A_BLOCK + 1}
"""


def _sums_of(tables: Tables, by: Grouping, span: Span, agents: Sequence[str]) -> bytes:
    return msgspec.msgpack.encode(
        {
            agent: _kept(by, SumsQuery(tables, by, () if agent is None else (agent,), span=span))
            for agent in (None, *agents)
        }
    )


def _kept(by: Grouping, query: SumsQuery) -> _Kept:
    found = query.ask()
    return _Kept(found, _midnights(found.groups) if by == "day" else [])


def insert(tables: Tables, block: dict[str, object]) -> None:
    """Write a block, in place of those that had some of its numbers."""
    tables.execute(
        "DELETE FROM acphold.usage_blocks WHERE highest >= %s AND lowest <= %s",
        (block["lowest"], block["highest"]),
    )
    marks = ", ".join(["%s"] * len(block))
    tables.execute(
        f"INSERT INTO acphold.usage_blocks ({', '.join(block)}) VALUES ({marks})",
        (*block.values(),),
    )


def place_of(number: int, spans: Sequence[Span]) -> int | None:
    """The place of the span with this number among some, in their order."""
    place = bisect_left(spans, number, key=lambda it: it[1])
    return place if place < len(spans) and spans[place][0] <= number else None


def _midnights(days: Iterable[str]) -> list[tuple[float, float]]:
    """The beginning and the end of each of these days here: sums by day hold wherever these are the
    same moments."""
    begin = [datetime.fromisoformat(name) for name in days]
    return [(it.timestamp(), (it + timedelta(1)).timestamp()) for it in begin]
