"""The ends of the last turns of sessions: the decision; each database finds the rows its way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from acphold.journal.frames import plain
from acphold.journal.stored_history import StoredSegments

BEHIND_A_TURN: Final = 64
"""Segments that may follow the end of a turn: a title, usage, and updates from opening the
session."""


class LastOfTurns(NamedTuple):
    """A session, and the end of its last turn as its row stores it; None if that was not found."""

    session_id: str
    end: bytes | None
    prompted: bool
    settled: int
    segments: StoredSegments


def outcomes(found: Iterable[LastOfTurns]) -> dict[str, bytes | None]:
    """Like `Journal.outcomes`."""
    told: dict[str, bytes | None] = {}
    for session_id, end, prompted, settled, segments in found:
        if end is not None:
            told[session_id] = plain(end)
        elif prompted and segments.read(settled, 1):
            told[session_id] = None  # unsettled, so not over; a settled turn is over in any case
    return told
