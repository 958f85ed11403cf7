"""Times of entries and sessions: milliseconds since the epoch, UTC."""

from __future__ import annotations

import time
from typing import Final

LATEST_MS: Final = 253_402_214_400_000
"""9999-12-31 in UTC: Python cannot write a later time as a date in every time zone."""


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
