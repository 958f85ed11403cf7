"""Numbers and times in words, beside text that plays no tricks on its reader.

All times are ms since the epoch.
"""

from __future__ import annotations

from datetime import datetime

from acp_wire.visible_text import (
    exact as exact,
    on_one_line as on_one_line,
    quantity as quantity,
    visible as visible,
    visible_json as visible_json,
)


def size(count: int) -> str:
    """Return a number of bytes for people: `640 bytes`, `1.5 MiB`."""
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return quantity(count, "byte") if unit == "bytes" else f"{amount:.1f} {unit}"


def local(at: int) -> str:
    """Return a time in the local zone, to the minute: `2026-01-31 13:00`."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M")
