"""Reading the history of a session, which `stored_history` does from its rows.

The functions raise UnknownSessionError. Each takes several statements, so run it on one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from acphold.errors import UnknownSessionError
from acphold.history.entries import Segment
from acphold.history.fold import Summary
from acphold.journal import stored_history
from acphold.journal.frames import plain
from acphold.journal.journal import READ_BYTES, PageBack
from acphold.journal.sql.settled_rows import settled_state
from acphold.journal.sql.tables import LastOfTurns, Tables

BEHIND_A_TURN: Final = 64
"""Segments that may follow the end of a turn: a title, usage, and updates from opening the
session."""


def read(
    tables: Tables,
    session_id: str,
    after: int,
    limit_bytes: int = READ_BYTES,
    *,
    tail_bytes: int = 0,
) -> list[Segment]:
    """Like `Journal.read`."""
    key, settled = settled_through(tables, session_id)
    return stored_history.page(tables.segments(key), after, limit_bytes, settled, tail_bytes)


def read_back(
    tables: Tables,
    session_id: str,
    before: int | None,
    limit: int,
    limit_bytes: int = READ_BYTES,
    *,
    kinds: Sequence[str] = (),
) -> PageBack:
    """Like `Journal.read_back`."""
    key, settled = settled_through(tables, session_id)
    rows = tables.segments(key)
    return stored_history.page_back(rows, session_id, settled, before, limit, limit_bytes, kinds)


def is_exact(tables: Tables, session_id: str, after: int) -> bool:
    """Like `Journal.is_exact`."""
    key, settled = settled_through(tables, session_id)
    return stored_history.is_exact(tables.segments(key), settled, after)


def summary(tables: Tables, session_id: str) -> Summary:
    """Combine the settled summary with the entries behind it."""
    key, settled = settled_through(tables, session_id)
    kept = settled_state(tables, key).summary
    return stored_history.summary(tables.segments(key), kept, settled)


def outcomes(found: Iterable[LastOfTurns]) -> dict[str, bytes | None]:
    """Like `Journal.outcomes`."""
    told: dict[str, bytes | None] = {}
    for session_id, end, prompted, settled, segments in found:
        if end is not None:
            told[session_id] = plain(end)
        elif prompted and segments.read(settled, 1):
            told[session_id] = None  # unsettled, so not over; a settled turn is over in any case
    return told


def settled_through(tables: Tables, session_id: str) -> tuple[Any, int]:
    """The key of a session, and its last settled entry."""
    row = tables.execute(
        f"SELECT {tables.OWN_KEY}, settled_through FROM acphold.sessions WHERE session_id = %s",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSessionError(session_id)
    return row[0], row[1]
