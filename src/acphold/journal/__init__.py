"""What is remembered of every session: append, read on, fold, search, migrate, own."""

from __future__ import annotations

from acphold.journal.entries import KINDS, Entry, PastEntry, Segment
from acphold.journal.fold import SessionState
from acphold.journal.journal import (
    LEASE_SECONDS,
    Archived,
    Holder,
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
from acphold.journal.sqlite import SqliteJournal
from acphold.journal.timeline import Message, ToolCall

__all__ = [
    "KINDS",
    "LEASE_SECONDS",
    "Archived",
    "Entry",
    "Holder",
    "Journal",
    "Lease",
    "ListFilter",
    "ListKey",
    "Listed",
    "Message",
    "NewSession",
    "Origin",
    "Part",
    "PastEntry",
    "RowChange",
    "SearchHit",
    "Segment",
    "SessionRow",
    "SessionState",
    "SessionUsage",
    "Sought",
    "SqliteJournal",
    "Tokens",
    "ToolCall",
    "UsageReport",
    "default_location",
    "history",
]
