"""The rows of reports on tokens and cost.

They keep the reports as they were; totals of a whole session become increases when they are read.
See `journal.token_reports`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acphold.journal.seams import Tokens
from acphold.journal.sql.tables import Key, Tables
from acphold.journal.token_reports import COUNTS, Report

COLUMNS: Final = f"seq, at, by_turn, cost, currency, {', '.join(COUNTS)}"
"""The columns that `report` reads."""

SESSION: Final = 2
"""The value of the column `by_turn` for a report with `so_far`; for others it is 1 or 0."""


def keep(tables: Tables, key: Key, found: Sequence[Report]) -> None:
    """Write the rows of new reports."""
    marks = ", ".join(["%s"] * (6 + len(COUNTS)))
    tables.executemany(
        f"INSERT INTO acphold.usage ({tables.KEY}, {COLUMNS}) VALUES ({marks})"
        " ON CONFLICT DO NOTHING",
        [
            (
                *(key, report.seq, report.at),
                SESSION if report.so_far else int(report.by_turn),
                # PostgreSQL keeps no NUL in a text.
                *(report.cost, report.currency.replace("\0", "")),
                *(getattr(report.tokens, name, None) for name in COUNTS),
            )
            for report in found
        ],
    )
    if replies := [(key, report.seq, report.reply) for report in found if report.reply]:
        tables.executemany(
            f"INSERT INTO acphold.replies ({tables.KEY}, seq, reply) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            replies,
        )


def copied(tables: Tables) -> dict[tuple[Key, int], int]:
    """Return the reply of each report on a turn that has copies, by session and number."""
    rows = tables.execute(
        f"SELECT {tables.KEY}, seq, reply FROM acphold.replies WHERE reply IN"
        " (SELECT reply FROM acphold.replies GROUP BY reply HAVING count(*) > 1)"
    )
    return {(key, seq): reply for key, seq, reply in rows}


def drop(tables: Tables, key: Key, spans: Sequence[tuple[int, int]]) -> None:
    """Delete the rows of reports in entries with these numbers."""
    for table in ("usage", "replies"):
        tables.executemany(
            f"DELETE FROM acphold.{table} WHERE {tables.KEY} = %s AND seq BETWEEN %s AND %s",
            [(key, first, last) for first, last in spans],
        )


def report(
    seq: int,
    at: int,
    by_turn: int,
    cost: float | None,
    currency: str,
    *counts: int | None,
    reply: int,
) -> Report:
    """The report in the COLUMNS of a row."""
    tokens = Tokens(*counts) if counts.count(None) < len(counts) else None
    return Report(seq, at, tokens, by_turn == 1, cost, currency, by_turn == SESSION, reply)
