"""How many messages a session has: those of settled turns are counted once, and remembered."""

from __future__ import annotations

import sqlite3
from typing import Final

from acphold.journal import history
from acphold.journal.fold import SessionState, fold
from acphold.journal.timeline import Message

UNSETTLED_BYTES: Final = 1 << 20
"""How much of a turn that is not settled is counted for the list, at most."""

_CONTEXT_SEGMENTS: Final = 8
_CONTEXT_ENTRIES: Final = 50
"""How far back to look for the message that the first chunk of a piece may belong to."""


def messages(state: SessionState) -> int:
    """The messages that count: what users and agents said, without thoughts."""
    return sum(
        isinstance(item, Message) and item.role in ("user", "agent") for item in state.timeline
    )


def context(connection: sqlite3.Connection, session: int, settled: int) -> SessionState:
    """The state just before: a chunk that came late belongs to a message that is counted."""
    before = history.read_back(connection, session, settled, _CONTEXT_SEGMENTS)
    entries = [entry for segment in before for entry in segment.entries()]
    return fold(entries[-_CONTEXT_ENTRIES:])


def unsettled(connection: sqlite3.Connection, session: int, settled: int) -> int:
    """The messages behind `settled`: of a turn that runs, or that a crash has cut off."""
    segments = history.read(connection, session, settled, UNSETTLED_BYTES)
    before = context(connection, session, settled)
    entries = (entry for segment in segments for entry in segment.entries())
    return messages(fold(entries, before)) - messages(before)
