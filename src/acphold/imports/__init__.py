"""Import of conversations that other agents keep on disk into the journal."""

from __future__ import annotations

from acphold.imports.crew import each, read_beside, read_listed
from acphold.imports.growth import Growth, ImportMemory, was_named
from acphold.imports.heads import WORTH_LISTING, give_up_lost
from acphold.imports.holders import files_with
from acphold.imports.intake import (
    OUTCOMES,
    Intake,
    Outcome,
    PieceReader,
    TakenSource,
    find_conversation,
    forecast,
)
from acphold.imports.interrupts import ending_at_ctrl_c, interruptible
from acphold.imports.pieces import failure
from acphold.imports.readers import NAMES, WAVES, Deletion, Reader, deletions, reader
from acphold.imports.sources import ALL, Home, ImportSelection, Source, searching
from acphold.imports.values import ABANDONED

__all__ = [
    "ABANDONED",
    "ALL",
    "NAMES",
    "OUTCOMES",
    "WAVES",
    "WORTH_LISTING",
    "Deletion",
    "Growth",
    "Home",
    "ImportMemory",
    "ImportSelection",
    "Intake",
    "Outcome",
    "PieceReader",
    "Reader",
    "Source",
    "TakenSource",
    "deletions",
    "each",
    "ending_at_ctrl_c",
    "failure",
    "files_with",
    "find_conversation",
    "forecast",
    "give_up_lost",
    "interruptible",
    "read_beside",
    "read_listed",
    "reader",
    "searching",
    "was_named",
]
