"""What is remembered of every session: append, read on, fold, search, migrate, own."""

from __future__ import annotations

from holdfast.journal.entries import KINDS, Entry, Segment
from holdfast.journal.fold import SessionState
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
    Standing,
)
from holdfast.journal.location import default_location
from holdfast.journal.replay import Replayed
from holdfast.journal.settings import Settings
from holdfast.journal.sqlite import SqliteJournal
from holdfast.journal.timeline import Message, ToolCall

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
