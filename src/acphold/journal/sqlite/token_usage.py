"""The rows of what agents reported of tokens and cost: see `journal.token_reports`.

They keep what was reported; what was of the whole session becomes what came to it when it is read.

The functions run inside a transaction of the caller's and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from acphold.journal.journal import Tokens
from acphold.journal.location import resolved_folder
from acphold.journal.sqlite import segments
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


def keep(connection: sqlite3.Connection, session: int, found: Iterable[Report]) -> None:
    """Write the rows of reports; those that are there already stay."""
    connection.executemany(
        f"INSERT OR IGNORE INTO usage (session, seq, at, by_turn, cost, currency,"
        f" {', '.join(COUNTS)}) VALUES (?, ?, ?, ?, ?, ?, {', '.join('?' * len(COUNTS))})",
        [
            (
                *(session, report.seq, report.at),
                SESSION if report.so_far else int(report.by_turn),
                *(report.cost, report.currency),
                *(getattr(report.tokens, name, None) for name in COUNTS),
            )
            for report in found
        ],
    )


SESSION: Final = 2
"""What stands in the column `by_turn` of a report with `so_far`; else 1 or 0."""


_SESSIONS: Final = """
    SELECT number, session_id, agent, cwd, title, updated_at, origins, settled_through FROM sessions
    WHERE prompted AND unread IS NULL AND updated_at >= ?1 AND (?2 IS NULL OR folder = ?2)
"""

_NEWEST_FIRST: Final = "ORDER BY updated_at DESC, session_id DESC"

_ROWS: Final = (
    f"SELECT seq, at, by_turn, cost, currency, {', '.join(COUNTS)} FROM usage"
    " WHERE session = ? ORDER BY seq"
)


def usage(connection: sqlite3.Connection, cwd: str | None, since: int) -> list[SessionUsage]:
    """What was reported since then in each session that was active since; the newest first."""
    folder = None if cwd is None else resolved_folder(cwd)
    rows = connection.execute(f"{_SESSIONS} {_NEWEST_FIRST}", (since, folder)).fetchall()
    return [_of_row(connection, row, since) for row in rows]


def usage_of(
    connection: sqlite3.Connection, sessions: str, cwd: str | None, since: int
) -> Iterator[SessionUsage]:
    """The same of those that a condition in SQL picks, one at a time."""
    folder = None if cwd is None else resolved_folder(cwd)
    for row in connection.execute(f"{_SESSIONS} AND {sessions} {_NEWEST_FIRST}", (since, folder)):
        yield _of_row(connection, row, since)


_Row = tuple[int, str, str, str, str | None, int, str, int]


def _of_row(connection: sqlite3.Connection, row: _Row, since: int) -> SessionUsage:
    number, session_id, agent, cwd, title, updated_at, origins, settled = row
    found: list[Report] = []
    for seq, at, by_turn, cost, currency, *counts in connection.execute(_ROWS, (number,)):
        tokens = Tokens(*counts) if any(count is not None for count in counts) else None
        so_far = by_turn == SESSION
        found.append(Report(seq, at, tokens, by_turn == 1, cost, currency, so_far=so_far))
    # What a turn reported that is not settled: it is over since just now, or was cut off.
    found += reports(tail(segments.Of(connection, number), settled, TAIL_BYTES))
    held_by = holders(session_id, agent, origins)
    told = tuple(report for report in came(found, held_by) if report.at >= since)
    return SessionUsage(session_id, agent, cwd, title, updated_at, told)
