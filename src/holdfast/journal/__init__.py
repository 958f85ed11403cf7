"""What is remembered of every session: append, read on, fold, search, migrate, own."""

from __future__ import annotations

from holdfast.journal.entries import KINDS, Entry, Segment
from holdfast.journal.interface import (
    LEASE_SECONDS,
    Holder,
    Journal,
    Lease,
    ListFilter,
    ListKey,
    NewSession,
    SearchHit,
    SessionRow,
)
from holdfast.journal.location import default_location
from holdfast.journal.sqlite import SqliteJournal

__all__ = [
    "KINDS",
    "LEASE_SECONDS",
    "Entry",
    "Holder",
    "Journal",
    "Lease",
    "ListFilter",
    "ListKey",
    "NewSession",
    "SearchHit",
    "Segment",
    "SessionRow",
    "SqliteJournal",
    "default_location",
]
