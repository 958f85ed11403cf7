"""The history of a session, as values: entries, their fold, their words. No files."""

from __future__ import annotations

from acphold.history.entries import KINDS, Entry, PastEntry, Segment
from acphold.history.fold import SessionState
from acphold.history.timeline import Message, ToolCall

__all__ = [
    "KINDS",
    "Entry",
    "Message",
    "PastEntry",
    "Segment",
    "SessionState",
    "ToolCall",
]
