"""The history of a session, as values: entries, their fold, their words. No files."""

from __future__ import annotations

from acphold.record.history.entries import KINDS, Entry, PastEntry, Segment
from acphold.record.history.fold import SessionState
from acphold.record.history.timeline import Message, ToolCall

__all__ = [
    "KINDS",
    "Entry",
    "Message",
    "PastEntry",
    "Segment",
    "SessionState",
    "ToolCall",
]
