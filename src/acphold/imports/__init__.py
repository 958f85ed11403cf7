"""Conversations that other agents keep on disk, read into the journal."""

from __future__ import annotations

from acphold.imports.conversation import Facts, Home, Reader, Source
from acphold.imports.intake import ALL, IMPORTED, Intake, Outcome, Selection, Taken
from acphold.imports.readers import NAMES, reader

__all__ = [
    "ALL",
    "IMPORTED",
    "NAMES",
    "Facts",
    "Home",
    "Intake",
    "Outcome",
    "Reader",
    "Selection",
    "Source",
    "Taken",
    "reader",
]
