"""What agents reported of tokens and cost, added up.

The functions run inside a transaction of the caller's and may raise psycopg errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from acphold.journal.journal import Grouping, Tokens, UsageSum, UsageSums
from acphold.journal.location import resolved_folder
from acphold.journal.postgresql import segments
from acphold.journal.postgresql.migrations import Line
from acphold.journal.stored_history import tail
from acphold.journal.token_reports import (
    COUNTS,
    TAIL_BYTES,
    Report,
    SessionUsage,
    came,
    holders,
    reports,
)
from acphold.journal.usage_groups import PackedSums, add, in_order

_SESSIONS: Final = """
    SELECT session_id, agent, cwd, title, updated_at, origins, settled_through,
        settled_through < coalesce((
            SELECT last_seq FROM acphold.segments WHERE segments.session_id = sessions.session_id
            ORDER BY last_seq DESC LIMIT 1
        ), 0)
    FROM acphold.sessions
    WHERE prompted AND unread IS NULL AND updated_at >= %(since)s
        AND (%(folder)s::text IS NULL OR folder = %(folder)s)
    ORDER BY updated_at DESC, session_id DESC
"""

_ROWS: Final = (
    f"SELECT session_id, seq, at, by_turn, cost, currency, {', '.join(COUNTS)}"
    " FROM acphold.usage WHERE session_id = ANY(%s) ORDER BY session_id, seq"
)

_AT_ONCE: Final = 500


def sums(
    line: Line, by: Grouping, agents: tuple[str, ...], cwd: str | None, since: int
) -> UsageSums:
    """As `Journal.usage`."""
    total = UsageSum("")
    by_request: set[str] = set()
    if by == "session":

        def each() -> Iterator[UsageSum]:
            for session in sessions(line, cwd, since):
                its: dict[str, UsageSum] = {}
                by_request.update(add(session, by, agents, its, total))
                yield from its.values()

        packed = PackedSums.of(each())
        return UsageSums(packed, total, frozenset(by_request))
    groups: dict[str, UsageSum] = {}
    for session in sessions(line, cwd, since):
        by_request |= add(session, by, agents, groups, total)
    return UsageSums(in_order(by, groups.values()), total, frozenset(by_request))


def sessions(line: Line, cwd: str | None, since: int) -> Iterator[SessionUsage]:
    """What was reported since then in each session that was active since; the newest first."""
    folder = None if cwd is None else resolved_folder(cwd)
    rows = line.execute(_SESSIONS, {"since": since, "folder": folder}).fetchall()
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        found = line.execute(_ROWS, ([row[0] for row in some],)).fetchall()
        told = {name: [*its] for name, its in groupby(found, key=itemgetter(0))}
        for session_id, agent, cwd_, title, updated_at, origins, settled, is_open in some:
            its = [_report(*row[1:]) for row in told.get(session_id, [])]
            if is_open:  # the turn is over since just now, runs, or was cut off
                its += reports(tail(segments.Of(line, session_id), settled, TAIL_BYTES))
            held_by = holders(session_id, agent, origins)
            since_then = tuple(report for report in came(its, held_by) if report.at >= since)
            yield SessionUsage(session_id, agent, cwd_, title, updated_at, since_then)


def _report(
    seq: int, at: int, by_turn: int, cost: float | None, currency: str, *counts: int | None
) -> Report:
    tokens = Tokens(*counts) if any(count is not None for count in counts) else None
    return Report(seq, at, tokens, by_turn == 1, cost, currency, so_far=by_turn == 2)
