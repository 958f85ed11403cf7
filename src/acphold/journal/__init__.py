"""What is remembered of all sessions: the interface, and a folder for each store of it."""

from __future__ import annotations

from acphold.journal.journal import (
    Archived,
    Journal,
    Lease,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    Origin,
    Part,
    RowChange,
    SearchHit,
    SessionRow,
    SessionUsage,
    Sought,
    Tokens,
    UsageReport,
    history,
)
from acphold.journal.location import default_location
from acphold.journal.owners import At, Free, Here, Owner, Silent, Whose
from acphold.journal.sqlite.store import SqliteJournal

__all__ = [
    "Archived",
    "At",
    "Free",
    "Here",
    "Journal",
    "Lease",
    "ListFilter",
    "ListKey",
    "Listed",
    "NewSession",
    "Origin",
    "Owner",
    "Part",
    "RowChange",
    "SearchHit",
    "SessionRow",
    "SessionUsage",
    "Silent",
    "Sought",
    "SqliteJournal",
    "Tokens",
    "UsageReport",
    "Whose",
    "default_location",
    "history",
]
