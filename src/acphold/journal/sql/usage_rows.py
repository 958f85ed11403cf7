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


def drop(tables: Tables, key: Key, spans: Sequence[tuple[int, int]]) -> None:
    """Delete the rows of reports in entries with these numbers."""
    tables.executemany(
        f"DELETE FROM acphold.usage WHERE {tables.KEY} = %s AND seq BETWEEN %s AND %s",
        [(key, first, last) for first, last in spans],
    )


def report(
    seq: int, at: int, by_turn: int, cost: float | None, currency: str, *counts: int | None
) -> Report:
    """The report in the COLUMNS of a row."""
    tokens = Tokens(*counts) if counts.count(None) < len(counts) else None
    return Report(seq, at, tokens, by_turn == 1, cost, currency, so_far=by_turn == SESSION)
