"""What is remembered of every session: append, read on, fold, search, migrate, own."""

from __future__ import annotations

from acphold.journal.entries import KINDS, Entry, Segment
from acphold.journal.fold import SessionState
from acphold.journal.interface import (
    LEASE_SECONDS,
    Holder,
    Journal,
    Lease,
    ListFilter,
    ListKey,
    NewSession,
    SearchHit,
    SessionRow,
    Standing,
)
from acphold.journal.location import default_location
from acphold.journal.replay import Replayed
from acphold.journal.settings import Settings
from acphold.journal.sqlite import SqliteJournal
from acphold.journal.timeline import Message, ToolCall

__all__ = [
    "KINDS",
    "LEASE_SECONDS",
    "Entry",
    "Holder",
    "Journal",
    "Lease",
    "ListFilter",
    "ListKey",
    "Message",
    "NewSession",
    "Replayed",
    "SearchHit",
    "Segment",
    "SessionRow",
    "SessionState",
    "Settings",
    "SqliteJournal",
    "Standing",
    "ToolCall",
    "default_location",
]
