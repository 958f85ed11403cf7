"""The journal of all sessions: its interface, and a folder for each store."""

from __future__ import annotations

from acphold.journal_location import default_location
from acphold.record.journal.journal import (
    Append,
    Arrivals,
    Entries,
    HasLinks,
    Journal,
    Lease,
    Owners,
    PageBack,
    Readable,
    Sessions,
    history,
    is_forgotten,
    session_of,
    state_of,
)
from acphold.record.journal.owners import At, Free, Here, Owner, Whose
from acphold.record.journal.rows import (
    Archived,
    Listed,
    ListFilter,
    ListKey,
    NewSession,
    Origin,
    RowChange,
    RowChanges,
    SessionRow,
)
from acphold.record.journal.seams import Index, Part, SearchHit, Sought, Tokens

__all__ = [
    "Append",
    "Archived",
    "Arrivals",
    "At",
    "Entries",
    "Free",
    "HasLinks",
    "Here",
    "Index",
    "Journal",
    "Lease",
    "ListFilter",
    "ListKey",
    "Listed",
    "NewSession",
    "Origin",
    "Owner",
    "Owners",
    "PageBack",
    "Part",
    "Readable",
    "RowChange",
    "RowChanges",
    "SearchHit",
    "SessionRow",
    "Sessions",
    "Sought",
    "Tokens",
    "Whose",
    "default_location",
    "history",
    "is_forgotten",
    "session_of",
    "state_of",
]
