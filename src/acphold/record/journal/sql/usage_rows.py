"""The rows of reports on tokens and cost, and the sums of their slots.

The rows keep the reports as they were; totals of a whole session become increases when they are
read. See `journal.token_reports`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from acphold.record.journal import bounds
from acphold.record.journal.seams import Tokens
from acphold.record.journal.sql.tables import Key, Tables
from acphold.record.journal.token_reports import (
    COUNTS,
    MOST_COST,
    MOST_TOKENS,
    Report,
    Slot,
    are_alike,
    slots,
)

COLUMNS: Final = f"seq, at, by_turn, cost, currency, {', '.join(COUNTS)}"
"""The columns that `report` reads."""

SESSION: Final = 2
"""The value of the column `by_turn` for a report with `so_far`; for others it is 1 or 0."""


def keep(tables: Tables, key: Key, found: Sequence[Report]) -> None:
    """Write the rows of new reports, and update the sums of their slots.

    `found` is in the order of the session. The row of the session must be locked, so that others
    write its reports before or afterwards.
    """
    if not found:
        return
    # PostgreSQL keeps no NUL in a text.
    found = [replace(report, currency=report.currency.replace("\0", "")) for report in found]
    (last,) = tables.execute(
        f"SELECT coalesce(max(seq), 0) FROM acphold.usage WHERE {tables.KEY} = %s", (key,)
    ).fetchone()
    marks = ", ".join(["%s"] * (6 + len(COUNTS)))
    written = tables.executemany(
        f"INSERT INTO acphold.usage ({tables.KEY}, {COLUMNS}) VALUES ({marks})"
        " ON CONFLICT DO NOTHING",
        [
            (
                *(key, report.seq, report.at),
                SESSION if report.so_far else int(report.by_turn),
                *(report.cost, report.currency),
                *(getattr(report.tokens, name, None) for name in COUNTS),
            )
            for report in found
        ],
    )
    currencies = {report.currency for report in found if report.cost is not None}
    if found[0].seq > last and len(currencies) <= bounds.FEW_CURRENCIES:
        paid = {
            currency: float(cost)
            for currency in currencies
            for (cost,) in tables.execute(
                f"SELECT cost FROM acphold.usage WHERE {tables.KEY} = %s AND currency = %s"
                " AND seq <= %s AND cost IS NOT NULL ORDER BY seq DESC LIMIT 1",
                (key, currency, last),
            ).fetchall()
        }
        _add(tables, key, slots(found, paid))
    elif written:  # older reports were added later
        add_up(tables, key)


def add_up(tables: Tables, key: Key) -> None:
    """Recompute the sums of a session."""
    for table in ("usage_slots", "usage_costs"):
        tables.execute(f"DELETE FROM acphold.{table} WHERE {tables.KEY} = %s", (key,))
    _add(tables, key, slots(reports_of(tables, key), {}))


def has_right_sums(tables: Tables, key: Key) -> bool:
    """True if the sums of a session agree with its reports."""
    kept = {
        slot: Slot(told, by_request, counts, {})
        for slot, told, by_request, *counts in tables.execute(
            f"SELECT slot, told, by_request, {', '.join(COUNTS)} FROM acphold.usage_slots"
            f" WHERE {tables.KEY} = %s",
            (key,),
        ).fetchall()
    }
    for slot, currency, cost in tables.execute(
        f"SELECT slot, currency, cost FROM acphold.usage_costs WHERE {tables.KEY} = %s", (key,)
    ).fetchall():
        kept.setdefault(slot, Slot(0, 0, [], {})).costs[currency] = cost
    return are_alike(kept, slots(reports_of(tables, key), {}))


def _add(tables: Tables, key: Key, sums: Mapping[int, Slot]) -> None:
    counts = ("told", "by_request", *COUNTS)
    columns = (tables.KEY, "slot", *counts)
    tables.executemany(
        f"INSERT INTO acphold.usage_slots AS kept ({', '.join(columns)})"
        f" VALUES ({', '.join(['%s'] * len(columns))}) ON CONFLICT ({tables.KEY}, slot) DO UPDATE"
        f" SET {', '.join(_assignment(name, MOST_TOKENS) for name in counts)}",
        [(key, at, *slot.row) for at, slot in sums.items()],
    )
    tables.executemany(
        f"INSERT INTO acphold.usage_costs AS kept ({tables.KEY}, slot, currency, cost)"
        f" VALUES (%s, %s, %s, %s) ON CONFLICT ({tables.KEY}, slot, currency) DO UPDATE"
        f" SET {_assignment('cost', MOST_COST)}",
        [(key, at, *cost) for at, slot in sums.items() for cost in slot.costs.items()],
    )


def _assignment(name: str, most: float) -> str:
    # Not by `least`, which ignores NULL in PostgreSQL.
    sum_ = f"kept.{name} + excluded.{name}"
    either = f"coalesce({sum_}, kept.{name}, excluded.{name})"
    return f"{name} = CASE WHEN {sum_} > {most} THEN {most} ELSE {either} END"


def reports_of(tables: Tables, key: Key) -> Iterator[Report]:
    """The reports of a session, in its order."""
    rows = tables.execute(
        f"SELECT {COLUMNS} FROM acphold.usage WHERE {tables.KEY} = %s ORDER BY seq", (key,)
    )
    return (report(*row) for row in rows.fetchall())


def report(
    seq: int, at: int, by_turn: int, cost: float | None, currency: str, *counts: int | None
) -> Report:
    """The report in the COLUMNS of a row."""
    tokens = Tokens(*counts) if any(count is not None for count in counts) else None
    return Report(seq, at, tokens, by_turn == 1, cost, currency, so_far=by_turn == SESSION)
