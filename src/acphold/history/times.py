"""Times of entries and sessions: milliseconds since the epoch, UTC."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

LATEST_MS: Final = 253_402_214_400_000
"""9999-12-31 in UTC: Python cannot write a later time as a date in every time zone."""


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def milliseconds(updated_at: str | None) -> int:
    """Return an ISO 8601 time in ms since the epoch; 0, the end of the list, if there is none.

    A time before 1970 counts as none: Go writes an unset one as that of the year 1. So does one
    that no clock shows: see LATEST_MS.
    """
    try:
        at = int(datetime.fromisoformat(updated_at or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return at if 0 < at < LATEST_MS else 0
