"""The rows of reports on tokens and cost: see `journal.token_reports`.

They keep the reports as they were; totals of a whole session become increases when they are read.
The functions run inside a transaction of the caller and may raise sqlite3 errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
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
from acphold.journal.usage_slots import (
    FEW_CURRENCIES,
    Slot,
    are_alike,
    insert_costs,
    insert_slots,
    slots,
)


def keep(connection: sqlite3.Connection, session: int, found: Sequence[Report]) -> None:
    """Write the rows of new reports, and update the sums of their slots.

    `found` is in the order of the session.
    """
    if not found:
        return
    (last,) = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM usage WHERE session = ?", (session,)
    ).fetchone()
    written = connection.executemany(
        f"INSERT INTO usage (session, seq, at, by_turn, cost, currency, {', '.join(COUNTS)})"
        f" VALUES (?, ?, ?, ?, ?, ?, {', '.join('?' * len(COUNTS))}) ON CONFLICT DO NOTHING",
        [
            (
                *(session, report.seq, report.at),
                SESSION if report.so_far else int(report.by_turn),
                *(report.cost, report.currency),
                *(getattr(report.tokens, name, None) for name in COUNTS),
            )
            for report in found
        ],
    ).rowcount
    currencies = {report.currency for report in found if report.cost is not None}
    if found[0].seq > last and len(currencies) <= FEW_CURRENCIES:
        paid = {
            currency: cost
            for currency in currencies
            for (cost,) in connection.execute(_PAID, (session, currency, last))
        }
        _add(connection, session, slots(found, paid))
    elif written:
        add_up(connection, session)


def add_up(connection: sqlite3.Connection, session: int) -> None:
    """Recompute the sums of a session."""
    for table in ("usage_slots", "usage_costs"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    _add(connection, session, slots(_reports(connection, session), {}))


def has_right_sums(connection: sqlite3.Connection, session: int) -> bool:
    """True if the sums of a session agree with its reports."""
    return are_alike(_kept(connection, session), slots(_reports(connection, session), {}))


def _kept(connection: sqlite3.Connection, session: int) -> dict[int, Slot]:
    kept = {
        slot: Slot(told, by_request, counts, {})
        for slot, told, by_request, *counts in connection.execute(
            f"SELECT slot, told, by_request, {', '.join(COUNTS)} FROM usage_slots"
            " WHERE session = ?",
            (session,),
        )
    }
    for slot, currency, cost in connection.execute(
        "SELECT slot, currency, cost FROM usage_costs WHERE session = ?", (session,)
    ):
        kept.setdefault(slot, Slot(0, 0, [], {})).costs[currency] = cost
    return kept


def _add(connection: sqlite3.Connection, session: int, sums: Mapping[int, Slot]) -> None:
    connection.executemany(_INSERT_SLOTS, [(session, at, *slot.row) for at, slot in sums.items()])
    connection.executemany(
        _INSERT_COSTS,
        [(session, at, *cost) for at, slot in sums.items() for cost in slot.costs.items()],
    )


_INSERT_SLOTS: Final = insert_slots("usage_slots", "session", "?")
_INSERT_COSTS: Final = insert_costs("usage_costs", "session", "?")

_PAID: Final = """
    SELECT cost FROM usage WHERE session = ? AND currency = ? AND seq <= ? AND cost IS NOT NULL
    ORDER BY seq DESC LIMIT 1
"""


SESSION: Final = 2
"""The value of the column `by_turn` for a report with `so_far`; for others it is 1 or 0."""


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
    """The usage reported since `since` in each session that was active since; newest sessions
    first."""
    folder = None if cwd is None else resolved_folder(cwd)
    rows = connection.execute(f"{_SESSIONS} {_NEWEST_FIRST}", (since, folder)).fetchall()
    return [_of_row(connection, row, since) for row in rows]


def usage_of(
    connection: sqlite3.Connection, sessions: str, cwd: str | None, since: int
) -> Iterator[SessionUsage]:
    """The same for sessions chosen by a condition in SQL, one at a time."""
    folder = None if cwd is None else resolved_folder(cwd)
    for row in connection.execute(f"{_SESSIONS} AND {sessions} {_NEWEST_FIRST}", (since, folder)):
        yield _of_row(connection, row, since)


_Row = tuple[int, str, str, str, str | None, int, str, int]


def _of_row(connection: sqlite3.Connection, row: _Row, since: int) -> SessionUsage:
    number, session_id, agent, cwd, title, updated_at, origins, settled = row
    found = [*_reports(connection, number)]
    # Reports of an unsettled turn: it has just ended, or was cut off.
    found += reports(tail(segments.Of(connection, number), settled, TAIL_BYTES))
    held_by = holders(session_id, agent, origins)
    told = tuple(report for report in came(found, held_by) if report.at >= since)
    return SessionUsage(session_id, agent, cwd, title, updated_at, told)


def _reports(connection: sqlite3.Connection, session: int) -> Iterator[Report]:
    """The reports of a session, in its order."""
    for seq, at, by_turn, cost, currency, *counts in connection.execute(_ROWS, (session,)):
        tokens = Tokens(*counts) if any(count is not None for count in counts) else None
        so_far = by_turn == SESSION
        yield Report(seq, at, tokens, by_turn == 1, cost, currency, so_far=so_far)
