"""Sums of the usage reported in a session, by slots of time: updated as reports are written.

A slot is a quarter of an hour, because in every time zone a day begins with one. Sums are also
kept, but not used, for sessions that need a closer look, such as those held by several agents.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose
from typing import Final

from msgspec import Struct

from acphold.journal.token_reports import COUNTS, Report, cost_since

SLOT_MS: Final = 15 * 60 * 1000

MOST_TOKENS: Final = 10**18
MOST_COST: Final = 1e300
"""The largest cost kept in a slot: any store can add two of these."""

FEW_CURRENCIES: Final = 4
"""The last cost is looked up for up to this many currencies; with more, the session is
recomputed."""


class Slot(Struct):
    """The reports in a slot: the number with tokens, the number not known to be of a turn, and
    sums.

    `counts` are in the order of COUNTS; None for counts that were not reported.
    """

    told: int
    by_request: int
    counts: list[int | None]
    costs: dict[str, float]

    @property
    def row(self) -> tuple[int | None, ...]:
        return (self.told, self.by_request, *self.counts)


def slots(found: Iterable[Report], paid: dict[str, float]) -> dict[int, Slot]:
    """Return the sums of these reports; `paid` has the cost of the session before them, by
    currency."""
    sums: dict[int, Slot] = {}
    for report in found:
        if report.at < 0:
            continue
        slot = sums.setdefault(report.at // SLOT_MS, Slot(0, 0, [None] * len(COUNTS), {}))
        slot.by_request += not (report.by_turn or report.so_far)
        if report.tokens is not None:
            slot.told += report.tokens.total is not None
            for place, name in enumerate(COUNTS):
                if (count := getattr(report.tokens, name)) is not None:
                    slot.counts[place] = min((slot.counts[place] or 0) + count, MOST_TOKENS)
        if report.cost is not None:
            came = cost_since(paid.get(report.currency, 0.0), report.cost)
            paid[report.currency] = report.cost
            sum_ = slot.costs.get(report.currency, 0.0) + came
            slot.costs[report.currency] = min(sum_, MOST_COST)
    return sums


def are_alike(one: dict[int, Slot], other: dict[int, Slot]) -> bool:
    """True if both are the same; costs added up in another order may differ a little."""
    return one.keys() == other.keys() and all(
        slot.row == other[at].row
        and slot.costs.keys() == other[at].costs.keys()
        and all(
            isclose(cost, other[at].costs[currency], rel_tol=1e-6, abs_tol=1e-6)
            for currency, cost in slot.costs.items()
        )
        for at, slot in one.items()
    )
