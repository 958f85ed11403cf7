"""Times as people and programs read them; all arguments are ms since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

_STEPS = (
    (60, "minute"),
    (60, "hour"),
    (24, "day"),
    (7, "week"),
    (4.35, "month"),
    (12, "year"),
)
"""How many of the unit before make one of this."""


def iso(at: int) -> str:
    """ISO 8601 in UTC, to the millisecond: `2026-01-31T12:00:00.000Z`."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(at: int) -> str:
    """To the minute, where the reader is: `2026-01-31 13:00`."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M")


def age(at: int, now: int) -> str:
    """How long ago: `just now`, `3 minutes ago`, `2 weeks ago`."""
    amount = max(0, now - at) / 1000
    unit = "second"
    for factor, larger in _STEPS:
        if amount < factor:
            break
        amount, unit = amount / factor, larger
    if unit == "second":
        return "just now"
    return f"{int(amount)} {unit}{'s' if int(amount) != 1 else ''} ago"
