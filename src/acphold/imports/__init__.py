"""Conversations that other agents keep on disk, read into the journal."""

from __future__ import annotations

from acphold.imports.crew import each
from acphold.imports.heads import WORTH_LISTING, give_up_lost, unread_in
from acphold.imports.intake import (
    ALL,
    Intake,
    Outcome,
    Selection,
    Taken,
    Telling,
    forecast,
)
from acphold.imports.readers import NAMES, WAVES, Reader, reader
from acphold.imports.retention import deletions
from acphold.imports.session_writer import IMPORTED
from acphold.imports.sources import Home, Source, noting_unreadable

__all__ = [
    "ALL",
    "IMPORTED",
    "NAMES",
    "WAVES",
    "WORTH_LISTING",
    "Home",
    "Intake",
    "Outcome",
    "Reader",
    "Selection",
    "Source",
    "Taken",
    "Telling",
    "deletions",
    "each",
    "forecast",
    "give_up_lost",
    "noting_unreadable",
    "reader",
    "unread_in",
]
